"""TransformersModel: a decoder that transformers loads, run over our Cache by a registered attention function."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from localctx.errors import Cancelled, ModelError, UserError
from localctx.kv.attention import Expand
from localctx.kv.backend import MAX_DECODE_TOKENS
from localctx.kv.cache import Cache
from localctx.kv.graph_inputs import GraphInputs
from localctx.kv.pool import Pool
from localctx.models.adapter import Adapter
from localctx.models.base import ForwardRequest
from localctx.models.bitsandbytes_layers import packed_by
from localctx.models.blocked_linear import RowByRow, weight_bytes, weight_count
from localctx.models.chat_tokenizer import ChatTokenizer, chat_tokenizer_of
from localctx.models.cuda_graphs import CudaCapture, GraphCache
from localctx.models.forward_batch import ForwardBatch
from localctx.models.geometry import KINDS
from localctx.models.local_model import LocalModel
from localctx.models.module_adapter import ModuleAdapters
from localctx.models.module_rope import apply_positions, rope_of
from localctx.models.rope import ModelRope, Positions

ATTENTION = "localctx"
LOCAL: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
_DYNAMIC = "dynamic"  # the type of RoPE that would leave keys of several frequencies in one cache


class TransformersModel(LocalModel):
    """See ``localctx.models.base.Model``: ``module`` is what transformers loaded; ``row_by_row`` switches how its
    blocked linear layers multiply; ``how`` as of ``LocalModel``.
    """

    def __init__(
        self, module: Any, tokenizer: ChatTokenizer | None = None, *, row_by_row: RowByRow | None = None, **how: Any
    ) -> None:
        self._module, self._row_by_row = module.eval(), row_by_row or RowByRow()
        self._hooks = ModuleAdapters(module, self._row_by_row)
        super().__init__(module.config.get_text_config(decoder=True), tokenizer or ChatTokenizer(None), **how)
        self.computed_by = ", ".join(filter(None, (f"transformers {version('transformers')}", packed_by(module))))
        self.nbytes, self.parameters = weight_bytes(module), weight_count(module)
        self.sums_depend_on_rows = module.device.type == "cpu" and module.dtype != torch.float32
        self._applied: list[Positions] = [self._trained]  # what the module computes with now; views share the list
        self.device, self.dtype, self.precision = module.device, module.dtype, module.dtype
        self.graphs = GraphCache(CudaCapture(self.device)) if _can_capture(module, self._stored) else None
        use_our_attention(module)

    def _run(self, batch: ForwardBatch) -> Tensor:
        self._apply(batch.rope.positions if batch.rope else self._positions)
        self._row_by_row.on = all(len(request.tokens) <= MAX_DECODE_TOKENS for request in batch.requests)
        inputs, rows = _inputs(batch, batch.positions()), batch.adapted_rows
        if rows:  # hooks depend on more than a graph's inputs
            with self._hooks.acting(rows):
                return self._compute(batch, _to_device(self.device, inputs))
        capturable = batch.capturable if self.graphs else None
        if not (self.graphs and capturable):
            return self._compute(batch, _to_device(self.device, inputs))
        if batch.cancelled():
            raise Cancelled
        return self.graphs.run(capturable, inputs, self.device, partial(self._compute, batch))

    def _fit(self, adapter: Adapter) -> bool:
        self._hooks.add(adapter)
        return True

    def _compute(self, batch: ForwardBatch, inputs: Mapping[str, Tensor] | GraphInputs) -> Tensor:
        out = self._module(
            input_ids=inputs["tokens"],
            position_ids=inputs["positions"],
            past_key_values=batch if batch.latent else None,
            use_cache=False,
            logits_to_keep=inputs["logit_indices"],
            batch=batch,
        )
        return out.logits[0]

    def _apply(self, positions: Positions) -> None:
        if positions != self._applied[0]:
            apply_positions(self._module, self._config, positions)
            self._applied[0] = positions
            if self.graphs:
                self.graphs.forget()

    def _rope_of(self, positions: Positions) -> ModelRope:
        self._apply(positions)
        return rope_of(self._module, self._config, positions, partial(self._keys_at, positions))

    @torch.inference_mode()
    def _keys_at(self, positions: Positions, position: int) -> list[Tensor]:
        """Returns what RoPE rotates of one token at ``position``, by layer: k, or a latent layer's v, [H, 1, D]."""
        cache = Cache(Pool(self.shape, "f32", self.device), self.dtype)
        token = self._config.vocab_size // 2  # the first may be padding, which is all zeros
        batch = ForwardBatch([ForwardRequest([token], cache)])
        with batch.open_step():
            self._apply(positions)
            self._compute(batch, _to_device(self.device, _inputs(batch, [position])))
        return [cache.open_tail(i)[layer.kind == "latent"] for i, layer in enumerate(self.shape.layers)]


def _can_capture(module: Any, stored: str) -> bool:
    """True if forward passes on a GPU can be captured: bitsandbytes waits for outliers in 8 bits, and some families
    branch in Python.
    """
    return module.device.type == "cuda" and stored != "int8" and getattr(module, "_can_compile_fullgraph", False)


def _inputs(batch: ForwardBatch, positions: Sequence[int]) -> dict[str, np.ndarray]:
    """The inputs of the module for the tokens of a batch at ``positions``."""
    return {
        "tokens": np.array([batch.tokens]),
        "positions": np.array([positions]),
        "logit_indices": np.array(batch.logit_indices),
    }


def _to_device(device: torch.device, inputs: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
    return {name: torch.from_numpy(x).to(device) for name, x in inputs.items()}


def load_module(
    folder: Path, place: torch.device, precision: torch.dtype, packed: dict[str, Any]
) -> tuple[Any, ChatTokenizer]:
    """The decoder in ``folder`` as transformers loads it, and its tokenizer. ``packed`` as of
    ``bitsandbytes_options``. Raises ModelError.
    """
    with loading(folder, place):
        from transformers import AutoConfig, AutoModelForCausalLM

        silence_transformers()
        config = AutoConfig.from_pretrained(folder, **LOCAL)
        refuse_unfit(config.get_text_config(decoder=True))
        module = load_whole(AutoModelForCausalLM, folder, config=config, dtype=precision, **packed)
        module = module if packed else module.to(place)  # packed weights are on the device already
        return module, load_tokenizer(folder, getattr(module.generation_config, "eos_token_id", None))


def load_tokenizer(folder: Path, stops: int | list[int] | None) -> ChatTokenizer:
    """Load the tokenizer in ``folder`` with transformers. ``stops`` are the stop tokens in the model's config."""
    from transformers import AutoTokenizer

    silence_transformers()
    return chat_tokenizer_of(AutoTokenizer.from_pretrained(folder, **LOCAL), stops)


def silence_transformers() -> None:
    """Keep transformers from writing to the terminal."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


def load_whole(auto: Any, folder: Path, unused: str = "", **how: Any) -> Any:
    """The module that the class ``auto`` of transformers makes of the weights in ``folder``.

    Raises ValueError where weights are absent, except those whose names begin with ``unused``.
    """
    module, info = auto.from_pretrained(folder, use_safetensors=True, output_loading_info=True, **how, **LOCAL)
    absent = {*map(str, (*info["missing_keys"], *info["mismatched_keys"]))}
    if lacking := {key for key in absent if not (unused and key.startswith(unused))}:
        raise ValueError(f"it lacks {min(lacking)}")  # transformers would initialize it at random
    return module


@contextmanager
def loading(folder: Path, place: torch.device | str = "cpu") -> Iterator[None]:
    """Turn the errors of libraries that cannot load a folder into a ModelError."""
    try:
        yield
    except (UserError, AssertionError):
        raise
    except (torch.OutOfMemoryError, MemoryError) as e:
        remedy = "choose a smaller model" if str(place) == "cpu" else "use --device cpu"
        raise ModelError(f"{folder} needs more memory than {place} has", f"close programs, or {remedy}") from e
    except Exception as e:  # libraries raise anything on files that are damaged
        reason = str(e).strip().splitlines()[0] if str(e).strip() else type(e).__name__
        raise ModelError(f"{folder} does not load ({reason})", "fetch it again: localctx models pull NAME") from e


def refuse_unfit(config: Any) -> None:
    """Raise ModelError, with the reason, for a family whose cache this version would compute wrongly."""
    rope = getattr(config, "rope_parameters", None) or {}
    ropes = [r for r in rope.values() if isinstance(r, dict)] or [rope]
    odd = {*(getattr(config, "layer_types", None) or [])} - set(KINDS)
    reasons = {
        "it has an encoder": getattr(config, "is_encoder_decoder", False),
        f"its {', '.join(sorted(odd))} layers keep no KV pages": odd,
        "it picks keys by an index of its own, which has no pages": getattr(config, "index_topk", None),
        "its layers share keys and values": getattr(config, "num_kv_shared_layers", 0),
        "its RoPE frequencies change with length": any(r.get("rope_type") == _DYNAMIC for r in ropes),
    }
    for reason, applies in reasons.items():
        if applies:
            raise ModelError(f"{config.model_type} models are not supported: {reason}", "see: localctx models list")


def use_our_attention(module: Any) -> None:
    """Make ``module`` attend through ``ForwardBatch``. It then builds no masks and keeps no cache of its own."""
    from transformers import AttentionInterface

    config = module.config.get_text_config(decoder=True)
    no_latents = getattr(config, "kv_lora_rank", None) and not any(hasattr(m, "expand_kv") for m in module.modules())
    if no_latents or not getattr(module, "_supports_attention_backend", True):
        raise ModelError(f"{type(module).__name__} brings attention of its own", "see: localctx models list")
    AttentionInterface.register(ATTENTION, _attention)
    module.set_attn_implementation(ATTENTION)


def _attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    batch: ForwardBatch,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Query [1, Hq, T, D], key and value [1, H, T, D] of the new tokens; returns [1, T, Hq, Dv]."""
    layer, expand = module.layer_idx, _expansion(module)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    assert sliding_window == batch.shape.layers[layer].window, "the config has another window"
    out = batch.attend(layer, query[0], key[0], value[0], scale, expand, softcap=softcap or 0, sinks=s_aux)
    return out.transpose(0, 1)[None], None


def _expansion(module: Any) -> Expand | None:
    """Returns the function that expands latents to keys and values (MLA, arXiv 2405.04434); None for other layers."""
    if not hasattr(module, "expand_kv"):
        return None

    def expand(k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        keys, values = module.expand_kv(k[None], v[None])
        return keys[0], values[0]

    return expand
