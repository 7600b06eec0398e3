"""Any decoder model that transformers loads, driven over our Cache through a registered attention function."""

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
from localctx.kv.cache import Cache
from localctx.kv.decode_batch import MAX_DECODE_TOKENS
from localctx.kv.graph_inputs import GraphInputs
from localctx.kv.pool import Pool
from localctx.models.base import ForwardRequest
from localctx.models.blocked_linear import RowByRow, weight_bytes, weight_count
from localctx.models.chat_tokenizer import ChatTokenizer, chat_tokenizer_of
from localctx.models.cuda_graphs import CudaCapture, GraphCache
from localctx.models.forward_batch import ForwardBatch
from localctx.models.geometry import KINDS
from localctx.models.local_model import LocalModel
from localctx.models.module_rope import apply_positions, rope_of
from localctx.models.rope import ModelRope, Positions

ATTENTION = "localctx"
HERE: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
_UNSTEADY = "dynamic"  # keys of two frequencies would meet in one cache


class TransformersModel(LocalModel):
    """See ``localctx.models.base.Model``: ``module`` is what transformers loaded, whose linear layers multiply as
    ``row_by_row`` says where they are blocked; ``how`` as of ``LocalModel``.
    """

    def __init__(
        self, module: Any, tokenizer: ChatTokenizer | None = None, *, row_by_row: RowByRow | None = None, **how: Any
    ) -> None:
        self._module, self._row_by_row = module.eval(), row_by_row or RowByRow()
        super().__init__(module.config.get_text_config(decoder=True), tokenizer or ChatTokenizer(None), **how)
        self.computed_by = f"transformers {version('transformers')}"
        self.nbytes, self.parameters = weight_bytes(module), weight_count(module)
        self.sums_depend_on_rows = module.device.type == "cpu" and module.dtype != torch.float32
        self._placed: list[Positions] = [self._trained]  # what the module computes with now; views share it
        self.device, self.dtype, self.precision = module.device, module.dtype, module.dtype
        self.graphs = GraphCache(CudaCapture(self.device)) if _repeats(module, self._stored) else None
        use_our_attention(module)

    def _run(self, step: ForwardBatch) -> Tensor:
        self._place(step.rope.said if step.rope else self._said)
        self._row_by_row.on = all(len(feed.tokens) <= MAX_DECODE_TOKENS for feed in step.feeds)
        told = _told(step, step.places())
        steady = step.steady if self.graphs else None
        if not (self.graphs and steady):
            return self._compute(step, _on(self.device, told))
        if step.cancelled():
            raise Cancelled
        return self.graphs.run(steady, told, self.device, partial(self._compute, step))

    def _compute(self, step: ForwardBatch, told: Mapping[str, Tensor] | GraphInputs) -> Tensor:
        out = self._module(
            input_ids=told["tokens"],
            position_ids=told["places"],
            past_key_values=step if step.latent else None,
            use_cache=False,
            logits_to_keep=told["kept"],
            step=step,
        )
        return out.logits[0]

    def _place(self, said: Positions) -> None:
        if said != self._placed[0]:
            apply_positions(self._module, self._config, said)
            self._placed[0] = said
            if self.graphs:
                self.graphs.forget()

    def _rope_of(self, said: Positions) -> ModelRope:
        self._place(said)
        return rope_of(self._module, self._config, said, partial(self._rotating_at, said))

    @torch.inference_mode()
    def _rotating_at(self, said: Positions, position: int) -> list[Tensor]:
        """One token alone at ``position``: of each layer what RoPE turned, k or a latent layer's v, [H, 1, D]."""
        cache = Cache(Pool(self.shape, "f32", self.device), self.dtype)
        word = self._config.vocab_size // 2  # the first may be padding, which is all zeros
        step = ForwardBatch([ForwardRequest([word], cache)])
        with step.begun():
            self._place(said)
            self._compute(step, _on(self.device, _told(step, [position])))
        return [cache.open_tail(i)[layer.kind == "latent"] for i, layer in enumerate(self.shape.layers)]


def _repeats(module: Any, stored: str) -> bool:
    """Whether its steps on a GPU can be captured: bitsandbytes waits for outliers in 8 bits, families choose in Python
    what they compute.
    """
    return module.device.type == "cuda" and stored != "int8" and getattr(module, "_can_compile_fullgraph", False)


def _told(step: ForwardBatch, places: Sequence[int]) -> dict[str, np.ndarray]:
    """What the module is told of the tokens of a step, at positions ``places``."""
    return {"tokens": np.array([step.tokens]), "places": np.array([places]), "kept": np.array(step.kept)}


def _on(device: torch.device, told: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
    return {name: torch.from_numpy(x).to(device) for name, x in told.items()}


def load_module(
    folder: Path, place: torch.device, precision: torch.dtype, packed: dict[str, Any]
) -> tuple[Any, ChatTokenizer]:
    """The decoder in ``folder`` as transformers loads it, and its tokenizer. ``packed`` as ``weights.packing`` says it.
    Raises ModelError.
    """
    with loading(folder, place):
        from transformers import AutoConfig, AutoModelForCausalLM

        hush()
        config = AutoConfig.from_pretrained(folder, **HERE)
        refuse_unfit(config.get_text_config(decoder=True))
        module = load_whole(AutoModelForCausalLM, folder, config=config, dtype=precision, **packed)
        module = module if packed else module.to(place)  # what is packed is there already
        return module, load_tokenizer(folder, getattr(module.generation_config, "eos_token_id", None))


def load_tokenizer(folder: Path, stops: int | list[int] | None) -> ChatTokenizer:
    """The tokenizer in ``folder`` as transformers loads it. ``stops`` as of ``chat_tokenizer_of``."""
    from transformers import AutoTokenizer

    hush()
    return chat_tokenizer_of(AutoTokenizer.from_pretrained(folder, **HERE), stops)


def hush() -> None:
    """Keep transformers from writing to the terminal."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


def load_whole(auto: Any, folder: Path, unused: str = "", **how: Any) -> Any:
    """The weights in ``folder`` as a module that the class ``auto`` of transformers makes.

    Raises ValueError where weights are absent, but for those whose names begin with ``unused``.
    """
    module, info = auto.from_pretrained(folder, use_safetensors=True, output_loading_info=True, **how, **HERE)
    absent = {*map(str, (*info["missing_keys"], *info["mismatched_keys"]))}
    if lacking := {key for key in absent if not (unused and key.startswith(unused))}:
        raise ValueError(f"it lacks {min(lacking)}")  # transformers would make it up at random
    return module


@contextmanager
def loading(folder: Path, place: torch.device | str = "cpu") -> Iterator[None]:
    """Turn what libraries say of a folder that they cannot load into a ModelError."""
    try:
        yield
    except (UserError, AssertionError):
        raise
    except (torch.OutOfMemoryError, MemoryError) as e:
        remedy = "choose a smaller model" if str(place) == "cpu" else "use --device cpu"
        raise ModelError(f"{folder} needs more memory than {place} has", f"close programs, or {remedy}") from e
    except Exception as e:  # whatever libraries make of files that are not what they should be
        reason = str(e).strip().splitlines()[0] if str(e).strip() else type(e).__name__
        raise ModelError(f"{folder} does not load ({reason})", "fetch it again: localctx models pull NAME") from e


def refuse_unfit(config: Any) -> None:
    """Raises ModelError, with the reason, for a family whose cache this version would compute wrongly."""
    rope = getattr(config, "rope_parameters", None) or {}
    ropes = [r for r in rope.values() if isinstance(r, dict)] or [rope]
    odd = {*(getattr(config, "layer_types", None) or [])} - set(KINDS)
    reasons = {
        "it has an encoder": getattr(config, "is_encoder_decoder", False),
        f"its {', '.join(sorted(odd))} layers keep no KV pages": odd,
        "it picks keys by an index of its own, which has no pages": getattr(config, "index_topk", None),
        "its layers share keys and values": getattr(config, "num_kv_shared_layers", 0),
        "its RoPE frequencies change with length": any(r.get("rope_type") == _UNSTEADY for r in ropes),
    }
    for reason, applies in reasons.items():
        if applies:
            raise ModelError(f"{config.model_type} models are not supported: {reason}", "see: localctx models list")


def use_our_attention(module: Any) -> None:
    """Make ``module`` attend through ``attend_cache``. It then builds no masks and keeps no cache of its own."""
    from transformers import AttentionInterface

    config = module.config.get_text_config(decoder=True)
    mute = getattr(config, "kv_lora_rank", None) and not any(hasattr(m, "expand_kv") for m in module.modules())
    if mute or not getattr(module, "_supports_attention_backend", True):
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
    step: ForwardBatch,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Query [1, Hq, T, D], key and value [1, H, T, D] of the new tokens; returns [1, T, Hq, Dv]."""
    layer, expand = module.layer_idx, _expansion(module)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    assert sliding_window == step.shape.layers[layer].window, "the config tells another window"
    out = step.attend(layer, query[0], key[0], value[0], scale, expand, softcap=softcap or 0, sinks=s_aux)
    return out.transpose(0, 1)[None], None


def _expansion(module: Any) -> Expand | None:
    """How a latent layer makes keys and values of its latents (MLA, arXiv 2405.04434); None for another layer."""
    if not hasattr(module, "expand_kv"):
        return None

    def expand(k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        keys, values = module.expand_kv(k[None], v[None])
        return keys[0], values[0]

    return expand
