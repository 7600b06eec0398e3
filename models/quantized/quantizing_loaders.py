"""Quantizers for transformers' loader. They pack each weight as soon as it is read, so only one unpacked weight exists
at a time.

Import this module only when loading a model, because it imports transformers, which takes seconds.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import Linear
from transformers import BitsAndBytesConfig
from transformers.core_model_loading import ConversionOps, WeightConverter
from transformers.integrations.mxfp4 import convert_moe_packed_tensors
from transformers.quantizers.auto import register_quantization_config, register_quantizer
from transformers.quantizers.base import HfQuantizer, get_keys_to_not_convert
from transformers.quantizers.quantizer_bnb_4bit import Bnb4BitHfQuantizer
from transformers.quantizers.quantizer_bnb_8bit import Bnb8BitHfQuantizer
from transformers.quantizers.quantizers_utils import get_module_from_name, should_convert_module
from transformers.utils.quantization_config import QuantizationConfigMixin, QuantizationMethod

from localctx.models.quantized.bitsandbytes_layers import bitsandbytes_options
from localctx.models.quantized.blocked_linear import WEIGHTS, BlockedLinear, expert_packer
from localctx.models.quantized.dequantized_experts import PACK
from localctx.models.quantized.fused_experts import PackExperts, fused_names, pack_weights

_BLOCKS, _INT8, _NF4 = (f"localctx-{name}" for name in ("blocks", "int8", "nf4"))  # registered with transformers


@register_quantization_config(_BLOCKS)
class BlocksConfig(QuantizationConfigMixin):
    """A quantization config that makes transformers load linear layers and experts in the blocks of ``blocked_linear``.
    ``weights`` is their format.
    """

    def __init__(self, weights: str = "int8") -> None:
        self.quant_method, self.weights = _BLOCKS, weights  # type: ignore[assignment]  # no name of transformers' own


def packing_options(config: Any, weights: str, device: torch.device) -> dict[str, Any]:
    """Returns the ``from_pretrained`` arguments with which transformers loads a model in the format ``weights``: with
    bitsandbytes on a GPU, in blocks on a CPU. Empty for full weights. If the experts are in MXFP4, that quantization is
    removed from ``config``, because they are packed again.
    """
    if weights == "full":
        return {}
    if (getattr(config, "quantization_config", None) or {}).get("quant_method") == QuantizationMethod.MXFP4:
        del config.quantization_config  # else transformers would ignore our quantizer
    if not (options := bitsandbytes_options(weights, device)):
        return {"quantization_config": BlocksConfig(weights)}
    packing: Any = BitsAndBytesConfig(**options)
    packing.quant_method = _INT8 if weights == "int8" else _NF4
    return {"quantization_config": packing, "device_map": {"": device}}


def forget_packing(module: Any) -> None:
    """Remove our quantizers from the config of a loaded ``module``, so that it names only transformers' own. The config
    is part of the fingerprint.
    """
    known: Any = getattr(module.config, "quantization_config", None)
    if isinstance(known, BlocksConfig):
        del module.config.quantization_config
    elif getattr(known, "quant_method", None) in (_INT8, _NF4):
        known.quant_method = QuantizationMethod.BITS_AND_BYTES


class _PackParameters(ConversionOps):
    """Packs parameters that transformers has read: fused expert weights with ``pack_fused``, others with ``others``."""

    def __init__(self, pack_fused: PackExperts, others: ConversionOps) -> None:
        self._pack_fused, self._others = pack_fused, others

    def convert(self, input_dict: dict[str, Any], *patterns: Any, **how: Any) -> dict[str, Any]:
        """Returns the parameters that transformers should set under the same names."""
        left = dict[str, Any]()
        for name, found in input_dict.items():
            value = _tensor(found)
            module, field = get_module_from_name(how["model"], name)
            if field not in fused_names(module):
                left |= self._others.convert({name: value}, *patterns, **how)
            elif value.shape == getattr(module, field).shape:  # else it stays missing, which is reported
                pack_weights(module, field, value, self._pack_fused)
                how["missing_keys"].discard(name)
        return left


class _BlockLinear(ConversionOps):
    """Replaces a linear layer by a BlockedLinear as soon as its weight is read."""

    def __init__(self, weights: str) -> None:
        self._weights = weights

    def convert(self, input_dict: dict[str, Any], *patterns: Any, **how: Any) -> dict[str, Any]:
        """Replace the layer. Returns no parameters for transformers to set."""
        for name, value in input_dict.items():
            layer = name.removesuffix(".weight")
            linear = how["model"].get_submodule(layer)
            if value.shape == linear.weight.shape:
                blocked = BlockedLinear(WEIGHTS[self._weights](value), linear.bias, dtype=value.dtype)
                how["model"].set_submodule(layer, blocked)
                how["missing_keys"].discard(name)
        return {}


class _DequantizeMxfp4(ConversionOps):
    """Dequantizes expert weights from MXFP4 codes and scales, to the dtype in which transformers read the scales."""

    def convert(self, input_dict: dict[str, Any], *patterns: Any, **how: Any) -> dict[str, Any]:
        """Returns the dequantized parameter."""
        codes, scales = (_tensor(found) for _, found in sorted(input_dict.items()))
        return {how["full_layer_name"]: convert_moe_packed_tensors(codes, scales, dtype=scales.dtype)}


def _tensor(found: Any) -> Tensor:
    """Returns the tensor in ``found``. transformers passes a tensor directly or in a list."""
    return found[0] if isinstance(found, list) else found


class _PacksExperts(HfQuantizer):
    """Mixin for quantizers that pack experts, including checkpoints with MXFP4 experts."""

    def param_needs_quantization(self, model: Any, param_name: str, **how: Any) -> bool:
        module, field = get_module_from_name(model, param_name)
        return field in fused_names(module) or super().param_needs_quantization(model, param_name, **how)

    def get_weight_conversions(self) -> list[WeightConverter]:
        names = "gate_up_proj", "down_proj"
        mxfp4 = [WeightConverter([f"{n}_blocks", f"{n}_scales"], n, [_DequantizeMxfp4()]) for n in names]
        return [*super().get_weight_conversions(), *mxfp4]


@register_quantizer(_INT8)
class _Int8Quantizer(_PacksExperts, Bnb8BitHfQuantizer):
    def get_quantize_ops(self) -> ConversionOps:
        return _PackParameters(PACK["int8"], super().get_quantize_ops())


@register_quantizer(_NF4)
class _Nf4Quantizer(_PacksExperts, Bnb4BitHfQuantizer):
    def get_quantize_ops(self) -> ConversionOps:
        return _PackParameters(PACK["nf4"], super().get_quantize_ops())


class _LinearQuantizer(HfQuantizer):
    """A quantizer that packs linear layers except the output layer, which may be tied to an embedding."""

    is_trainable = requires_calibration = False

    def is_serializable(self) -> bool:
        return False

    def param_needs_quantization(self, model: Any, param_name: str, **how: Any) -> bool:
        module, field = get_module_from_name(model, param_name)
        name = param_name.removesuffix(".weight")
        return type(module) is Linear and field == "weight" and should_convert_module(name, self._kept)

    def _process_model_before_weight_loading(self, model: Any, **how: Any) -> None:
        self._kept = get_keys_to_not_convert(model)


@register_quantizer(_BLOCKS)
class _BlocksQuantizer(_PacksExperts, _LinearQuantizer):
    quantization_config: BlocksConfig

    def get_quantize_ops(self) -> ConversionOps:
        weights = self.quantization_config.weights
        return _PackParameters(expert_packer(weights), _BlockLinear(weights))
