"""Loads a model from its folder, as a NativeDecoder if possible (faster), else with transformers."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch import Tensor

from localctx.kernels.cpu.threads import set_threads
from localctx.kernels.cpu.warmup import warm, warm_experts
from localctx.models.architecture.decoder_config import NATIVE_PRECISIONS, DecoderConfig, read_native_config
from localctx.models.choice.device_choice import pick_device, pick_dtype
from localctx.models.choice.sizing import decoder_parameters, sizing_of, stored_parameters
from localctx.models.decoder.local_model import LocalModel
from localctx.models.decoder.native_decoder import NativeDecoder, NativeWeights
from localctx.models.decoder.transformers_model import TransformersModel, load_module, load_tokenizer, loading
from localctx.models.files.block_file import BlockFile, Sources, read_blocks, source_files, write_blocks
from localctx.models.files.config_limits import check_config
from localctx.models.files.gguf_blocks import GgufBlocks
from localctx.models.files.safetensors_files import check_headers, open_weights
from localctx.models.fingerprint import hash_weights
from localctx.models.hub.installed import source_kind
from localctx.models.quantized.bitsandbytes_layers import bitsandbytes_options, is_packed
from localctx.models.quantized.blocked_linear import block_linears
from localctx.models.quantized.fused_experts import packed_experts
from localctx.models.quantized.weight_formats import BITS, refuse_weights
from localctx.models.tokenizer.chat_tokenizer import ChatTokenizer
from localctx.models.tokenizer.tokenizer_files import find_tokenizer, stops_of
from localctx.settings import parse_rope


def load_model(
    folder: Path,
    name: str,
    device: str = "auto",
    dtype: str = "auto",
    threads: int = 0,
    rope: str = "auto",
    weights: str = "full",
) -> LocalModel:
    """Load the model in ``folder`` (config.json, *.safetensors, tokenizer). Downloads nothing and runs no model code.

    ``threads`` 0 leaves the number to torch and numba. ``rope`` is a RoPE scaling: a method and a factor, such as
    ``yarn:2``, or ``auto`` for none. ``weights`` is the format of the weights: full, int8, int4 or nf4. Raises
    ModelError for a folder that does not load, and for a family that would be computed incorrectly.
    """
    check_config(folder / "config.json")
    check_headers(folder)
    parse_rope(rope)  # raises early for an invalid value
    torch_device = pick_device(device)
    precision = pick_dtype(dtype, torch_device)
    refuse_weights(weights, torch_device, precision)
    bitsandbytes_options(weights, torch_device)  # raises early if bitsandbytes is not installed
    packed, sources = is_packed(weights, torch_device), source_files(folder)
    if threads:
        torch.set_num_threads(threads)
        set_threads(threads)
    with ThreadPoolExecutor() as pool:  # works while this thread imports or blocks weights
        warmed = pool.submit(warm if torch_device.type == "cpu" else lambda: None)
        if not packed and (native := _native_parts(folder, torch_device, precision)):
            config, tensors = native
            chat = pool.submit(_tokenizer, folder, config)
            with loading(folder):
                blocked, hashed = _native_weights(folder, sources, config, tensors, weights)
            warmed.result()
            return NativeDecoder(
                config, blocked, chat.result(), precision=precision, name=name, hashes=hashed, rope=rope
            )
        hashes = pool.submit(hash_weights, folder)
        module, tokenizer = load_module(folder, torch_device, precision, weights)
        warmed.result()
        rows = block_linears(module, weights) if torch_device.type == "cpu" and not packed else None
        if rows and any(packed_experts(module)):
            warm_experts()
        options = {"name": name, "hashes": hashes.result(), "rope": rope, "stored": weights}
        return TransformersModel(module, tokenizer, row_by_row=rows, **options)


def loading_bytes(folder: Path, torch_device: torch.device, precision: torch.dtype, weights: str) -> float:
    """Returns the peak size in bytes of weights in memory while the model in ``folder`` is loaded. NativeDecoder maps
    its files. transformers loads all full-precision weights before they are stored in blocks. Weights that are to be
    quantized are loaded and quantized one by one.
    """
    native = None if is_packed(weights, torch_device) else _native_parts(folder, torch_device, precision)
    if not native and weights != "full":
        return sizing_of(folder / "config.json", precision, weights, torch_device).weights
    if not native:
        return decoder_parameters(folder) * precision.itemsize
    parameters = stored_parameters(folder)
    stored = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    embedding = native[0].vocab_size * native[0].hidden_size * 2  # not quantized
    return stored if weights == "full" else min(stored, parameters * BITS[weights] / 8 + embedding)


def _native_parts(
    folder: Path, torch_device: torch.device, precision: torch.dtype
) -> tuple[DecoderConfig, Mapping[str, Tensor]] | None:
    """Returns the config and weights in ``folder`` if ``NativeDecoder`` supports them on this device; else None."""
    config = read_native_config(folder) if torch_device.type == "cpu" and precision in NATIVE_PRECISIONS else None
    tensors = open_weights(folder) if config else None
    if not config or tensors is None or not tensors.unquantized or (folder / "adapter_config.json").exists():
        return None
    tied_twice = config.tie_word_embeddings and "lm_head.weight" in tensors
    return (config, tensors) if "model.embed_tokens.weight" in tensors and not tied_twice else None


def _native_weights(
    folder: Path, sources: Sources, config: DecoderConfig, tensors: Mapping[str, Tensor], stored: str
) -> tuple[NativeWeights, Mapping[str, str]]:
    """Returns the weights, and the content hashes of their files. Quantized weights of an installed model are made once
    and kept in a file. ``sources`` is the state of the model's files before ``tensors`` were mapped.
    """
    quantized = stored != "full"
    if made := read_blocks(folder, stored) if quantized else None:
        return NativeWeights(config, tensors, stored, made=made), made.hashes
    published = GgufBlocks(folder if quantized else None)
    with ThreadPoolExecutor(1) as pool:
        hashes = pool.submit(hash_weights, folder)
        weights = NativeWeights(config, tensors, stored, published)
    hashed = hashes.result() | published.hashes
    if quantized and source_kind(folder):
        write_blocks(folder, stored, sources, BlockFile(weights.blocks, weights.vectors, hashed))
    return weights, hashed


def _tokenizer(folder: Path, config: DecoderConfig) -> ChatTokenizer:
    stops = stops_of(folder, config.eos_token_id)
    with loading(folder):
        tokenizer = find_tokenizer(folder, config.model_type, stops) or load_tokenizer(folder, stops)
    tokenizer.identity  # noqa: B018 (hashes it in this thread)
    return tokenizer
