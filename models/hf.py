"""Any decoder model that transformers loads, driven over our Cache through a registered attention function."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from copy import copy
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from localctx.errors import Cancelled, ModelError
from localctx.kernels import cpu
from localctx.kernels.warm import warm
from localctx.kv.attention import Expand
from localctx.kv.cache import Cache
from localctx.kv.pool import Pool
from localctx.kv.rope import Rope
from localctx.kv.rows import FEW
from localctx.models.base import Feed, Tokenizer
from localctx.models.fingerprint import fingerprint, hash_weights
from localctx.models.geometry import KINDS, geometry_of, shape_of
from localctx.models.lean import lean
from localctx.models.linear import block_linears, weight_bytes
from localctx.models.rope import ModelRope, Positions, apply_positions, parse_rope, said_of, stretched
from localctx.models.step import Step
from localctx.models.tokens import ChatTokenizer
from localctx.models.weights import packing, refuse_weights

ATTENTION = "localctx"
HERE: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
_NAMES = ("_name_or_path", "transformers_version", "architectures")  # of a config: they decide nothing
_UNSTEADY = "dynamic"  # keys of two frequencies would meet in one cache


class TransformersModel:
    """See ``localctx.models.base.Model``. ``rope`` as in ``stretch``; ``stored``: the weights are full, int8 or nf4."""

    def __init__(
        self,
        module: Any,
        tokenizer: Any = None,
        *,
        name: str = "",
        weights: dict[str, str] | None = None,
        rope: str = "auto",
        stored: str = "full",
    ) -> None:
        self.name, self._module, self._weights, self._stored = name, module.eval(), weights or {}, stored
        self._config = module.config.get_text_config(decoder=True)
        self._trained = said_of(self._config)
        self.trained: int = self._config.max_position_embeddings
        self.geometry = geometry_of(self._config)
        self.nbytes = weight_bytes(module)
        self._placed: list[Positions] = [self._trained]  # what the module computes with now; views share it
        self._ropes: dict[str, ModelRope | None] = {}
        self.stretch(rope)
        self.shape = shape_of(self._config)
        self.device, self.dtype = module.device, module.dtype
        self._chat = ChatTokenizer(tokenizer, _stop_ids(module, tokenizer))
        self.tokenizer: Tokenizer = self._chat
        use_our_attention(module)
        self._lean = lean(module)

    @property
    def context(self) -> int:
        """See ``Model``."""
        return self._said["max_position_embeddings"]

    @property
    def rope(self) -> Rope | None:
        """See ``Model``."""
        if self._stretch not in self._ropes:
            self._ropes[self._stretch] = self._rope_of(self._said) if self._said.get("rope_parameters") else None
        return self._ropes[self._stretch]

    @property
    def vocabulary(self) -> int:
        """How many tokens it knows."""
        return self._config.vocab_size

    def stretch(self, rope: str) -> None:
        """See ``Model``."""
        self._said, self._stretch = stretched(self._trained, rope), rope
        self._place(self._said)

    def view(self) -> "TransformersModel":
        """See ``Model``."""
        return copy(self)

    def fingerprint(self, codec: str) -> bytes:
        """See ``Model``."""
        tokenizer, template = self._chat.identity
        return fingerprint(
            codec,
            self.shape,
            config={k: v for k, v in {**self._config.to_dict(), **self._said}.items() if k not in _NAMES},
            computed_by=f"transformers {version('transformers')}",
            weights=self._weights,
            precision=str(self.dtype) + ("" if self._stored == "full" else f" {self._stored}"),
            tokenizer=tokenizer,
            template=template,
        )

    def forward(
        self, tokens: Sequence[int], cache: Cache, keep: int = 1, cancelled: Callable[[], bool] = lambda: False
    ) -> Tensor:
        """See ``Model``."""
        return self.forward_each([Feed(tokens, cache, keep)], cancelled)[0]

    @torch.inference_mode()
    def forward_each(self, feeds: Sequence[Feed], cancelled: Callable[[], bool] = lambda: False) -> list[Tensor]:
        """See ``Model``."""
        brief = [self._lean is not None and len(feed.tokens) <= FEW for feed in feeds]
        with ExitStack() as begun:
            found = dict[bool, Iterator[Tensor]]()
            for way in sorted(set(brief)):
                step = Step([feed for feed, its in zip(feeds, brief, strict=True) if its == way], cancelled)
                begun.enter_context(step.begun())
                found[way] = iter(self._run(step, brief=way))
        return [next(found[way]) for way in brief]

    @torch.inference_mode()
    def glance(self, tokens: Sequence[int], cache: Cache, layer: int) -> tuple[Tensor, Tensor]:
        """See ``Model``."""
        step = Step([Feed(tokens, cache)], until=layer)
        with suppress(Cancelled), step.begun():
            self._run(step)
        assert step.seen, f"there is no layer {layer}"
        return step.seen

    def _run(
        self, step: Step, *, brief: bool = False, position: int | None = None, said: Positions | None = None
    ) -> list[Tensor]:
        """Logits of each feed. It begins where its cache says, unless ``position`` does; keys turn as the caches say,
        unless ``said`` does. ``brief``: without transformers' modules.
        """
        self._place(said or step.said or self._said)
        tokens, places = step.tokens, step.places(position)
        if brief:
            assert self._lean
            return step.split(self._lean.run(step, tokens, places))
        out = self._module(
            input_ids=torch.tensor([tokens], device=self.device),
            position_ids=torch.tensor([places], device=self.device),
            past_key_values=step if step.latent else None,
            use_cache=False,
            logits_to_keep=torch.tensor(step.kept, device=self.device),
            step=step,
        )
        return step.split(out.logits[0])

    def _place(self, said: Positions) -> None:
        if said is not self._placed[0]:
            apply_positions(self._module, self._config, said)
            self._placed[0] = said

    def _rope_of(self, said: Positions) -> ModelRope:
        self._place(said)
        return ModelRope(self._module, self._config, said, partial(self._rotating_at, said))

    @torch.inference_mode()
    def _rotating_at(self, said: Positions, position: int) -> list[Tensor]:
        """One token alone at ``position``: of each layer what RoPE turned, k or a latent layer's v, [H, 1, D]."""
        cache = Cache(Pool(self.shape, "f32", self.device), self.dtype)
        word = self._config.vocab_size // 2  # the first may be padding, which is all zeros
        step = Step([Feed([word], cache)])
        with step.begun():
            self._run(step, position=position, said=said)
        return [cache.open_tail(i)[layer.kind == "latent"] for i, layer in enumerate(self.shape.layers)]


def load_model(
    folder: Path,
    name: str,
    device: str = "auto",
    dtype: str = "auto",
    threads: int = 0,
    rope: str = "auto",
    weights: str = "full",
) -> TransformersModel:
    """The model in ``folder`` (config.json, *.safetensors, tokenizer). Nothing is fetched, no code of it is run.

    ``threads`` 0 leaves torch and numba as many as they chose; ``rope`` as in ``Model.stretch``; ``weights`` as in the
    settings. Raises ModelError for a folder transformers cannot load or a family that would be computed wrongly.
    """
    parse_rope(rope)  # before the work that nonsense would waste
    place = pick_device(device)
    precision = pick_dtype(dtype, place)
    refuse_weights(weights, place, precision)
    packed = packing(weights, place)
    if threads:
        torch.set_num_threads(threads)
        cpu.set_threads(threads)
    with ThreadPoolExecutor() as pool:  # on another core, while this one imports
        warmed, hashes = pool.submit(warm), pool.submit(hash_weights, folder)
        module, tokenizer = _load(folder, place, precision, packed)
        warmed.result()
        if place.type == "cpu":
            block_linears(module, weights)
        return TransformersModel(module, tokenizer, name=name, weights=hashes.result(), rope=rope, stored=weights)


def _load(folder: Path, place: torch.device, precision: torch.dtype, packed: dict[str, Any]) -> tuple[Any, Any]:
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    with loading(folder, place):
        config = AutoConfig.from_pretrained(folder, **HERE)
        refuse_unfit(config.get_text_config(decoder=True))
        module = load_whole(AutoModelForCausalLM, folder, config=config, dtype=precision, **packed)
        module = module if packed else module.to(place)  # what is packed is there already
        return module, AutoTokenizer.from_pretrained(folder, **HERE)


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
def loading(folder: Path, place: torch.device) -> Iterator[None]:
    """Turn what transformers says of a folder that it cannot load into a ModelError, and keep it quiet otherwise."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    except torch.OutOfMemoryError as e:
        raise ModelError(f"{folder} needs more memory than {place} has", "close programs, or use --device cpu") from e
    except (OSError, ValueError, KeyError, AttributeError, ImportError, RuntimeError, NotImplementedError) as e:
        reason = str(e).strip().splitlines()[0] if str(e).strip() else type(e).__name__
        raise ModelError(f"{folder} does not load ({reason})", "fetch it again: localctx models pull NAME") from e


def pick_device(device: str) -> torch.device:
    """``auto`` is the first GPU, or the CPU. Raises ModelError for a device that is not there."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise ModelError(f"there is no {device} here", "use --device cpu, or install the CUDA build of torch")
    if device.split(":")[0] not in ("cpu", "cuda"):
        raise ModelError(f"{device!r} is not a device localctx computes on", "use --device cpu, cuda or auto")
    return torch.device(device)


def pick_dtype(dtype: str, device: torch.device) -> torch.dtype:
    """``auto`` is bf16 where the processor multiplies it natively, else f32: emulated bf16 prefills 5 times slower."""
    named = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
    if dtype in named:
        return named[dtype]
    if dtype != "auto":
        raise ModelError(f"there is no precision {dtype!r}", f"use one of: auto, {', '.join(named)}")
    if device.type != "cpu":
        return torch.bfloat16
    has = torch.cpu.get_capabilities()
    return torch.bfloat16 if has.get("avx512_bf16") or has.get("amx_bf16") or has.get("bf16") else torch.float32


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
    step: Step,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Query [1, Hq, T, D], key and value [1, H, T, D] of the new tokens; returns [1, T, Hq, Dv]."""
    if step.cancelled():
        raise Cancelled
    layer, expand = module.layer_idx, _expansion(module)
    if layer == step.until:
        step.seen = step.take() if expand else (key[0], value[0])
        raise Cancelled
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


def _stop_ids(module: Any, tokenizer: Any) -> frozenset[int]:
    configured = getattr(module.generation_config, "eos_token_id", None)
    ids = configured if isinstance(configured, list) else [configured]
    return frozenset(i for i in (*ids, getattr(tokenizer, "eos_token_id", None)) if i is not None)
