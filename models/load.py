"""Loading a model from its folder, in the way that is quickest for what it is."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch import Tensor

from localctx.kernels import decode_cpu
from localctx.kernels.warmup import warm
from localctx.models.blocked_linear import block_linears
from localctx.models.chat_tokenizer import ChatTokenizer
from localctx.models.decoder_config import PLAIN_PRECISIONS, DecoderConfig, plain_config
from localctx.models.device_choice import pick_device, pick_dtype
from localctx.models.fingerprint import hash_weights
from localctx.models.local_model import LocalModel
from localctx.models.native_decoder import NativeDecoder, NativeWeights
from localctx.models.rope import parse_rope
from localctx.models.safetensors_files import open_weights
from localctx.models.sizing import stored_parameters
from localctx.models.tokenizer_files import find_tokenizer, stops_of
from localctx.models.transformers_model import TransformersModel, load_module, load_tokenizer, loading
from localctx.models.weight_formats import BITS, loaded_bits, packing, refuse_weights


def load_model(
    folder: Path,
    name: str,
    device: str = "auto",
    dtype: str = "auto",
    threads: int = 0,
    rope: str = "auto",
    weights: str = "full",
) -> LocalModel:
    """The model in ``folder`` (config.json, *.safetensors, tokenizer). Nothing is fetched, no code of it is run.

    ``threads`` 0 leaves torch and numba as many as they chose; ``rope`` as in ``Model.stretch``; ``weights`` as in the
    settings. Raises ModelError for a folder that does not load or a family that would be computed wrongly.
    """
    parse_rope(rope)  # before the work that nonsense would waste
    place = pick_device(device)
    precision = pick_dtype(dtype, place)
    refuse_weights(weights, place, precision)
    packed = packing(weights, place)
    if threads:
        torch.set_num_threads(threads)
        decode_cpu.set_threads(threads)
    with ThreadPoolExecutor() as pool:  # on another core, while this one imports, or blocks weights
        warmed, hashes = pool.submit(warm), pool.submit(hash_weights, folder)
        if plain := _plain(folder, place, precision):
            config, tensors = plain
            chat = pool.submit(_tokenizer, folder, config)
            with loading(folder):
                blocked = NativeWeights(config, tensors, weights)
            warmed.result()
            hashed = hashes.result()
            return NativeDecoder(
                config, blocked, chat.result(), precision=precision, name=name, hashes=hashed, rope=rope
            )
        module, tokenizer = load_module(folder, place, precision, packed)
        warmed.result()
        rows = block_linears(module, weights) if place.type == "cpu" else None
        how = {"name": name, "hashes": hashes.result(), "rope": rope, "stored": weights}
        return TransformersModel(module, tokenizer, row_by_row=rows, **how)


def loading_bytes(folder: Path, place: torch.device, precision: torch.dtype, weights: str) -> float:
    """What memory the ``weights`` in ``folder`` take at the peak of loading, in bytes. Those of a plain decoder are
    taken as they lie; a processor has others whole before any is in blocks.
    """
    numbers = stored_parameters(folder)
    if not (plain := _plain(folder, place, precision)):
        return numbers * loaded_bits(weights, place, precision) / 8
    stored = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    embedding = plain[0].vocab_size * plain[0].hidden_size * 2  # which stays as it is
    return stored if weights == "full" else min(stored, numbers * BITS[weights] / 8 + embedding)


def _plain(
    folder: Path, place: torch.device, precision: torch.dtype
) -> tuple[DecoderConfig, Mapping[str, Tensor]] | None:
    """Config and weights in ``folder``, if they are those of a decoder that ``NativeDecoder`` computes there."""
    config = plain_config(folder) if place.type == "cpu" and precision in PLAIN_PRECISIONS else None
    found = open_weights(folder) if config else None
    if not config or found is None or not found.plain or (folder / "adapter_config.json").exists():
        return None
    tied_twice = config.tie_word_embeddings and "lm_head.weight" in found
    return (config, found) if "model.embed_tokens.weight" in found and not tied_twice else None


def _tokenizer(folder: Path, config: DecoderConfig) -> ChatTokenizer:
    stops = stops_of(folder, config.eos_token_id)
    with loading(folder):
        found = find_tokenizer(folder, config.model_type, stops) or load_tokenizer(folder, stops)
    found.identity  # noqa: B018 (hashed meanwhile)
    return found
