"""Rotary positions (RoPE) of a transformers model: how far they reach, and how the cache moves keys along them."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from enum import Enum
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from localctx.errors import ModelError, UsageError
from localctx.settings import ROPE

Positions = dict[str, Any]
"""What a config says of positions: see ``said_of``."""

MOST = 128  # times the trained window; nobody has measured a model that follows further
_LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}  # what every Llama 3 was trained with
_SAID = ("rope_parameters", "max_position_embeddings", "original_max_position_embeddings")
_PROBE = 17  # positions between the two keys that show how a layer turns


def parse_rope(spec: str) -> tuple[str, float] | None:
    """``yarn:4`` is ("yarn", 4.0): four times the trained window. None for ``auto``, the window as trained.

    YaRN (arXiv 2309.00071), linear interpolation (arXiv 2306.15595), Llama 3.1's rule. Raises UsageError.
    """
    if spec == "auto":
        return None
    said = ROPE.fullmatch(spec)
    if not said or not 1 < float(said[2]) <= MOST:
        raise UsageError(f"there is no RoPE {spec!r}", f"use auto, yarn:2, linear:2 or llama3:8; up to {MOST} times")
    return said[1], float(said[2])


def said_of(config: Any) -> Positions:
    """What a transformers config says of positions: the attributes that ``stretched`` changes."""
    return {name: deepcopy(getattr(config, name)) for name in _SAID if hasattr(config, name)}


def stretched(said: Positions, spec: str) -> Positions:
    """``said`` as ``spec`` wants it. Of two kinds of layers only those that see everything are stretched.

    LongRoPE (arXiv 2402.13753) has frequencies for short and for long texts, and transformers changes them with the
    length: keys of both would meet in one cache. One is chosen for all lengths: the long where the window is longer
    than the original, for that is what such a window promises. Raises UsageError, ModelError.
    """
    said, asked = deepcopy(said), parse_rope(spec)
    params = said.get("rope_parameters") or {}
    rope = params["full_attention"] if isinstance(params.get("full_attention"), dict) else params
    if asked:
        _stretch(said, rope, *asked)
    if rope.get("rope_type") == "longrope":
        long = said["max_position_embeddings"] > rope["original_max_position_embeddings"]
        rope["short_factor"] = rope["long_factor"] = rope["long_factor" if long else "short_factor"]
    return said


def _stretch(said: dict[str, Any], rope: dict[str, Any], kind: str, factor: float) -> None:
    if (now := rope.get("rope_type")) != "default":
        is_so = f"stretched already ({now})" if now else "not rotary"
        raise ModelError(f"this model's positions are {is_so}", "leave --rope at auto")
    trained = said["max_position_embeddings"]
    original = {} if kind == "linear" else {"original_max_position_embeddings": trained}
    rope |= {"rope_type": kind, "factor": factor, **original, **(_LLAMA3 if kind == "llama3" else {})}
    said |= {name: trained for name in original if name in said}  # Phi-3's config says it twice
    said["max_position_embeddings"] = int(trained * factor)


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


class ModelRope:
    """See ``localctx.kv.rope.Rope``. In a latent layer it is v that rotates: there ``turn`` is given v [1, T, v_dim].

    How a layer turns (which channels are pairs, or not at all) is not known from its config; it is seen in two keys
    of the same token. ``keys_at(position)`` computes them: what rotates of one token, [H, 1, D], layer by layer.
    ``said``: what the config says of positions, while keys turn like this.
    """

    def __init__(self, module: Any, config: Any, said: "Positions", keys_at: Callable[[int], list[Tensor]]) -> None:
        self.said, self._keys_at = said, keys_at
        self._rotary = next((rotary for _, _, rotary in _rotaries(module, config)), None)
        self._kinds = getattr(config, "layer_types", None) or ["full_attention"] * config.num_hidden_layers
        self._angles: dict[str, _Angles] = {}
        self._biases = [_bias(a) for a in _attentions(module, len(self._kinds))]

    def turn(self, layer: int, k: Tensor, by: int) -> Tensor:
        """See ``Rope``. Computed in float32; of ``k``'s type. Raises ModelError where it cannot be followed."""
        pairs = self._layouts[layer]
        if pairs is None:
            raise ModelError("this model turns its keys in a way localctx cannot follow", "leave keep and blend alone")
        angle = by * self._of(layer).frequencies.double()
        return pairs.rotate(k.float(), angle.cos().float(), angle.sin().float()).to(k.dtype)

    def has_bias(self, layer: int) -> bool:
        """See ``Rope``. A bias that a norm follows is no longer the same for every key: that is none."""
        return self._biases[layer] is not None and self._layouts[layer] is not None

    def bias_keys(self, layer: int, positions: Tensor) -> Tensor:
        """See ``Rope``."""
        bias, pairs = self._biased(layer)
        cos, sin = self._of(layer).at(positions)
        scale = self._of(layer).scale
        return pairs.rotate(bias[:, None].expand(-1, len(positions), -1), cos * scale, sin * scale)

    def bias_scores(self, layer: int, q: Tensor, positions: Tensor) -> Tensor:
        """See ``Rope``: q R(p) b = cos(p) (q b) + sin(p) (q rot(b)), two products of small matrices."""
        bias, pairs = self._biased(layer)
        q, bias = q.float(), bias.repeat_interleave(len(q) // len(bias), 0)
        cos, sin = self._of(layer).at(positions)
        (qa, qb, q_rest), (ba, bb, b_rest) = pairs.split(q, cos.shape[1]), pairs.split(bias, cos.shape[1])
        cos, sin = cos[:, : qa.shape[1]], sin[:, : qa.shape[1]]  # none in a layer that does not turn
        turned = (qa * ba + qb * bb) @ cos.T + (qb * ba - qa * bb) @ sin.T
        return turned * self._of(layer).scale + (q_rest * b_rest).sum(1, keepdim=True)

    def _biased(self, layer: int) -> "tuple[Tensor, _Pairs]":
        bias, pairs = self._biases[layer], self._layouts[layer]
        assert bias is not None, "ask has_bias first"
        assert pairs is not None, "ask has_bias first"
        return bias, pairs

    def _of(self, layer: int) -> "_Angles":
        kind = self._kinds[layer]
        if kind not in self._angles:
            prefix = f"{kind}_" if hasattr(self._rotary, f"{kind}_inv_freq") else ""
            said = (getattr(self._rotary, prefix + name) for name in ("inv_freq", "attention_scaling"))
            self._angles[kind] = _Angles(*said)
        return self._angles[kind]

    @cached_property
    def _layouts(self) -> "list[_Pairs | None]":
        here, there = self._keys_at(0), self._keys_at(_PROBE)
        return [self._seen(layer, here[layer], there[layer]) for layer in range(len(here))]

    def _seen(self, layer: int, here: Tensor, there: Tensor) -> "_Pairs | None":
        angle = _PROBE * self._of(layer).frequencies
        turned = {pairs: pairs.rotate(here.float(), angle.cos(), angle.sin()) for pairs in (STILL, HALVES, NEIGHBOURS)}
        nearest = min(turned, key=lambda pairs: _distance(turned[pairs], there))
        # bf16 is off by 0.004; a key of zeros shows nothing
        return nearest if here.any() and _distance(turned[nearest], there) < 0.05 else None


class _Pairs(Enum):
    """Which channels turn together: none, i and i + n/2 (Llama), or 2i and 2i + 1 (GPT-J). The rest do not turn."""

    STILL, HALVES, NEIGHBOURS = range(3)

    def split(self, x: Tensor, pairs: int) -> tuple[Tensor, Tensor, Tensor]:
        """The first and the second of each of ``pairs`` pairs, and the channels that do not turn."""
        if self is STILL:
            return x[..., :0], x[..., :0], x
        turning, rest = x[..., : 2 * pairs], x[..., 2 * pairs :]
        a, b = (turning[..., ::2], turning[..., 1::2]) if self is NEIGHBOURS else turning.chunk(2, -1)
        return a, b, rest

    def rotate(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x [..., T, D] turned by angles whose cosines and sines are [T, pairs] or [pairs]."""
        if self is STILL:
            return x
        a, b, rest = self.split(x, cos.shape[-1])
        a, b = a * cos - b * sin, b * cos + a * sin
        turned = torch.stack((a, b), -1).flatten(-2) if self is NEIGHBOURS else torch.cat((a, b), -1)
        return torch.cat((turned, rest), -1)


STILL, HALVES, NEIGHBOURS = _Pairs


class _Angles:
    """Cosines and sines of the positions, float32, for every layer of one kind. ``scale`` multiplies both (YaRN)."""

    def __init__(self, frequencies: Tensor, scale: float) -> None:
        self.frequencies, self.scale = frequencies.float(), scale
        self._cos = self._sin = self.frequencies.new_empty(0, len(frequencies))

    def at(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines [T, pairs] of ``positions`` [T]. A run of positions is a view of the table."""
        first, last = int(positions[0]), int(positions[-1])
        self._grow(int(positions.max()) + 1)
        run = last - first + 1 == len(positions) and bool((positions.diff() == 1).all())
        rows = slice(first, last + 1) if run else positions
        return self._cos[rows], self._sin[rows]

    def _grow(self, need: int) -> None:
        if need > len(self._cos):
            n = max(need, 2 * len(self._cos), 1024)
            angle = torch.arange(n, device=self.frequencies.device).float()[:, None] * self.frequencies
            self._cos, self._sin = angle.cos(), angle.sin()


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
