"""Weighs words by how rare they are among the sentences of a text (inverse document frequency)."""

import math
from collections.abc import Container, Mapping


def rarity(total: int, count: int) -> float:
    """Returns the weight of a word that ``count`` of ``total`` sentences have."""
    return math.log(1 + total / max(1, count))


def weight_of(words: Container[str], weights: Mapping[str, float]) -> float:
    """Returns the sum of the weights of those of the weighted words that are in ``words``."""
    return sum(weight for word, weight in weights.items() if word in words)


def share_of(words: Container[str], weights: Mapping[str, float]) -> float:
    """Returns the share of the whole weight that ``weight_of`` finds; 0 without weights."""
    return weight_of(words, weights) / sum(weights.values()) if weights else 0.0
