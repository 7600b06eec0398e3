"""Rotary positions (RoPE) of a transformers module: put into it, and seen in what it computes."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor

from localctx.models.rope import Angles, ModelRope, Pairs, Positions, said_of

_PROBE = 17  # positions between the two keys that show how a layer turns


def apply_positions(module: Any, config: Any, said: Positions) -> None:
    """Put ``said`` into ``config``, and build the rotary embeddings of ``module`` anew from it where it is news."""
    if said == said_of(config):
        return
    for name, value in deepcopy(said).items():
        setattr(config, name, value)
    for parent, name, old in [*_rotaries(module, config)]:
        setattr(parent, name, type(old)(config).to(module.device))


def _rotaries(module: Any, config: Any) -> Iterator[tuple[Any, str, Any]]:
    for parent in module.modules():
        for name, child in parent.named_children():
            if hasattr(child, "rope_type") and getattr(child, "config", None) is config:
                yield parent, name, child


def rope_of(module: Any, config: Any, said: Positions, keys_at: Callable[[int], list[Tensor]]) -> ModelRope:
    """How keys turn in ``module``, which computes by ``said`` now.

    How a layer turns (which channels are pairs, or not at all) is not known from its config; it is seen in two keys
    of the same token. ``keys_at(position)`` computes them: what rotates of one token, [H, 1, D], layer by layer.
    """
    rotary = next((rotary for _, _, rotary in _rotaries(module, config)), None)
    kinds = getattr(config, "layer_types", None) or ["full_attention"] * config.num_hidden_layers
    by_kind = {kind: _angles(rotary, kind) for kind in {*kinds}}
    angles = [by_kind[kind] for kind in kinds]
    biases = [_bias(attention) for attention in _attentions(module, len(kinds))]
    return ModelRope(said, angles, biases, lambda: _layouts(angles, keys_at))


def _angles(rotary: Any, kind: str) -> Angles:
    if rotary is None:  # it turns elsewhere, or not at all: that is seen
        return Angles(torch.empty(0), 1.0)
    prefix = f"{kind}_" if hasattr(rotary, f"{kind}_inv_freq") else ""
    return Angles(*(getattr(rotary, prefix + name) for name in ("inv_freq", "attention_scaling")))


def _layouts(angles: list[Angles], keys_at: Callable[[int], list[Tensor]]) -> list[Pairs | None]:
    seen = zip(angles, keys_at(0), keys_at(_PROBE), strict=True)
    return [_layout(_PROBE * mine.frequencies, here, there) for mine, here, there in seen]


def _layout(angle: Tensor, here: Tensor, there: Tensor) -> Pairs | None:
    turned = {pairs: pairs.rotate(here.float(), angle.cos(), angle.sin()) for pairs in Pairs}
    nearest = min(turned, key=lambda pairs: _distance(turned[pairs], there))
    # bf16 is off by 0.004; a key of zeros shows nothing
    return nearest if here.any() and _distance(turned[nearest], there) < 0.05 else None


def _distance(a: Tensor, b: Tensor) -> float:
    return float((a.float() - b.float()).norm() / b.float().norm().clamp_min(1e-30))


def _attentions(module: Any, layers: int) -> list[Any]:
    """The attention of each layer, or None where it has no ``k_proj`` of its own."""
    found = {m.layer_idx: m for m in module.modules() if hasattr(m, "layer_idx") and hasattr(m, "k_proj")}
    return [found.get(i) for i in range(layers)]


def _bias(attention: Any) -> Tensor | None:
    """What ``k_proj`` adds to every key before it turns, [kv_heads, D] float32; None for nothing."""
    bias = getattr(getattr(attention, "k_proj", None), "bias", None)
    if bias is None or not bias.any() or any("norm" in name for name, _ in attention.named_children()):
        return None
    return bias.detach().float().unflatten(0, (-1, attention.head_dim))
