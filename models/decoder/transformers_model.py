"""TransformersModel: a decoder loaded by transformers that uses our Cache through a registered attention function."""

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
from localctx.kv.backends.backend import MAX_DECODE_TOKENS
from localctx.kv.batches.graph_inputs import GraphInputs
from localctx.kv.cache import Cache
from localctx.kv.pool import Pool
from localctx.models.adapter import Adapter
from localctx.models.architecture.text_decoder import loading_options
from localctx.models.architecture.unsupported import UnsupportedModel
from localctx.models.base import ForwardRequest
from localctx.models.decoder.attention_function import use_our_attention
from localctx.models.decoder.cuda_graphs import CudaCapture, GraphCache
from localctx.models.decoder.forward_batch import ForwardBatch
from localctx.models.decoder.local_model import LocalModel
from localctx.models.decoder.module_adapter import ModuleAdapters
from localctx.models.decoder.module_rope import apply_positions, rope_of
from localctx.models.decoder.rope import ModelRope, Positions
from localctx.models.decoder.trial import refuse_unfit
from localctx.models.quantized.bitsandbytes_layers import packed_by
from localctx.models.quantized.blocked_linear import RowByRow, weight_bytes, weight_count
from localctx.models.quantized.fused_experts import packed_experts
from localctx.models.tokenizer.chat_tokenizer import ChatTokenizer, chat_tokenizer_of

_EXPERTS = "experts 1"  # raise the number when results of quantized experts change in the last digits
LOCAL: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}


class TransformersModel(LocalModel):
    """A decoder that transformers loaded as ``module``, with the methods of ``PagedModel``. ``row_by_row`` is a switch
    that its blocked linear layers share. While it is on, the result of a row does not depend on other rows. ``how`` are
    the keyword arguments of ``LocalModel``.
    """

    def __init__(
        self, module: Any, tokenizer: ChatTokenizer | None = None, *, row_by_row: RowByRow | None = None, **how: Any
    ) -> None:
        self._module, self._row_by_row = module.eval(), row_by_row or RowByRow()
        self._hooks = ModuleAdapters(module, self._row_by_row)
        super().__init__(module.config.get_text_config(decoder=True), tokenizer or ChatTokenizer(None), **how)
        mixed = _EXPERTS if any(packed_experts(module)) else ""
        by = f"transformers {version('transformers')}", packed_by(module), mixed
        self.computed_by = ", ".join(filter(None, by))
        self.nbytes, self.parameters = weight_bytes(module), weight_count(module)
        self.batch_invariant = module.device.type != "cpu" or module.dtype == torch.float32
        self._applied: list[Positions] = [self._trained]  # the module's current positions; views share the list
        self.device, self.dtype, self.precision = module.device, module.dtype, module.dtype
        can_capture = _can_capture(module, self._stored) and not self.shape.states
        self.graphs = GraphCache(CudaCapture(self.device)) if can_capture else None
        use_our_attention(module)

    def _run(self, batch: ForwardBatch) -> Tensor:
        self._apply(batch.rope.positions if batch.rope else self._positions)
        self._row_by_row.on = all(len(request.tokens) <= MAX_DECODE_TOKENS for request in batch.requests)
        inputs, rows = _inputs(batch, batch.positions()), batch.adapted_rows
        if rows:  # no graph: hooks depend on more than graph inputs
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
        try:
            with batch.complete():
                out = self._module(
                    input_ids=inputs["tokens"],
                    position_ids=inputs["positions"],
                    past_key_values=batch if batch.is_cache else None,
                    use_cache=False,
                    logits_to_keep=inputs["logit_indices"],
                )
        except UnsupportedModel as e:
            raise e.of(self._config.model_type) from e
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
        """Returns, for each layer, the tensor that RoPE rotates for one token at ``position``: the key, or the value of
        a latent layer, [H, 1, D].
        """
        cache = Cache(Pool(self.shape, "f32", self.device), self.dtype)
        token = self._config.vocab_size // 2  # token 0 may be padding, whose embedding is zero
        batch = ForwardBatch([ForwardRequest([token], cache)], self.layers)
        with batch.open_step():
            self._apply(positions)
            self._compute(batch, _to_device(self.device, _inputs(batch, [position])))
        return [cache.open_tail(i)[layer.kind == "latent"] for i, layer in enumerate(self.shape.layers)]


def _can_capture(module: Any, stored: str) -> bool:
    """Returns True if forward passes can be captured as CUDA graphs. In int8 they cannot, because bitsandbytes waits
    for the device to find outliers. Some families cannot, because their code branches in Python.
    """
    return module.device.type == "cuda" and stored != "int8" and getattr(module, "_can_compile_fullgraph", False)


def _inputs(batch: ForwardBatch, positions: Sequence[int]) -> dict[str, np.ndarray]:
    """Returns the module's inputs for the tokens of a batch at ``positions``."""
    return {
        "tokens": np.array([batch.tokens]),
        "positions": np.array([positions]),
        "logit_indices": np.array(batch.logit_indices),
    }


def _to_device(device: torch.device, inputs: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
    return {name: torch.from_numpy(x).to(device) for name, x in inputs.items()}


def load_module(folder: Path, place: torch.device, precision: torch.dtype, weights: str) -> tuple[Any, ChatTokenizer]:
    """Load the decoder in ``folder`` with transformers on the device ``place`` in ``precision``, with its weights in
    the format ``weights``: full, int8, int4 or nf4. Returns the module and its tokenizer.

    Raises ModelError.
    """
    with loading(folder, place):
        from transformers import AutoConfig

        from localctx.models.quantized.quantizing_loaders import forget_packing, packing_options

        silence_transformers()
        config = AutoConfig.from_pretrained(folder, **LOCAL)
        refuse_unfit(config)
        kind, how = loading_options(folder, config)
        packing = packing_options(how["config"], weights, place)
        module = load_whole(kind, folder, dtype=precision, **how, **packing)
        forget_packing(module)
        module = module if packing else module.to(place)  # quantized weights are on the device already
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
    """Returns the module that the transformers class ``auto`` loads from ``folder``.

    Raises ValueError for missing weights, except those whose names begin with ``unused``.
    """
    module, info = auto.from_pretrained(folder, use_safetensors=True, output_loading_info=True, **how, **LOCAL)
    absent = {*map(str, (*info["missing_keys"], *info["mismatched_keys"]))}
    if lacking := {key for key in absent if not (unused and key.startswith(unused))}:
        raise ValueError(f"it lacks {min(lacking)}")  # transformers would initialize it randomly
    return module


@contextmanager
def loading(folder: Path, place: torch.device | str = "cpu") -> Iterator[None]:
    """Within the block, convert the errors of libraries that load the model in ``folder`` to ModelError. ``place`` is
    the device that the model is loaded to.
    """
    try:
        yield
    except (UserError, AssertionError):
        raise
    except (torch.OutOfMemoryError, MemoryError) as e:
        remedy = "choose a smaller model" if str(place) == "cpu" else "use --device cpu"
        raise ModelError(f"{folder} needs more memory than {place} has", f"close programs, or {remedy}") from e
    except Exception as e:  # libraries raise anything for damaged files
        reason = str(e).strip().splitlines()[0] if str(e).strip() else type(e).__name__
        raise ModelError(f"{folder} does not load ({reason})", "fetch it again: localctx models pull NAME") from e
