"""Converts a LoRA adapter for NativeDecoder's kernels: one set of changes per layer, with q, k and v joined to one
weight.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from localctx.kernels.cpu.adapter import NO_CHANGE, Change, change_of
from localctx.kernels.cpu.decode_layers import arguments_of
from localctx.kernels.cpu.decoder_layer import LayerChanges
from localctx.models.adapter import Adapter, does_not_fit
from localctx.models.architecture.decoder_config import DecoderConfig

NamedLinear = tuple[str, int, int]
"""The name, number of outputs and number of inputs of a linear layer."""


class DecoderChanges:
    """The changes that a LoRA adapter makes to a NativeDecoder. ``layers`` has the changes of each layer; ``arguments``
    has the same changes in the form that the kernel ``decode_layers`` takes.
    """

    def __init__(self, layers: list[LayerChanges]) -> None:
        self.layers, self.arguments = layers, arguments_of(layers)


def layer_changes(config: DecoderConfig, adapter: Adapter) -> list[LayerChanges]:
    """Returns the changes that ``adapter`` makes in each layer of a decoder. Raises ModelError for an adapter of
    another model.
    """
    layers = [_parts(config, f"model.layers.{i}") for i in range(config.num_hidden_layers)]
    known = {name for weights in layers for parts in weights for name, _, _ in parts}
    if foreign := sorted(adapter.changes.keys() - known):
        raise does_not_fit(adapter, f"it changes {foreign[0]}, which the model does not have")
    return [LayerChanges(*(_joined(adapter, parts) for parts in weights)) for weights in layers]


def _parts(config: DecoderConfig, at: str) -> list[list[NamedLinear]]:
    """Returns the linear layers of the decoder layer at ``at``, grouped as in ``LayerChanges``."""
    hidden, inner, dim = config.hidden_size, config.intermediate_size, config.head_dim
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    qkv = [
        (f"{at}.self_attn.{c}_proj", n * dim, hidden) for c, n in zip("qkv", (heads, kv_heads, kv_heads), strict=True)
    ]
    return [
        qkv,
        [(f"{at}.self_attn.o_proj", hidden, heads * dim)],
        [(f"{at}.mlp.{name}_proj", inner, hidden) for name in ("gate", "up")],
        [(f"{at}.mlp.down_proj", hidden, inner)],
    ]


def _joined(adapter: Adapter, parts: Sequence[NamedLinear]) -> Change:
    """Returns the change of a weight that joins the linear layers ``parts``. Their ``down`` matrices are stacked, and
    their ``up`` matrices are the blocks of a block-diagonal matrix. Raises ModelError if a shape does not match.
    """
    downs, ups = list[Tensor](), list[Tensor]()
    for name, outputs, inputs in parts:
        change = adapter.changes.get(name)
        if change and (change.down.shape[1], len(change.up)) != (inputs, outputs):
            raise does_not_fit(adapter, f"the shape of {name} is another")
        downs += [change.down] if change else []
        ups.append(change.up if change else torch.empty(outputs, 0))
    return change_of(torch.cat(downs).float(), torch.block_diag(*ups)) if downs else NO_CHANGE
