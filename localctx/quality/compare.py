"""Compares a model's predictions over two KV caches: KL divergence, top-1 agreement, perplexity."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Forward = Callable[[Sequence[int], int], Tensor]
"""``forward(tokens, n)`` reads tokens and returns the logits [n, vocabulary] of the last ``n``."""

SCORED = 1000  # number of last tokens whose successors are predicted and compared
STEP = 48  # tokens per scored step; few, so that attention goes mostly to the cache
EVEN = 16  # token counts are multiples of this: peers pack up to four tokens' codes into a byte
MIN_TOKENS = 256


@dataclass(frozen=True)
class Divergence:
    """The divergence of predictions from those in full precision: the Kullback-Leibler divergence in nats (mean and
    99th percentile) and the top-1 agreement. Also the perplexity of the text.
    """

    kl_mean: float
    kl_p99: float
    top1: float
    perplexity: float


def split(tokens: int) -> int:
    """Returns the number of ``tokens`` (a multiple of EVEN) before the scored ones. SCORED tokens are scored, or half
    of a shorter text.
    """
    return tokens - min(SCORED, tokens // 2)


def score(forward: Forward, tokens: Sequence[int], first: int) -> list[Tensor]:
    """Returns log probabilities [up to STEP, vocabulary] for each step over ``tokens[first:]``. The model must have
    read ``tokens[:first]`` before.
    """
    steps = [tokens[at : at + STEP] for at in range(first, len(tokens), STEP)]
    return [forward(step, len(step)).log_softmax(-1) for step in steps]


def compare(reference: Sequence[Tensor], logs: Sequence[Tensor], targets: Sequence[int]) -> Divergence:
    """Returns the divergence of ``logs`` from ``reference``, both from ``score``. ``targets`` are
    the true next tokens.
    """
    pairs = [(p.double(), q.double()) for p, q in zip(reference, logs, strict=True)]
    divergence = torch.cat([(p.exp() * (p - q)).nan_to_num().sum(-1) for p, q in pairs]).clamp_min(0)
    agree = torch.cat([p.argmax(-1) == q.argmax(-1) for p, q in pairs])
    nll = negative_log_likelihood(logs, targets).mean()
    return Divergence(
        divergence.mean().item(), divergence.quantile(0.99).item(), agree.double().mean().item(), math.exp(nll)
    )


def negative_log_likelihood(logs: Sequence[Tensor], targets: Sequence[int]) -> Tensor:
    """Returns -log p of each target in nats, float64 [targets], on the CPU."""
    rows = zip(logs, torch.tensor(targets).split([len(log) for log in logs]), strict=True)
    return torch.cat([-log.cpu().gather(1, t[:, None])[:, 0].double() for log, t in rows])
