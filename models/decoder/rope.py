"""RoPE of a model: scaling it to a longer window, and re-rotating keys."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from enum import Enum
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from localctx.errors import ModelError
from localctx.kernels.cpu.key_bias import KeyBias
from localctx.settings import parse_rope
from localctx.shape import PAGE

Positions = dict[str, Any]
"""A config's attributes about positions: see ``positions_of``."""

_LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}  # every Llama 3 was trained with these
_POSITION_NAMES = ("rope_parameters", "max_position_embeddings", "original_max_position_embeddings")


def positions_of(config: Any) -> Positions:
    """Returns the attributes of a transformers config that concern positions: RoPE parameters and window lengths.
    ``scale_positions`` changes them.
    """
    return {name: deepcopy(getattr(config, name)) for name in _POSITION_NAMES if hasattr(config, name)}


def scale_positions(positions: Positions, spec: str) -> Positions:
    """Returns ``positions``, a config's RoPE parameters and window lengths, after the RoPE scaling ``spec`` (such as
    ``yarn:2``). In a model with sliding layers, only full-attention layers are scaled.

    LongRoPE (arXiv 2402.13753) has frequencies for short and for long texts. transformers switches between them by
    length, so one cache would hold keys of both. Here one set applies to all lengths: the long one if the window is
    longer than the original. Raises UsageError, ModelError.
    """
    positions, scaling = deepcopy(positions), parse_rope(spec)
    params = positions.get("rope_parameters") or {}
    rope = params["full_attention"] if isinstance(params.get("full_attention"), dict) else params
    if scaling:
        _scale(positions, rope, *scaling)
    if rope.get("rope_type") == "longrope":
        long = positions["max_position_embeddings"] > rope["original_max_position_embeddings"]
        rope["short_factor"] = rope["long_factor"] = rope["long_factor" if long else "short_factor"]
    return positions


def _scale(positions: dict[str, Any], rope: dict[str, Any], kind: str, factor: float) -> None:
    if (now := rope.get("rope_type")) != "default":
        reason = f"stretched already ({now})" if now else "not rotary"
        raise ModelError(f"this model's positions are {reason}", "use --rope auto")
    trained = positions["max_position_embeddings"]
    original = {} if kind == "linear" else {"original_max_position_embeddings": trained}
    rope |= {"rope_type": kind, "factor": factor, **original, **(_LLAMA3 if kind == "llama3" else {})}
    positions |= {name: trained for name in original if name in positions}  # Phi-3's config stores it twice
    positions["max_position_embeddings"] = int(trained * factor)


class ModelRope:
    """The rotary embedding of one model. It moves rotated keys to other positions: rotating a key by d more positions
    gives the key d positions later.

    ``positions`` are the config's RoPE parameters and window lengths. The other arguments have an item for each layer.
    ``angles`` are the rotations. ``biases`` are the biases that k_proj adds to every key before RoPE, [H, D] float32,
    or None. ``layouts`` is called when first needed; it returns which channels rotate as pairs, or None where that is
    unknown. In a latent layer (MLA) the rotated part of a token is in its values, so ``rerotate`` is given v [1, T,
    v_dim].
    """

    def __init__(
        self,
        positions: "Positions",
        angles: "Sequence[Angles]",
        biases: Sequence[Tensor | None],
        layouts: "Callable[[], Sequence[RopeLayout | None]]",
    ) -> None:
        self.positions, self.angles, self._biases, self._find_layouts = positions, angles, biases, layouts

    def rerotate(self, layer: int, k: Tensor, by: int) -> Tensor:
        """Returns the rotated keys k [kv_heads, T, k_dim] as they would be ``by`` positions later (earlier if
        negative). Computes in float32, and returns ``k``'s dtype. Raises ModelError if it is unknown which channels of
        the layer rotate as pairs.
        """
        pairs = self._layouts[layer]
        if pairs is None:
            raise ModelError("localctx cannot rotate the keys of this model", "use --keep full and --blend off")
        angle = by * self.angles[layer].frequencies.double()
        return pairs.rotate(k.float(), angle.cos().float(), angle.sin().float()).to(k.dtype)

    def has_bias(self, layer: int) -> bool:
        """Returns True if this layer's k_proj adds a bias to every key. False if a norm follows the bias, because the
        effect of the bias then differs between keys.
        """
        return self._biases[layer] is not None and self._layouts[layer] is not None

    def bias_keys(self, layer: int, positions: Tensor) -> Tensor:
        bias, pairs = self._biased(layer)
        cos, sin = self.angles[layer].at(positions)
        scale = self.angles[layer].scale
        return pairs.rotate(bias[:, None].expand(-1, len(positions), -1), cos * scale, sin * scale)

    def key_bias(self, layers: Sequence[int], starts: Tensor) -> KeyBias:
        """Returns the bias of k_proj in the rotated keys of whole pages, for kernels that add it to stored keys. The
        first keys of the pages are at the positions ``starts`` [layers, n] int64. The bias is 0 for a layer without
        one. All ``layers`` have the same RoPE frequencies and pairs. ``KeyBias.starts`` is [layers, H, n, D].
        """
        biases = [self._biases[layer] for layer in layers]
        known, angles = next(bias for bias in biases if bias is not None), self.angles[layers[0]]
        pairs = self._layouts[layers[0]]
        assert pairs is not None, "ask has_bias first"
        stacked = torch.stack([torch.zeros_like(known) if b is None else b for b in biases])[:, :, None]
        cos, sin = (turns[:, None] * angles.scale for turns in angles.at_each(starts))
        keys = pairs.rotate(stacked.expand(-1, -1, starts.shape[1], -1), cos, sin)
        first, second, still = pairs.channels(keys.shape[3], cos.shape[3])
        turns = angles.in_page[: 2 * len(first)]  # none in a layer without RoPE
        return KeyBias(keys.clone(memory_format=torch.contiguous_format).numpy(), turns, first, second, still)

    def bias_scores(self, layer: int, q: Tensor, positions: Tensor) -> Tensor:
        """Returns the dot products of q [Hq, D] with the rotated bias of k_proj at ``positions`` [T]: [Hq, T] float32,
        not scaled. As q R(p) b = cos(p) (q b) + sin(p) (q rot(b)), two products of small matrices suffice.
        """
        bias, pairs = self._biased(layer)
        q, bias = q.float(), bias.repeat_interleave(len(q) // len(bias), 0)
        cos, sin = self.angles[layer].at(positions)
        (qa, qb, q_rest), (ba, bb, b_rest) = pairs.split(q, cos.shape[1]), pairs.split(bias, cos.shape[1])
        cos, sin = cos[:, : qa.shape[1]], sin[:, : qa.shape[1]]  # empty in a layer without RoPE
        rotated = (qa * ba + qb * bb) @ cos.T + (qb * ba - qa * bb) @ sin.T
        return rotated * self.angles[layer].scale + (q_rest * b_rest).sum(1, keepdim=True)

    def _biased(self, layer: int) -> "tuple[Tensor, RopeLayout]":
        bias, pairs = self._biases[layer], self._layouts[layer]
        assert bias is not None, "ask has_bias first"
        assert pairs is not None, "ask has_bias first"
        return bias, pairs

    @cached_property
    def _layouts(self) -> "Sequence[RopeLayout | None]":
        return self._find_layouts()


class RopeLayout(Enum):
    """Says which channels of a key rotate together as a pair: none, i and i + n/2 (Llama), or 2i and 2i + 1 (GPT-J).
    Further channels do not rotate.
    """

    STILL, HALVES, NEIGHBOURS = range(3)

    def split(self, x: Tensor, pairs: int) -> tuple[Tensor, Tensor, Tensor]:
        """Split x into the first channels and the second channels of ``pairs`` pairs, and the channels that do not
        rotate.
        """
        if self is STILL:
            return x[..., :0], x[..., :0], x
        rotating, rest = x[..., : 2 * pairs], x[..., 2 * pairs :]
        a, b = (rotating[..., ::2], rotating[..., 1::2]) if self is NEIGHBOURS else rotating.chunk(2, -1)
        return a, b, rest

    def channels(self, dim: int, pairs: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns the indices (int64) of the channels that ``split`` returns, for a key of ``dim`` channels with
        ``pairs`` pairs.
        """
        first, second, rest = self.split(torch.arange(dim), pairs)
        return first.clone().numpy(), second.clone().numpy(), rest.clone().numpy()

    def rotate(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Returns x [..., T, D] rotated by angles with cosines and sines [T, pairs] or [pairs]."""
        if self is STILL:
            return x
        a, b, rest = self.split(x, cos.shape[-1])
        a, b = a * cos - b * sin, b * cos + a * sin
        rotated = torch.stack((a, b), -1).flatten(-2) if self is NEIGHBOURS else torch.cat((a, b), -1)
        return torch.cat((rotated, rest), -1)


STILL, HALVES, NEIGHBOURS = RopeLayout


class Angles:
    """The cosines and sines of RoPE by position, float32. Layers with the same frequencies share one object. The caller
    multiplies cosines and sines by ``scale`` (YaRN).
    """

    def __init__(self, frequencies: Tensor, scale: float) -> None:
        self.frequencies, self.scale = frequencies.float(), scale
        self._cos = self._sin = self.frequencies.new_empty(0, len(frequencies))

    def at(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Returns cosines and sines [T, pairs] of ``positions`` [T], without ``scale``. For consecutive positions the
        result is a view of a shared table and must not be modified.
        """
        first, last = int(positions[0]), int(positions[-1])
        self._grow(int(positions.max()) + 1)
        run = last - first + 1 == len(positions) and bool((positions.diff() == 1).all())
        rows = slice(first, last + 1) if run else positions
        return self._cos[rows], self._sin[rows]

    def at_each(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Returns cosines and sines [..., pairs] of ``positions``, a tensor of any shape, without ``scale``."""
        self._grow(int(positions.max()) + 1 if positions.numel() else 0)
        return self._cos[positions], self._sin[positions]

    @cached_property
    def in_page(self) -> np.ndarray:
        """The cosines and then the sines [2 * pairs, 64] of positions 0 to 63, the offsets in a page, without
        ``scale``.
        """
        return torch.cat([turns.T for turns in self.at(torch.arange(PAGE))]).contiguous().numpy()

    def _grow(self, need: int) -> None:
        if need > len(self._cos):
            n = max(need, 2 * len(self._cos), 1024)
            angle = torch.arange(n, device=self.frequencies.device).float()[:, None] * self.frequencies
            self._cos, self._sin = angle.cos(), angle.sin()
