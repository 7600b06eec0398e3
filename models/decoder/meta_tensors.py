"""Runs a model's code on torch's meta device, where tensors have shapes but no values."""

from collections.abc import Hashable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class MetaTensorMode(TorchDispatchMode):
    """Lets code that reads values of tensors run on the meta device, where tensors have none: ``nonzero`` finds
    nothing, numbers are 0, booleans are True. Mixtures of experts, for example, check which experts have tokens.

    The mode also tracks which tensors were computed from each of the ``sources``, pairs of a name and a tensor. A view
    depends on the same sources as its storage.
    """

    def __init__(self, sources: Iterable[tuple[Hashable, Tensor]]) -> None:
        super().__init__()
        # keep all tensors alive, because the address of a freed storage may be reused
        self._derived = {_storage(x): (x, frozenset([name])) for name, x in sources}

    def sources_of(self, x: Tensor) -> frozenset[Hashable]:
        """Returns the names of the sources from which ``x`` was computed."""
        _, sources = self._derived.get(_storage(x), (x, frozenset[Hashable]()))
        return sources

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = _compute_on_meta(func, args, kwargs or {})
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        if sources := frozenset[Hashable]().union(*map(self.sources_of, tensors)):
            changed = tensors[:1] if func._schema.is_mutable else []
            found = [x for x in [*tree_leaves(result), *changed] if isinstance(x, Tensor)]
            self._derived |= {_storage(x): (x, sources) for x in found}
        return result


def _storage(x: Tensor) -> int:
    return x.untyped_storage()._cdata


def _compute_on_meta(func: Any, args: Any, how: dict[str, Any]) -> Any:
    name, first = func._schema.name, args[0] if args else None
    if isinstance(first, Tensor) and first.device.type == "meta":
        if name in ("aten::_local_scalar_dense", "aten::item", "aten::is_nonzero"):
            return True if first.dtype == torch.bool or name == "aten::is_nonzero" else 0
        if name == "aten::nonzero":
            return first.new_empty(0, first.dim(), dtype=torch.long)
        if name == "aten::_grouped_mm":  # experts [E, in, out]; on meta, torch supports it in bfloat16 only
            return first.new_empty(first.shape[0], args[1].shape[-1])
        if name in ("aten::to", "aten::_to_copy") and how.get("device") == torch.device("cpu"):
            return torch.zeros(first.shape, dtype=how.get("dtype") or first.dtype)
    return func(*args, **how)
