"""Adapters for transformers modules: hooks on linear layers that change some rows of a forward pass."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from localctx.kernels.cpu.linear import exact_blocks
from localctx.models.adapter import Adapter, LowRank, does_not_fit
from localctx.models.decoder.forward_batch import AdaptedRows
from localctx.models.quantized.blocked_linear import BlockedLinear, RowByRow


class ModuleAdapters:
    """The LoRA adapters that were added to a transformers ``module``. ``row_by_row`` is a switch that all blocked
    linear layers of the module share. While it is on, the result of a row does not depend on other rows.
    """

    def __init__(self, module: Any, row_by_row: RowByRow) -> None:
        self._module, self._row_by_row = module, row_by_row
        self._acting: tuple[bytes, Tensor] | None = None  # the active adapter and the rows it changes

    def add(self, adapter: Adapter) -> None:
        """Add hooks that apply ``adapter`` to the linear layers it changes. Raises ModelError for an adapter of another
        model.
        """
        layers = [(self._layer(adapter, name, change), change) for name, change in adapter.changes.items()]
        for layer, change in layers:
            device = next(self._module.parameters()).device
            layer.register_forward_hook(self._hook(adapter.fingerprint, change, device))

    @contextmanager
    def acting(self, rows: AdaptedRows | None) -> Iterator[None]:
        """Apply an adapter to the tokens ``rows`` of the forward passes within the block. If ``rows`` is None, no
        adapter applies.
        """
        device = next(self._module.parameters()).device
        self._acting = (rows.fingerprint, torch.tensor(rows.indices, device=device)) if rows else None
        try:
            yield
        finally:
            self._acting = None

    def _layer(self, adapter: Adapter, name: str, change: LowRank) -> torch.nn.Module:
        try:
            layer = self._module.get_submodule(name)
        except AttributeError as e:
            raise does_not_fit(adapter, f"it changes {name}, which the model does not have") from e
        if isinstance(layer, BlockedLinear):
            shape: tuple[int, ...] = (layer.blocks.outputs, layer.blocks.inputs)
        else:
            shape = getattr(layer, "out_features", 0), getattr(layer, "in_features", 0)
        if shape != (len(change.up), change.down.shape[1]):
            raise does_not_fit(adapter, f"the shape of {name} is another")
        return layer

    def _hook(self, fingerprint: bytes, change: LowRank, device: torch.device) -> Any:
        down, up = (self._linear(weight, device) for weight in (change.down, change.up))

        def add_change(layer: torch.nn.Module, inputs: tuple[Tensor, ...], out: Tensor) -> Tensor:
            if self._acting and self._acting[0] == fingerprint:
                rows = self._acting[1]
                out[..., rows, :] += up(down(inputs[0][..., rows, :])).to(out.dtype)
            return out

        return add_change

    def _linear(self, weight: Tensor, device: torch.device) -> torch.nn.Module:
        """Returns a linear layer with ``weight``. On a CPU it has float32 blocks, whose products are batch-invariant.
        On other devices it has the module's dtype.
        """
        if device.type == "cpu":
            return BlockedLinear(exact_blocks(weight.float()), None, self._row_by_row)
        linear = torch.nn.Linear(weight.shape[1], len(weight), bias=False, device="meta")
        linear.weight = torch.nn.Parameter(weight.to(device, self._module.dtype), requires_grad=False)
        return linear
