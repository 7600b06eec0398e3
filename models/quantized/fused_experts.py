"""Finds mixtures of experts in transformers modules, and computes them with quantized or blocked weights. transformers
fuses the weights of all experts into three-dimensional parameters, so experts of any family are found by these
parameters.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from types import MethodType
from typing import Any

import torch
from torch import Tensor


class ExpertWeights(torch.nn.Module):
    """The weights of the experts of a layer: one packed matrix [out, in] for each expert. ``nbytes`` is their total
    size in bytes, ``size`` their total number of elements.
    """

    nbytes: int
    size: int

    @abstractmethod
    def multiply(self, x: Tensor, experts: Tensor) -> Tensor:
        """Multiply each row of x [n, in] by the matrix of its expert. ``experts`` [n] are sorted. Returns [n, out] in
        the dtype of x.
        """


PackExperts = Callable[[Tensor], ExpertWeights]
"""Packs weights [experts, out, in]."""


def fused_names(module: Any) -> tuple[str, ...]:
    """Returns the names of the parameters of ``module`` that hold the weights of all experts, fused by transformers.
    Empty if it has no experts, or if transformers allows no other function to compute them.
    """
    if not hasattr(module, "has_gate"):
        return ()
    names = ("gate_up_proj" if module.has_gate else "up_proj", "down_proj")
    found = (module._parameters.get(name) for name in names)
    return tuple(name for name, weights in zip(names, found, strict=True) if weights is not None and weights.dim() == 3)


def fused_experts(module: Any) -> Iterator[tuple[str, Any]]:
    """Yields the submodules of ``module`` that have fused expert weights, with their names."""
    return ((name, child) for name, child in module.named_modules() if fused_names(child))


def expert_shape(module: Any, name: str) -> tuple[int, int, int]:
    """Returns the shape of the expert parameter ``name``: number of experts, outputs and inputs of each expert."""
    experts, outputs, inputs = getattr(module, name).shape
    return (experts, inputs, outputs) if module.is_transposed else (experts, outputs, inputs)


def pack_weights(module: Any, name: str, weights: Tensor, pack: PackExperts) -> None:
    """Replace the expert parameter ``name`` of ``module`` by ``weights`` in a packed form, which ``pack`` makes.
    ``weights`` have the shape of the parameter.
    """
    packed = pack(weights.mT if module.is_transposed else weights)
    delattr(module, name)
    module.add_module(name, packed)
    module.forward = MethodType(_mix, module)


def pack_experts(module: Any, pack: PackExperts) -> None:
    """Replace all expert weights of a loaded ``module`` by their packed form, which ``pack`` makes, one parameter at a
    time.
    """
    for _, experts in list(fused_experts(module)):
        for name in fused_names(experts):
            pack_weights(experts, name, getattr(experts, name).detach(), pack)


def packed_experts(module: torch.nn.Module) -> Iterator[ExpertWeights]:
    """Yields the packed expert weights in ``module``."""
    return (child for child in module.modules() if isinstance(child, ExpertWeights))


def _mix(self: Any, hidden: Tensor, chosen: Tensor, shares: Tensor) -> Tensor:
    """Returns the outputs of the experts ``chosen`` [tokens, k] for hidden [tokens, width], weighted by ``shares``
    [tokens, k].

    The k results of a token are summed in that token's order of experts, so other tokens' choices do not affect the
    sum.
    """
    experts, order = chosen.flatten().sort(stable=True)
    x = hidden[order // chosen.shape[1]]
    x = _project(self, "gate_up_proj" if self.has_gate else "up_proj", x, experts)
    x = _project(self, "down_proj", self._apply_gate(x) if self.has_gate else self.act_fn(x), experts)
    if self.has_post_expert_norm:
        x = self.post_expert_norm(x)
    x = (x * shares.flatten()[order, None])[order.argsort()]
    return x.unflatten(0, chosen.shape).sum(1).to(hidden.dtype)


def _project(module: Any, name: str, x: Tensor, experts: Tensor) -> Tensor:
    out = getattr(module, name).multiply(x, experts)
    return out + getattr(module, f"{name}_bias")[experts] if module.has_bias else out
