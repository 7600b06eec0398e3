"""Converts a GGUF file to a folder that transformers loads quickly: safetensors, config, tokenizer, template.

transformers' GGUF reader silently ignores RoPE scaling and unknown weights. This module adds RoPE scaling to the
config, and rejects a file whose model would be computed differently.
"""

import os
import re
import struct
import tempfile
import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from localctx.errors import ModelError
from localctx.models.files.gguf_header import REMEDY, GgufHeader, read_header
from localctx.system import link

ProgressCallback = Callable[[str, int, int], None]
"""``progress(phase, done, total)``; a total of 0 means unknown. It may raise to cancel the work."""

VERSION = 3
"""The converter's version, recorded in manifests so that a later version can find models converted by an older one.

Version 1 stored no published blocks, version 2 none of Q4_K.
"""

_DIGIT_BY_DIGIT = {"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"}


def convert_gguf(gguf: Path, out: Path, progress: ProgressCallback) -> None:
    """Write the model in the file ``gguf`` to the folder ``out``, with weights in bfloat16.

    Reports the phases ``converting`` (in tensors) and ``saving``. Raises ModelError for a damaged file, an architecture
    that transformers does not read, or parameters that it cannot express. Raises OSError if the disk is full or
    read-only. After an error the caller deletes ``out``.
    """
    header = read_header(gguf)
    try:
        with tempfile.TemporaryDirectory() as alone, _quiet(progress):
            # in its own folder, because transformers also reads files next to the GGUF
            link(Path(alone, "model.gguf"), gguf.resolve())
            _convert(header, gguf, alone, out, progress)
    except ModelError:
        raise
    except Exception as error:  # damaged files make readers raise anything
        if isinstance(error, OSError) and error.errno:  # transformers raises OSError without errno for a bad file
            raise
        raise _user_error(gguf, error) from error


def _user_error(gguf: Path, error: Exception) -> Exception:
    """Returns the error to show to the user, with a remedy."""
    if isinstance(error, MemoryError):
        return ModelError(f"{gguf} needs more memory than there is", "close other programs, or take a smaller model")
    if number := re.search(r"\(os error (\d+)\)", str(error)):  # safetensors reports a full disk like this
        return OSError(int(number[1]), os.strerror(int(number[1])))
    reason = str(error).strip().splitlines()[:1] or [type(error).__name__]
    return ModelError(f"{gguf} cannot be converted ({reason[0]})", REMEDY)


def _convert(header: GgufHeader, gguf: Path, folder: str, out: Path, progress: ProgressCallback) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM

    source: dict[str, Any] = {"gguf_file": "model.gguf", "local_files_only": True, "trust_remote_code": False}
    progress("converting", 0, len(header.tensors))
    config = AutoConfig.from_pretrained(folder, **source)
    _set_positions(config, header, gguf)
    _check_weights(config, header, gguf)
    tokenizer = _tokenizer(folder, header)
    load: Any = AutoModelForCausalLM.from_pretrained  # its type hints omit the returned pair
    model, info = load(
        folder, config=config, dtype="bfloat16", attn_implementation="sdpa", output_loading_info=True, **source
    )
    if info["missing_keys"]:
        raise ValueError(f"it lacks {min(info['missing_keys'])}")
    _save(model, tokenizer, header, out, progress)
    from localctx.models.files.gguf_blocks import write_published  # it imports torch

    write_published(header, gguf, out)


def _tokenizer(folder: str, header: GgufHeader) -> Any:
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence
    from transformers import PreTrainedTokenizerFast

    # not AutoTokenizer, which reads the whole file again only to choose this same class
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder, gguf_file="model.gguf")
    if header.meta.get("tokenizer.ggml.pre") in _DIGIT_BY_DIGIT:  # transformers would use GPT-2's pre-tokenizer
        split = Sequence([Digits(individual_digits=True), ByteLevel(add_prefix_space=False)])
        tokenizer.backend_tokenizer.pre_tokenizer = split
    return tokenizer


def _save(model: Any, tokenizer: Any, header: GgufHeader, out: Path, progress: ProgressCallback) -> None:
    progress("saving", 0, 1)
    # the weights are plain tensors now, but transformers treats them as GGUF blocks and would not save them
    model.hf_quantizer = None
    del model.config.quantization_config
    # some families end a message (eot) with another token than a text (eos); generation must stop at both
    ends = {header.meta.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot")} - {None}
    model.generation_config.eos_token_id = sorted(ends) or None
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    progress("saving", 1, 1)


def _check_weights(config: Any, header: GgufHeader, gguf: Path) -> None:
    """Raise ModelError if the model and the file differ in their number of parameters, because transformers ignores
    parameters that it does not know.
    """
    import torch
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        expected = sum(p.numel() for p in AutoModelForCausalLM.from_config(config).parameters())
    if expected != header.weights:
        raise ModelError(
            f"{gguf} holds {header.weights:,} weights, but transformers' {config.model_type} has {expected:,}",
            "take the model's own folder of safetensors, or another GGUF of it",
        )


def _set_positions(config: Any, header: GgufHeader, gguf: Path) -> None:
    """Set values in ``config`` that transformers' GGUF reader ignores: RoPE scaling, partial RoPE, sliding windows."""
    try:
        _set_rope(config, _scaling(header, gguf) | _partial(config, header))
    except (KeyError, ValueError) as error:
        raise ModelError(f"{gguf} has a tokenizer that transformers does not support ({error})", REMEDY) from error
    if config.model_type in ("mistral", "phi3"):  # their configs' default window is that of one checkpoint
        config.sliding_window = header.get("attention.sliding_window")


def _set_rope(config: Any, rope: dict[str, Any]) -> None:
    params = getattr(config, "rope_parameters", None) or {}
    by_layer = isinstance(params.get("full_attention"), dict)
    if rope and (not params or (by_layer and rope.get("rope_type") != "linear")):
        raise ValueError(f"{rope.get('rope_type', 'partial')} RoPE in {config.model_type}")
    # in models with sliding layers, only full-attention layers are scaled
    (params["full_attention"] if by_layer else params).update(rope)
    if "original_max_position_embeddings" in rope and hasattr(config, "original_max_position_embeddings"):
        config.original_max_position_embeddings = rope["original_max_position_embeddings"]


def _partial(config: Any, header: GgufHeader) -> dict[str, Any]:
    """Returns the RoPE parameters for rotating only a part of each head's channels; empty if all channels rotate."""
    width, heads = header.get("rope.dimension_count"), getattr(config, "num_attention_heads", 0)
    head = getattr(config, "head_dim", None) or (heads and config.hidden_size // heads)
    return {"partial_rotary_factor": width / head} if width and head and width != head else {}


def _scaling(header: GgufHeader, gguf: Path) -> dict[str, Any]:
    """Returns the RoPE scaling of the file as parameters of transformers; empty for plain RoPE."""
    # llama.cpp treats a missing type as linear, and a factor of 0 as no scaling
    kind = header.get("rope.scaling.type", "linear")
    factor = header.get("rope.scaling.factor") or header.get("rope.scale_linear") or 1.0
    tables = {name: _floats(header, name, gguf) for name in header.tensors if name.startswith("rope_")}
    if tables and (kind == "longrope" or factor == 1.0):
        return _from_tables(header, tables)
    if kind == "yarn" and not tables:
        return _yarn(header, factor)
    if tables or kind not in ("linear", "none") or header.get("rope.scaling.attn_factor", 1.0) != 1.0:
        raise ValueError(f"{kind} scaling, tables {sorted(tables)}")
    return {} if kind == "none" or factor == 1.0 else {"rope_type": "linear", "factor": factor}


def _yarn(header: GgufHeader, factor: float) -> dict[str, Any]:
    betas = {name: header.get(f"rope.scaling.yarn_{name}") for name in ("beta_fast", "beta_slow")}
    variants = {"ext_factor": 1.0, "attn_factor": 1.0, "log_multiplier": 0.0}
    if any(header.get(f"rope.scaling.yarn_{name}", plain) != plain for name, plain in variants.items()):
        raise ValueError("a variant of yarn")
    if header.get("rope.scaling.attn_factor", 1.0) != 1.0:
        raise ValueError("yarn with another attention factor")
    original = header.get("rope.scaling.original_context_length", header.get("context_length"))
    rope = {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": original}
    return rope | {name: value for name, value in betas.items() if value is not None}


def _from_tables(header: GgufHeader, tables: dict[str, list[float]]) -> dict[str, Any]:
    if set(tables) == {"rope_freqs.weight"}:
        return _llama3(tables["rope_freqs.weight"], header)
    short, long = tables["rope_factors_short.weight"], tables["rope_factors_long.weight"]
    window = header.get("context_length")
    original = header.get("rope.scaling.original_context_length", window)
    return {
        "rope_type": "longrope",
        "short_factor": short,
        "long_factor": long,
        "factor": window / original,
        "attention_factor": header.get("rope.scaling.attn_factor", 1.0),
        "original_max_position_embeddings": original,
    }


def _llama3(table: list[float], header: GgufHeader) -> dict[str, Any]:
    """Returns the parameters of Llama 3.1's RoPE that give ``table``, which has a factor for each frequency. Returns an
    empty dict if no factor is above 1. Raises ValueError if Llama 3.1's rule gives another table.
    """
    from math import isclose, pi

    rope = {"rope_type": "llama3", "factor": max(table), "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    rotations = [8192 / (2 * pi * header.get("rope.freq_base", 10000.0) ** (i / len(table))) for i in range(len(table))]
    smooth = [min(max((n - 1) / 3, 0), 1) for n in rotations]
    rule = [1 / ((1 - part) / max(table) + part) for part in smooth]
    if max(table) == 1.0:
        return {}
    if not all(isclose(a, b, rel_tol=1e-3) for a, b in zip(table, rule, strict=True)):
        raise ValueError("a table of factors that Llama 3.1's rule does not make")
    return rope | {"original_max_position_embeddings": 8192}


def _floats(header: GgufHeader, name: str, gguf: Path) -> list[float]:
    tensor = header.tensors[name]
    if tensor.kind != 0 or len(tensor.dims) != 1:
        raise ValueError(f"{name} is not a row of f32")
    with gguf.open("rb") as file:
        file.seek(tensor.start)
        return list(struct.unpack(f"<{tensor.dims[0]}f", file.read(4 * tensor.dims[0])))


@contextmanager
def _quiet(progress: ProgressCallback) -> Iterator[None]:
    """Silence transformers' progress bars, logs and warnings, and report its tensors to ``progress``."""
    from transformers import modeling_gguf_pytorch_utils as reader
    from transformers.utils import logging

    def count(tensors: Collection[Any], **_: Any) -> Iterator[Any]:
        for done, tensor in enumerate(tensors):
            progress("converting", done, len(tensors))
            yield tensor

    level, bars, bar = logging.get_verbosity(), logging.is_progress_bar_enabled(), reader.tqdm
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    reader.tqdm = count  # the only hook for its progress
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        reader.tqdm = bar
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
