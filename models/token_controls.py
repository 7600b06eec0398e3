"""TokenControls: what a request wants of single tokens beside sampling: penalties, biases, a grammar, probabilities."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor


@dataclass(frozen=True)
class TokenControls:
    """Each token that an answer has already becomes less likely by ``presence_penalty``, and by ``frequency_penalty``
    times its count, in logits; ``bias`` is added to the logits of tokens by id. Answers follow the ``grammar``, as
    llguidance writes it (empty: none). The ``top`` likeliest tokens of each step are told (None: no probability is).
    """

    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    bias: Mapping[int, float] = field(default_factory=dict)
    grammar: str = ""
    top: int | None = None


NO_CONTROLS = TokenControls()


class LogitsProcessor(Protocol):
    """Changes the logits [vocabulary] of each step of one answer."""

    def __call__(self, logits: Tensor) -> Tensor: ...

    def accept(self, token: int) -> None:
        """Note the token that was chosen."""


class Penalties:
    """The penalties and biases of ``controls``, as OpenAI's API defines them. See ``LogitsProcessor``."""

    def __init__(self, controls: TokenControls) -> None:
        self._frequency, self._presence = controls.frequency_penalty, controls.presence_penalty
        self._bias, self._counts = dict(controls.bias), Counter[int]()

    def __call__(self, logits: Tensor) -> Tensor:
        """Returns new logits, which tokens that the model does not have leave alone."""
        added = Counter(self._bias)
        if self._frequency or self._presence:
            added.update({token: -self._presence - self._frequency * n for token, n in self._counts.items()})
        own = {token: value for token, value in added.items() if 0 <= token < len(logits)}
        if not own:
            return logits
        index = torch.tensor(list(own), device=logits.device)
        values = torch.tensor(list(own.values()), dtype=torch.float32, device=logits.device)
        return logits.float().index_add(0, index, values)

    def accept(self, token: int) -> None:
        self._counts[token] += 1


def likeliest(logits: Tensor, token: int, top: int) -> tuple[float, list[tuple[int, float]]]:
    """Returns the log-probability that the model gives ``token``, and the ``top`` likeliest tokens with theirs."""
    logs = logits.float().log_softmax(-1)
    best = logs.topk(min(top, len(logs)))
    pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return float(logs[token]), list(pairs)
