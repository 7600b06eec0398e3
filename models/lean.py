"""Few rows through a plain decoder without transformers' modules, whose calls would cost more than the arithmetic."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from localctx.errors import Cancelled
from localctx.kernels.layer import Entry, Exit, enter, leave, normalize
from localctx.kernels.linear import WIDTH, joined
from localctx.models.linear import BlockedLinear
from localctx.models.step import Step

PLAIN = {"LlamaDecoderLayer", "MistralDecoderLayer", "Qwen2DecoderLayer", "Qwen3DecoderLayer"}
"""Layers that are: norm, attention with RoPE, norm, gated silu layers; the same numbers added before and after."""


class Lean:
    """The computation of ``module``, whose linear layers are blocked. Its weights are the module's."""

    def __init__(self, module: Any) -> None:
        self._module, self._eps = module, module.config.rms_norm_eps
        self._layers = [_Layer(layer) for layer in module.model.layers]

    def run(self, step: Step, tokens: Sequence[int], places: Sequence[int]) -> Tensor:
        """Logits [kept, vocabulary] of the kept ones of the ``tokens`` at positions ``places``. Raises Cancelled."""
        model = self._module.model
        x = model.embed_tokens(torch.tensor(tokens))
        cos, sin = (turn[0].numpy() for turn in model.rotary_emb(x, torch.tensor([places])))
        x = x.numpy()
        for i, layer in enumerate(self._layers):
            if step.cancelled():
                raise Cancelled
            shape = step.shape.layers[i]
            sizes = (layer.heads, shape.k_dim), (shape.kv_heads, shape.k_dim), (shape.kv_heads, shape.v_dim)
            q, k, v = (np.empty((len(x), *size), np.float32) for size in sizes)
            enter(x, layer.entry, self._eps, cos, sin, q, k, v)
            rows = [torch.from_numpy(a).transpose(0, 1) for a in (q, k, v)]
            attended = step.attend(i, rows[0], rows[1], rows[2], layer.scale)
            leave(x, attended.transpose(0, 1).flatten(1).contiguous().numpy(), layer.exits, self._eps)
        normed = normalize(x[step.kept], model.norm.weight.numpy(), self._eps)
        return self._module.lm_head(torch.from_numpy(normed))


class _Layer:
    def __init__(self, layer: Any) -> None:
        mine, mlp = layer.self_attn, layer.mlp
        inner = [mine.q_proj, mine.k_proj, mine.v_proj]
        biases = [_floats(part.bias) for part in inner]
        self.heads, self.scale = mine.q_proj.blocks.outputs // mine.head_dim, mine.scaling
        self.entry = Entry(
            _floats(layer.input_layernorm.weight),
            _join(inner),
            np.concatenate(biases),
            *(_floats(getattr(getattr(mine, name, None), "weight", None)) for name in ("q_norm", "k_norm")),
        )
        self.exits = Exit(
            mine.o_proj.blocks,
            _floats(layer.post_attention_layernorm.weight),
            _join([mlp.gate_proj, mlp.up_proj]),
            mlp.down_proj.blocks,
        )


def lean(module: Any) -> Lean | None:
    """None for a module that is not a plain decoder in blocks, or has sizes that fill none."""
    layers = getattr(getattr(module, "model", None), "layers", ())
    if not layers or not {type(layer).__name__ for layer in layers} <= PLAIN or module.config.hidden_act != "silu":
        return None
    return Lean(module) if all(map(_blocked, (*layers, module.lm_head))) else None


def _blocked(part: Any) -> bool:
    """Whether every linear layer of it is in blocks, those that are joined fill blocks of one kind, and only q, k, v
    have biases, all or none.
    """
    named = {name.split(".")[-1]: child for name, child in part.named_modules() if name.endswith("_proj")}
    inner, gates = ([child for name, child in named.items() if name[0] in some] for some in ("qkv", "gu"))
    return (
        all(isinstance(child, BlockedLinear) for child in (named or {"": part}).values())
        and all(child.blocks.outputs % WIDTH == 0 for child in (*inner, *gates))
        and all(len({child.blocks.kind for child in joins}) <= 1 for joins in (inner, gates))
        and all(child.bias is None for child in named.values() if child not in inner)
        and len({child.bias is None for child in inner}) <= 1
    )


def _join(parts: Sequence[BlockedLinear]) -> Any:
    whole, shares = joined([part.blocks for part in parts])
    for part, share in zip(parts, shares, strict=True):
        part.blocks = share
    return whole


def _floats(weight: Tensor | None) -> np.ndarray:
    return np.empty(0, np.float32) if weight is None else weight.detach().numpy()
