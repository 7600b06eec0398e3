"""Sampler: chooses the next token from logits, greedily or by sampling like transformers' ``generate``."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from localctx.models.token_controls import LogitsProcessor, likeliest

COLDEST = 1e-6  # lower temperatures are greedy, because float32 cannot divide by much less


class Sampler:
    """Chooses the next token. With a ``temperature`` of 0 (or below COLDEST) it takes the likeliest token (greedy).
    ``top_k`` 0 and ``top_p`` 1 switch these filters off. The same ``seed`` gives the same tokens. ``processors`` change
    the logits first.

    If ``top`` is given, ``logprobs`` holds the log-probability of the last chosen token, and the ``top`` likeliest
    tokens at that step with their log-probabilities. These are computed from the logits before ``processors``.
    """

    def __init__(
        self,
        temperature: float = 0,
        top_p: float = 1,
        top_k: int = 0,
        seed: int | None = None,
        processors: Sequence[LogitsProcessor] = (),
        top: int | None = None,
    ) -> None:
        self._processors, self._top = processors, top
        self.logprobs: tuple[float, list[tuple[int, float]]] | None = None
        self.greedy = temperature < COLDEST
        self._temperature, self._top_p, self._top_k = temperature, top_p, top_k
        self._total, self._tokens = 0.0, 0
        self._random = torch.Generator()
        if seed is None:
            self._random.seed()
        else:
            self._random.manual_seed(seed)

    @property
    def likelihood(self) -> float:
        """The mean log-likelihood, in nats, of the tokens that were chosen greedily; 0 if none were."""
        return self._total / max(1, self._tokens)

    def __call__(self, logits: Tensor) -> int:
        """Returns the next token for logits [vocabulary]."""
        own = logits
        for processor in self._processors:
            logits = processor(logits)
        token = self._choose(logits)
        for processor in self._processors:
            processor.accept(token)
        self.logprobs = None if self._top is None else likeliest(own, token, self._top)
        return token

    def _choose(self, logits: Tensor) -> int:
        if self.greedy:
            return self._likeliest(logits.float().cpu().numpy())
        scores = logits.float().cpu() / self._temperature
        if self._top_k:
            least = scores.topk(min(self._top_k, len(scores))).values[-1]
            scores = scores.masked_fill(scores < least, -torch.inf)
        if self._top_p < 1:
            scores = _nucleus(scores, self._top_p)
        return int(torch.multinomial(scores.softmax(-1), 1, generator=self._random))

    def _likeliest(self, logits: np.ndarray) -> int:
        """Returns the likeliest token and updates the likelihood. Uses numpy, because torch splits even this small row
        over threads. If other programs or llama.cpp's threads are busy, waiting takes far longer than the work.
        """
        token = int(logits.argmax())
        self._total -= float(np.log(np.exp(logits - logits[token]).sum()))
        self._tokens += 1
        return token


def _nucleus(scores: Tensor, top_p: float) -> Tensor:
    """Mask the least likely tokens, whose probabilities sum to at most 1 - ``top_p`` (top-p sampling, arXiv
    1904.09751).
    """
    rising, order = scores.sort()
    unlikely = rising.softmax(-1).cumsum(-1) <= 1 - top_p
    unlikely[-1] = False
    return scores.masked_fill(unlikely.scatter(0, order, unlikely), -torch.inf)
