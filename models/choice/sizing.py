"""Computes the memory a model needs from its config.json alone: no weights, network or model code."""

import json
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch

from localctx.errors import ModelError
from localctx.models.architecture.decoder_config import NATIVE_PRECISIONS, parse_native_config
from localctx.models.architecture.geometry import Geometry, geometry_of, multihead_shape_of
from localctx.models.architecture.text_decoder import build_without_weights, text_config
from localctx.models.architecture.unsupported import REMEDY, UnsupportedModel
from localctx.models.catalog import load_catalog
from localctx.models.decoder.trial import model_shape, refuse_unfit
from localctx.models.files.config_limits import check_config
from localctx.models.files.gguf_blocks import GgufBlocks
from localctx.models.fingerprint import hash_file
from localctx.models.hub.installed import disk_errors, folder_name, unknown_model_error
from localctx.models.memory_fit import MemoryNeed
from localctx.models.quantized.bitsandbytes_layers import is_packed, packed_bytes
from localctx.models.quantized.weight_formats import parameter_bytes
from localctx.shape import KVShape

_PROCESSOR = torch.device("cpu")
_MAX_HEADER = 100_000_000  # bytes; safetensors refuses longer ones


@dataclass(frozen=True)
class Sizing:
    """The sizes of a model. ``window`` is the trained context length in tokens (0: unknown). ``weights`` is the size of
    the weights in bytes. ``weights_dtype`` is the precision of the weights, which may be lower than that of
    computation. ``itemsize`` is the size in bytes of an element of activations.

    ``multihead`` is the KVShape that the model would have with plain multi-head attention. ``unfit`` is the reason why
    localctx refuses to run the model; None if it runs it.
    """

    family: str
    shape: KVShape
    multihead: KVShape
    geometry: Geometry
    window: int
    weights: int
    weights_dtype: torch.dtype
    itemsize: int
    unfit: str | None

    def need(self, codec: str, tokens: int, chunk: int, device: torch.device) -> MemoryNeed:
        """Returns the memory that the model needs for a context of ``tokens`` tokens, with its keys and values in
        ``codec``, prefilled ``chunk`` tokens at a time on ``device``.
        """
        working = self.geometry.activation_bytes(min(chunk, tokens), tokens, self.itemsize, device.type)
        return MemoryNeed(self.weights, working, self.shape.cache_bytes(codec, tokens, self.itemsize, chunk))


def sizing_of(
    config_file: Path, dtype: torch.dtype, weights: str = "full", device: torch.device = _PROCESSOR
) -> Sizing:
    """Returns the sizes of the model in ``config_file`` for ``dtype`` on ``device``, with its weights in the format
    ``weights``: full, int8, int4 or nf4. Takes seconds, mostly for imports.

    Raises ModelError for a file that is not the config of a decoder that transformers supports.
    """
    config = read_config(config_file)
    native = not is_packed(weights, device) and _is_native(config_file, device, dtype)
    try:
        text = text_config(config)
        weights_dtype = text.dtype if native and text.dtype else dtype
        module = build_without_weights(config, weights_dtype)
        unfit = None if native else _unfit(config, module)
        shape = model_shape(text)
    except UnsupportedModel as e:
        refuse_unfit(config)  # may raise a more specific reason
        raise e.of(config.model_type) from e
    try:
        return Sizing(
            text.model_type,
            shape,
            multihead_shape_of(text),
            geometry_of(text),
            getattr(text, "max_position_embeddings", None) or 0,
            _bytes(module, weights, device, GgufBlocks(config_file.parent).finer if native else ()),
            weights_dtype,
            torch.float32.itemsize if native else dtype.itemsize,
            unfit,
        )
    except Exception as e:  # transformers' classes raise anything for inconsistent values
        raise ModelError(unfit, REMEDY) if unfit else _unsized(config_file, e) from e


def read_config(file: Path) -> Any:
    """Returns the transformers config in ``file``. Raises ModelError."""
    from transformers import AutoConfig
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    from transformers.utils import logging

    logging.set_verbosity_error()
    check_config(file)
    try:
        raw = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as e:
        raise ModelError(f"{file} cannot be read ({e})", "give the config.json of a transformers model") from e
    if not isinstance(raw, dict) or not isinstance(raw.get("model_type"), str):
        raise ModelError(f"{file} has no model_type", "give the config.json of a transformers model")
    if raw["model_type"] not in CONFIG_MAPPING:
        raise ModelError(
            f"{file}: transformers does not support {raw['model_type']!r} models", "see: localctx models list"
        )
    try:
        return AutoConfig.from_pretrained(file, local_files_only=True, trust_remote_code=False)
    except Exception as e:  # transformers' classes raise anything for invalid values
        raise _unsized(file, e) from e


def stored_parameters(folder: Path) -> int:
    """Returns the number of parameters in the safetensors files of ``folder``, read from their headers; 0 if a header
    cannot be read.
    """
    count = 0
    for file in folder.glob("*.safetensors"):
        with suppress(OSError, ValueError, LookupError, TypeError, AttributeError), file.open("rb") as f:
            length = min(int.from_bytes(f.read(8), "little"), _MAX_HEADER)  # any number in a damaged file
            header = json.loads(f.read(length))
            count += sum(prod(t["shape"]) for name, t in header.items() if name != "__metadata__")
    return count


def decoder_parameters(folder: Path) -> int:
    """Returns the number of parameters that transformers loads from ``folder``. In a multimodal model only the
    parameters of the text model count. Raises ModelError.
    """
    config = read_config(folder / "config.json")
    try:
        if text_config(config) is config:
            return stored_parameters(folder)
        return sum(p.numel() for p in build_without_weights(config).parameters())
    except UnsupportedModel as e:
        raise e.of(config.model_type) from e


def find_config(name: str, models_dir: Path) -> Path:
    """Returns the config.json of the model ``name``, without downloading anything. ``name`` is a catalogue name, a
    folder, a GGUF file, a hub id, or the name of a model in the folder ``models_dir``. For a known model that is not
    installed, returns the catalogue's copy.

    Raises ModelError, with a remedy, if the config is not on this machine.
    """
    local = Path(name).expanduser()
    folder = models_dir / folder_name(name)
    if name not in load_catalog() and local.is_dir():
        folder = local
    elif name not in load_catalog() and local.is_file():
        with disk_errors(models_dir):
            folder = models_dir / f"gguf-{hash_file(local)[:16]}"
    if (folder / "config.json").is_file():
        return folder / "config.json"
    if (known := load_catalog().get(name)) and known.config_file.is_file():
        return known.config_file
    if local.exists():
        raise ModelError(f"{name} has no config.json yet", "give --config, or ask with it once: a GGUF is converted")
    if known or "/" in name.strip("./~"):
        raise ModelError(f"{name} is not on this machine", f"localctx models pull {name}, or give its --config")
    raise unknown_model_error(name, list(load_catalog()))


def _is_native(config_file: Path, device: torch.device, dtype: torch.dtype) -> bool:
    """Returns True if NativeDecoder computes the model. Its weights then keep their dtype, and its activations are
    float32.
    """
    known = device.type == "cpu" and dtype in NATIVE_PRECISIONS
    return known and parse_native_config(json.loads(config_file.read_text("utf-8"))) is not None


def _bytes(module: Any, weights: str, device: torch.device, finer: Collection[str]) -> int:
    """Returns the bytes of the weights of ``module`` on ``device``; tied weights count once. ``finer`` are layers that
    use 8 bits.
    """
    return packed_bytes(module, weights) if is_packed(weights, device) else parameter_bytes(module, weights, finer)


def _unfit(config: Any, module: Any) -> str | None:
    try:
        refuse_unfit(config, module)
    except ModelError as e:
        return e.problem
    return None


def _unsized(file: Path, e: Exception) -> ModelError:
    reason = next(iter(str(e).strip().splitlines()), "") or type(e).__name__
    return ModelError(f"{file} describes no model whose memory can be computed ({reason[:200]})", "check its values")
