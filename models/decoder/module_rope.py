"""RoPE of a transformers module: changing its scaling, and detecting how it rotates keys."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor

from localctx.models.architecture.geometry import layer_map
from localctx.models.decoder.rope import Angles, ModelRope, Positions, RopeLayout, positions_of

_PROBE = 17  # positions between the two keys that show how a layer rotates


def apply_positions(module: Any, config: Any, positions: Positions) -> None:
    """Set the attributes ``positions`` (RoPE parameters and window lengths) in ``config``. If they changed, also
    rebuild the rotary embeddings of ``module``.
    """
    if positions == positions_of(config):
        return
    for name, value in deepcopy(positions).items():
        setattr(config, name, value)
    for parent, name, old in [*_rotaries(module, config)]:
        setattr(parent, name, type(old)(config).to(module.device))


def _rotaries(module: Any, config: Any) -> Iterator[tuple[Any, str, Any]]:
    for parent in module.modules():
        for name, child in parent.named_children():
            if hasattr(child, "rope_type") and getattr(child, "config", None) is config:
                yield parent, name, child


def rope_of(module: Any, config: Any, positions: Positions, keys_at: Callable[[int], list[Tensor]]) -> ModelRope:
    """Returns the RoPE of ``module``, whose config currently has the RoPE parameters and window lengths ``positions``.

    A config does not say which channels a layer rotates as pairs, so this is measured on two keys of the same token.
    ``keys_at(position)`` returns the rotated key of a token at that position, [H, 1, D] for each layer.
    """
    rotary = next((rotary for _, _, rotary in _rotaries(module, config)), None)
    kinds = getattr(config, "layer_types", None) or ["full_attention"] * config.num_hidden_layers
    makers = layer_map(config).makers
    by_kind = {kind: _angles(rotary, kind) for kind in {kinds[layer] for layer in makers}}
    angles = [by_kind[kinds[layer]] for layer in makers]
    attentions = _attentions(module)
    biases = [_bias(attentions.get(layer)) for layer in makers]
    return ModelRope(positions, angles, biases, lambda: _layouts(angles, keys_at))


def _angles(rotary: Any, kind: str) -> Angles:
    prefix = f"{kind}_" if hasattr(rotary, f"{kind}_inv_freq") else ""
    if not hasattr(rotary, f"{prefix}inv_freq"):  # keys are rotated elsewhere or not at all; ``_layouts`` detects it
        return Angles(torch.empty(0), 1.0)
    return Angles(*(getattr(rotary, prefix + name) for name in ("inv_freq", "attention_scaling")))


def _layouts(angles: list[Angles], keys_at: Callable[[int], list[Tensor]]) -> list[RopeLayout | None]:
    keys = zip(angles, keys_at(0), keys_at(_PROBE), strict=True)
    return [_layout(_PROBE * own.frequencies, first, later) for own, first, later in keys]


def _layout(angle: Tensor, first: Tensor, later: Tensor) -> RopeLayout | None:
    """Returns the RopeLayout in which rotating the key ``first`` by ``angle`` gives the key ``later``; None if no
    layout comes close.
    """
    rotated = {pairs: pairs.rotate(first.float(), angle.cos(), angle.sin()) for pairs in RopeLayout}
    nearest = min(rotated, key=lambda pairs: _distance(rotated[pairs], later))
    # bf16 differs by 0.004; an all-zero key shows nothing
    return nearest if first.any() and _distance(rotated[nearest], later) < 0.05 else None


def _distance(a: Tensor, b: Tensor) -> float:
    return float((a.float() - b.float()).norm() / b.float().norm().clamp_min(1e-30))


def _attentions(module: Any) -> dict[int, Any]:
    """Returns the attention modules that have their own ``k_proj``, by layer index."""
    return {m.layer_idx: m for m in module.modules() if hasattr(m, "layer_idx") and hasattr(m, "k_proj")}


def _bias(attention: Any) -> Tensor | None:
    """Returns the bias [kv_heads, D] float32 that ``k_proj`` adds to every key before RoPE. None if there is no bias,
    or if the attention module has a norm.
    """
    bias = getattr(getattr(attention, "k_proj", None), "bias", None)
    if bias is None or not bias.any() or any("norm" in name for name, _ in attention.named_children()):
        return None
    return bias.detach().float().unflatten(0, (-1, attention.head_dim))
