"""Per-token controls of a request besides sampling: penalties, logit biases, a grammar and logprobs."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor


@dataclass(frozen=True)
class TokenControls:
    """Controls of a request that change logits at each token. A token that is already in the answer loses
    ``presence_penalty`` from its logit, plus ``frequency_penalty`` times its count. ``bias`` maps token ids to numbers
    that are added to logits. Answers follow ``grammar``, in llguidance's format (empty: none). Each step reports
    logprobs of the ``top`` likeliest tokens (None: no logprobs).
    """

    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    bias: Mapping[int, float] = field(default_factory=dict)
    grammar: str = ""
    top: int | None = None


NO_CONTROLS = TokenControls()


class LogitsProcessor(Protocol):
    """A function that changes the logits [vocabulary] before each token of one answer is chosen."""

    def __call__(self, logits: Tensor) -> Tensor: ...

    def accept(self, token: int) -> None:
        """Record the chosen ``token``, on which the next logits may depend."""


class Penalties:
    """A LogitsProcessor that applies the penalties and biases of ``controls``, as OpenAI's API defines them."""

    def __init__(self, controls: TokenControls) -> None:
        self._frequency, self._presence = controls.frequency_penalty, controls.presence_penalty
        self._bias, self._counts = dict(controls.bias), Counter[int]()

    def __call__(self, logits: Tensor) -> Tensor:
        """Returns new logits. Biases for ids outside the vocabulary are ignored."""
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
    """Returns the log-probability of ``token``, and the ``top`` likeliest tokens as pairs of token and log-probability,
    likeliest first.
    """
    logs = logits.float().log_softmax(-1)
    best = logs.topk(min(top, len(logs)))
    pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return float(logs[token]), list(pairs)
