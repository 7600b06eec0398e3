"""Comparing what two caches make a model predict: divergence, agreement, perplexity."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Forward = Callable[[Sequence[int], int], Tensor]
"""``forward(tokens, keep)``: read tokens; logits [keep, vocabulary] of the last."""

SCORED = 1000  # tokens at the end, each read with all before it in the cache, each predicting its successor
STEP = 48  # tokens read at a time there: what is compared are cached keys and values, not those of the same step
EVEN = 16  # tokens are read by multiples of it: peers pack up to four codes to a byte, across tokens
MIN_TOKENS = 256


@dataclass(frozen=True)
class Divergence:
    """From full precision: Kullback-Leibler divergence in nats (mean, 99th percentile) and the share of tokens whose
    likeliest successor is the same; beside it the perplexity of the text itself."""

    kl_mean: float
    kl_p99: float
    top1: float
    perplexity: float


def split(tokens: int) -> int:
    """Of ``tokens`` (a multiple of EVEN), how many are read before the scored ones: all but 1,000, or half of few."""
    return tokens - min(SCORED, tokens // 2)


def score(forward: Forward, tokens: Sequence[int], first: int) -> list[Tensor]:
    """log p [up to STEP, vocabulary] of each step over ``tokens[first:]``; what precedes them was read."""
    steps = [tokens[at : at + STEP] for at in range(first, len(tokens), STEP)]
    return [forward(step, len(step)).log_softmax(-1) for step in steps]


def compare(reference: Sequence[Tensor], logs: Sequence[Tensor], targets: Sequence[int]) -> Divergence:
    """The divergence of ``logs`` from ``reference``, both log p as ``score`` gives them, over the true ``targets``."""
    pairs = [(p.double(), q.double()) for p, q in zip(reference, logs, strict=True)]
    divergence = torch.cat([(p.exp() * (p - q)).nan_to_num().sum(-1) for p, q in pairs]).clamp_min(0)
    agree = torch.cat([p.argmax(-1) == q.argmax(-1) for p, q in pairs])
    nll = surprise(logs, targets).mean()
    return Divergence(
        divergence.mean().item(), divergence.quantile(0.99).item(), agree.double().mean().item(), math.exp(nll)
    )


def surprise(logs: Sequence[Tensor], targets: Sequence[int]) -> Tensor:
    """-log p of each target, in nats: [targets] float64, on the CPU."""
    rows = zip(logs, torch.tensor(targets).split([len(log) for log in logs]), strict=True)
    return torch.cat([-log.cpu().gather(1, t[:, None])[:, 0].double() for log, t in rows])
