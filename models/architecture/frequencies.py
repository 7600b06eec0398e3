"""RoPE frequencies: the angle by which each pair of channels rotates from one position to the next."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

KINDS: dict[str, set[str]] = {
    "default": set(),
    "linear": {"factor"},
    "llama3": {"factor", "low_freq_factor", "high_freq_factor"},
    "yarn": {"factor"},
}
"""The RoPE types implemented here, with the parameters each requires."""

KNOWN = {
    *("rope_type", "type", "rope_theta", "factor", "original_max_position_embeddings", "low_freq_factor"),
    *("high_freq_factor", "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"),
}


def frequencies(rope: Mapping[str, Any], dim: int) -> tuple[Tensor, float]:
    """Returns the RoPE frequencies [dim / 2] float32, and a factor for cosines and sines, for heads of ``dim``
    channels. ``rope`` is the ``rope_parameters`` of a config.
    """
    kind, waves = rope["rope_type"], rope["rope_theta"] ** (torch.arange(0, dim, 2).float() / dim)
    if kind == "linear":  # position interpolation, arXiv 2306.15595
        return 1 / waves / rope["factor"], 1.0
    if kind == "llama3":
        return _llama3(1 / waves, rope), 1.0
    if kind == "yarn":
        return _yarn(waves, rope, dim), _yarn_scale(rope)
    assert kind == "default", kind
    return 1 / waves, 1.0


def _llama3(plain: Tensor, rope: Mapping[str, Any]) -> Tensor:
    """Scale low frequencies fully, medium ones in part and high ones not at all (Llama 3.1)."""
    low, high, trained = (
        rope[name] for name in ("low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
    )
    waves = 2 * math.pi / plain
    share = ((trained / waves - low) / (high - low)).clamp(0, 1)
    return (1 - share) * plain / rope["factor"] + share * plain


def _yarn(waves: Tensor, rope: Mapping[str, Any], dim: int) -> Tensor:
    """Keep high frequencies, scale those of channels that never complete a rotation, and blend in between (YaRN, arXiv
    2309.00071).
    """
    first, last = (_channel(rope, dim, rope.get(name) or n) for name, n in (("beta_fast", 32), ("beta_slow", 1)))
    if rope.get("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, dim - 1)
    last += 0.001 * (first == last)
    kept = 1 - ((torch.arange(dim // 2).float() - first) / (last - first)).clamp(0, 1)
    return 1 / (rope["factor"] * waves) * (1 - kept) + 1 / waves * kept


def _channel(rope: Mapping[str, Any], dim: int, rounds: float) -> float:
    """Returns the (fractional) channel that rotates ``rounds`` times within the trained window."""
    trained = rope["original_max_position_embeddings"]
    return dim * math.log(trained / (rounds * 2 * math.pi)) / (2 * math.log(rope["rope_theta"]))


def _yarn_scale(rope: Mapping[str, Any]) -> float:
    if rope.get("attention_factor") is not None:
        return rope["attention_factor"]

    def scale(by: float) -> float:
        return 0.1 * by * math.log(rope["factor"]) + 1 if rope["factor"] > 1 else 1.0

    above, below = rope.get("mscale"), rope.get("mscale_all_dim")
    return scale(above) / scale(below) if above and below else scale(1)
