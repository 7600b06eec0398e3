"""The next token from logits: greedy, or sampled through transformers' logits processors."""

import torch
from torch import Tensor


class Sampler:
    """``temperature`` 0 is greedy; ``top_k`` 0 and ``top_p`` 1 cut nothing. The same ``seed`` gives the same tokens."""

    def __init__(self, temperature: float = 0, top_p: float = 1, top_k: int = 0, seed: int | None = None) -> None:
        from transformers.generation import logits_process as lp

        self.greedy = temperature == 0
        self._random = torch.Generator()
        self._unread = torch.LongTensor(1, 0)  # the context, at which none of these processors looks
        if seed is None:
            self._random.seed()
        else:
            self._random.manual_seed(seed)
        self._processors = lp.LogitsProcessorList()
        if not self.greedy:
            self._processors.append(lp.TemperatureLogitsWarper(float(temperature)))
        if top_k:
            self._processors.append(lp.TopKLogitsWarper(top_k))
        if top_p < 1:
            self._processors.append(lp.TopPLogitsWarper(top_p))

    def __call__(self, logits: Tensor) -> int:
        """The next token, given its logits [vocabulary]."""
        if self.greedy:
            return int(logits.argmax())
        scores = self._processors(self._unread, torch.FloatTensor(logits.float().cpu())[None])
        return int(torch.multinomial(scores.softmax(-1)[0], 1, generator=self._random))
