"""What a model takes in memory, known from its config.json alone: no weights, no network, no code of the model."""

import json
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch

from localctx.errors import ModelError, UserError
from localctx.models.catalog import load_catalog
from localctx.models.decoder_config import PLAIN_PRECISIONS, config_of
from localctx.models.fingerprint import hash_file
from localctx.models.geometry import Geometry, geometry_of, multihead_shape_of, shape_of
from localctx.models.installed import disk_errors, folder_name, unknown
from localctx.models.transformers_model import refuse_unfit
from localctx.models.weight_formats import stored_bytes
from localctx.shape import KVShape

_PROCESSOR = torch.device("cpu")


@dataclass(frozen=True)
class Sizing:
    """A model by its sizes. ``window`` is what it was trained for, in tokens (0: not told), ``weights`` in bytes,
    ``kept`` in a precision that may be less than the one they are computed in.

    ``multihead`` is the cache it would need as plain multi-head attention of ``heads`` heads. ``unfit`` says why this
    version would refuse to run it; None where it would not.
    """

    family: str
    shape: KVShape
    multihead: KVShape
    geometry: Geometry
    window: int
    weights: int
    kept: torch.dtype
    itemsize: int
    unfit: str | None


def size_of(config_file: Path, dtype: torch.dtype, weights: str = "full", place: torch.device = _PROCESSOR) -> Sizing:
    """The sizes of the model ``config_file`` describes, computed in ``dtype`` at ``place``, its ``weights`` as in the
    settings. Takes seconds, mostly imports.

    Raises ModelError for a file that is no config of a decoder transformers knows.
    """
    config = read_config(config_file)
    try:
        text = config.get_text_config(decoder=True)
        unfit, plain = _unfit(text), _is_plain(config_file, place, dtype)
        kept = text.dtype if plain and text.dtype else dtype
        return Sizing(
            text.model_type,
            _shape(text, unfit),
            multihead_shape_of(text),
            geometry_of(text),
            getattr(text, "max_position_embeddings", None) or 0,
            weights_bytes(config, kept, weights),
            kept,
            torch.float32.itemsize if plain else dtype.itemsize,
            unfit,
        )
    except UserError:
        raise
    except Exception as e:  # whatever a family's classes make of numbers that do not go together
        raise _unsized(config_file, e) from e


def read_config(file: Path) -> Any:
    """The transformers config in ``file``. Raises ModelError."""
    from transformers import AutoConfig
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    from transformers.utils import logging

    logging.set_verbosity_error()
    try:
        said = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as e:
        raise ModelError(f"{file} cannot be read ({e})", "give the config.json of a transformers model") from e
    if not isinstance(said, dict) or not isinstance(said.get("model_type"), str):
        raise ModelError(f"{file} tells no model_type", "give the config.json of a transformers model")
    if said["model_type"] not in CONFIG_MAPPING:
        raise ModelError(f"{file}: transformers knows no {said['model_type']!r} models", "see: localctx models list")
    try:
        return AutoConfig.from_pretrained(file, local_files_only=True, trust_remote_code=False)
    except Exception as e:  # whatever a family's class makes of its values
        raise _unsized(file, e) from e


def weights_bytes(config: Any, dtype: torch.dtype, weights: str = "full") -> int:
    """Bytes of the parameters of the model ``config`` describes, tied ones once. It is built without any memory."""
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        module: Any = AutoModelForCausalLM.from_config(config, dtype=dtype, trust_remote_code=False)
    return stored_bytes(module, weights)


def stored_parameters(folder: Path) -> int:
    """How many numbers the safetensors files of ``folder`` hold, from their headers; 0 where they cannot be read."""
    count = 0
    for file in folder.glob("*.safetensors"):
        with suppress(OSError, ValueError, KeyError), file.open("rb") as f:
            header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
            count += sum(prod(t["shape"]) for name, t in header.items() if name != "__metadata__")
    return count


def find_config(name: str, models_dir: Path) -> Path:
    """The config.json of the model called ``name``, as ``fetch.resolve`` knows names; nothing is fetched.

    Raises ModelError, saying how to get it, where it is not on this machine.
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
    if local.exists():
        raise ModelError(f"{name} has no config.json yet", "give --config, or ask with it once: a GGUF is converted")
    if name in load_catalog() or "/" in name.strip("./~"):
        raise ModelError(f"{name} is not on this machine", f"localctx models pull {name}, or give its --config")
    raise unknown(name, list(load_catalog()))


def _is_plain(config_file: Path, place: torch.device, dtype: torch.dtype) -> bool:
    """Whether it is a plain decoder on a processor: its weights stay as they come, its activations are float32."""
    known = place.type == "cpu" and dtype in PLAIN_PRECISIONS
    return known and config_of(json.loads(config_file.read_text("utf-8"))) is not None


def _unfit(text: Any) -> str | None:
    try:
        refuse_unfit(text)
    except ModelError as e:
        return e.problem
    return None


def _shape(text: Any, unfit: str | None) -> KVShape:
    try:
        shape = shape_of(text)
    except KeyError as e:  # a kind of layer that keeps no keys and values
        raise ModelError(unfit or f"there is no room for {e} layers", "see: localctx models list") from e
    if not shape.bytes_per_token("bf16") > 0:
        raise ModelError("the config tells of a model without a KV cache", "see: localctx models list")
    return shape


def _unsized(file: Path, e: Exception) -> ModelError:
    reason = next(iter(str(e).strip().splitlines()), "") or type(e).__name__
    return ModelError(f"{file} describes no model that can be sized ({reason[:200]})", "check its values")
