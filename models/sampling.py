"""The next token from logits: greedy, or sampled through transformers' logits processors."""

import torch
from torch import Tensor


class Sampler:
    """``temperature`` 0 is greedy; ``top_k`` 0 and ``top_p`` 1 cut nothing. The same ``seed`` gives the same tokens.

    ``repetition_penalty`` above 1 makes tokens of this answer less likely to come again; those of the document are
    free (CTRL, arXiv:1909.05858). One sampler is for one answer.
    """

    def __init__(
        self,
        temperature: float = 0,
        top_p: float = 1,
        top_k: int = 0,
        seed: int | None = None,
        repetition_penalty: float = 1,
    ) -> None:
        from transformers.generation import logits_process as lp

        self.greedy = temperature == 0
        self._random = torch.Generator()
        self._answer = list[int]()
        if seed is None:
            self._random.seed()
        else:
            self._random.manual_seed(seed)
        self._processors = lp.LogitsProcessorList()
        if repetition_penalty != 1:
            self._processors.append(lp.RepetitionPenaltyLogitsProcessor(float(repetition_penalty)))
        if not self.greedy:
            self._processors.append(lp.TemperatureLogitsWarper(float(temperature)))
        if top_k:
            self._processors.append(lp.TopKLogitsWarper(top_k))
        if top_p < 1:
            self._processors.append(lp.TopPLogitsWarper(top_p))

    def __call__(self, logits: Tensor) -> int:
        """The next token, given its logits [vocabulary]."""
        answer = torch.LongTensor([self._answer])
        scores = self._processors(answer, torch.FloatTensor(logits.float().cpu())[None])[0]
        drawn = scores.argmax() if self.greedy else torch.multinomial(scores.softmax(-1), 1, generator=self._random)
        self._answer.append(int(drawn))
        return self._answer[-1]
