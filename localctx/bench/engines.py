"""Defines the protocol of the measured engines, localctx and its peers, and opens these engines."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

from localctx.bench import ENGINES, OWN_VARIANTS
from localctx.bench.own_engines import IsCancelled, LocalctxEngine, LocalctxLlamaEngine, OwnEngine, SelectEngine
from localctx.budget import TierLimits
from localctx.engine.events import Progress
from localctx.engine.model_loader import ModelLoader
from localctx.engine.planning.cache_plan import plan_cache
from localctx.engine.planning.plan import refuse_sparse_reading
from localctx.errors import Cancelled, UserError
from localctx.models.base import Model, PagedModel
from localctx.models.hub.resolve import resolve_model
from localctx.models.llama_cpp.model import LlamaModel
from localctx.models.peers.ggufs import PeerGgufs
from localctx.models.peers.llama_cpp import LLAMA_CPP_VARIANTS, PUBLISHED, LlamaCppOptions, LlamaCppPeer
from localctx.models.peers.transformers import PeerReader, TransformersCachePeer, installed_peers, load_stock
from localctx.settings import Settings, prefill_loss

WARM = [1] * 192  # tokens read before timing, so that kernels compile and quantized caches quantize
PEER_ERRORS = (
    ValueError,
    ImportError,
    RuntimeError,
    AssertionError,
)  # raised by peers' libraries for unsupported models


class BenchEngine(Protocol):
    """An engine that the benchmark measures. ``kv`` names the format of its KV cache. ``prefills`` is False for an
    engine that forks the cache of another engine instead of prefilling the text itself.
    """

    name: str
    kv: str
    prefills: bool

    def read(self, tokens: Sequence[int]) -> int:
        """Prefill ``tokens`` after the tokens read before, and wait for the GPU. Returns the most likely next token.
        Raises Cancelled.
        """

    def decode(self, tokens: Sequence[int]) -> list[int]:
        """Read ``tokens`` one by one after the tokens read before. Returns the most likely next token after each."""

    def reset(self) -> None:
        """Drop the cache."""

    @property
    def nbytes(self) -> int:
        """Bytes of the cache's keys and values."""


class TransformersEngine:
    """The benchmark engine that runs unmodified transformers with SDPA. Its cache is a ``DynamicCache``, or the
    ``QuantizedCache`` of ``peer``.
    """

    prefills = True

    def __init__(self, module: Any, peer: TransformersCachePeer | None, chunk: int, cancelled: IsCancelled) -> None:
        self.name = "transformers QuantizedCache" if peer else "transformers DynamicCache"
        self.kv = f"{peer.backend} {peer.bits} bit" if peer else str(module.dtype).removeprefix("torch.")
        self._module, self._peer, self._chunk, self._cancelled = module, peer, chunk, cancelled
        self.reset()

    def read(self, tokens: Sequence[int]) -> int:
        for at in range(0, len(tokens), self._chunk):
            if self._cancelled():
                raise Cancelled
            logits = self._reader.forward(tokens[at : at + self._chunk])
        return int(logits.argmax())

    def decode(self, tokens: Sequence[int]) -> list[int]:
        return [int(self._reader.forward([token]).argmax()) for token in tokens]

    def reset(self) -> None:
        self._reader = PeerReader(self._module, self._peer)

    @property
    def nbytes(self) -> int:
        return self._reader.nbytes


class OwnModel(NamedTuple):
    """A model with one kind of weights that localctx runs. ``name`` is the name of this variant of localctx in
    tables.
    """

    name: str
    model: PagedModel


@dataclass
class Engines:
    """Opens the ``chosen`` engines, named as in ``bench.ENGINES``, ``bench.OWN_VARIANTS`` and ``bench.PEER_VARIANTS``.
    localctx is opened with each of ``codecs`` and each keeper of ``keeps``.

    Calls ``warn`` for each engine that cannot be measured, and ``show`` with the progress of slow preparation.
    """

    model: Model
    settings: Settings
    chosen: Sequence[str] = ENGINES
    codecs: Sequence[str] = ("int8",)
    keeps: Sequence[str] = ()
    gguf: Path | None = None
    threads: int = 1
    warn: Callable[[str], None] = lambda text: None
    cancelled: IsCancelled = lambda: False
    show: Callable[[Progress], None] = lambda progress: None
    _warned: set[str] = field(default_factory=set)

    @contextmanager
    def open(self, context: int, extra_tokens: int) -> Iterator[list[BenchEngine]]:
        """Yield the engines for texts of ``context`` tokens and ``extra_tokens`` more. Peers that fail are left out."""
        with ExitStack() as stack:
            engines: list[BenchEngine] = self._localctx_engines(context)
            engines += self._llama_cpp_engines(max(context, len(WARM)) + extra_tokens, stack)
            engines += self._transformers_engines()
            for engine in engines:
                stack.callback(engine.reset)
            yield engines

    def warm(self) -> None:
        """Warm up localctx with each codec and each kind of weights. Raises Cancelled."""
        for own in self.own_models or (None,):
            for codec in self.codecs:
                warm(self.localctx_engine(codec, len(WARM), own))

    def localctx_engine(self, codec: str, context: int, own: OwnModel | None = None) -> OwnEngine[Any]:
        """Returns the benchmark engine that runs localctx with full attention, on the engine that computes the
        model.
        """
        if self.model.engine == "torch":
            return self.paged_engine(codec, context, own=own)
        model = cast(LlamaModel, self.model)
        return LocalctxLlamaEngine(model, codec, context, self.settings.chunk, self.cancelled)

    def paged_engine(
        self, codec: str, context: int, on_device: int | None = None, own: OwnModel | None = None
    ) -> LocalctxEngine:
        """Returns the benchmark engine that runs localctx on torch, with at most ``on_device`` bytes of pages on the
        device (None: the free memory).
        """
        name, model = own or ("localctx", self.paged_model)
        plan = plan_cache(model, replace(self.settings, keep="full"), codec, context)
        if on_device is not None:
            plan = replace(plan, limits=TierLimits(on_device, 0, None))
        return LocalctxEngine(model, plan, self.settings.home / "spill", self.cancelled, name)

    @property
    def paged_model(self) -> PagedModel:
        """The model, which must be computed by torch."""
        assert self.model.engine == "torch", "other engines hold no pages"
        return cast(PagedModel, self.model)

    @cached_property
    def own_models(self) -> list[OwnModel]:
        """The models that localctx runs: the run's model, and a model for each chosen variant of localctx."""
        models = [OwnModel("localctx", cast(PagedModel, self.model))] if "localctx" in self.chosen else []
        by_weights = {self.settings.weights: cast(PagedModel, self.model)}
        for variant, changes in OWN_VARIANTS.items():
            if variant in self.chosen:
                models += self._with_changes(variant.replace(":", " "), replace(self.settings, **changes), by_weights)
        return models

    def _with_changes(self, name: str, settings: Settings, by_weights: dict[str, PagedModel]) -> list[OwnModel]:
        """Returns a list of the model under ``settings``, which is empty if the model cannot be loaded. ``by_weights``
        has the models loaded so far, so that each kind of weights is loaded once for all variants.
        """
        try:
            refuse_sparse_reading(settings)
            if settings.weights not in by_weights:
                by_weights[settings.weights] = cast(PagedModel, ModelLoader().load(settings, self.show)[0])
        except UserError as e:
            self._warn_once(f"{name} was not measured: {e}")
            return []
        return [OwnModel(name, by_weights[settings.weights].with_prefill_loss(prefill_loss(settings.reading)))]

    def _localctx_engines(self, context: int) -> list[BenchEngine]:
        engines = list[BenchEngine]()
        for own, codec in product(self.own_models, self.codecs):
            engines.append(self.localctx_engine(codec, context, own))
            if self.keeps:
                engines[-1] = source = self.paged_engine(codec, context, own=own)
                engines += [SelectEngine(source, keep) for keep in self.keeps]
        return engines

    def _llama_cpp_engines(self, max_tokens: int, stack: ExitStack) -> Iterator[BenchEngine]:
        for options in LLAMA_CPP_VARIANTS:
            name = f"{options.name} {options.kv}"
            named = f"llama.cpp:{options.weights}" in self.chosen or self._is_chosen("", name)
            if not named and not ("llama.cpp" in self.chosen and options.weights in self._by_default):
                continue
            if gguf := self._ggufs.find(options.weights, fetch=named):
                make = partial(self._open_llama_cpp, gguf, options, max_tokens, stack)
                if llama := self._usable(name, make):
                    yield llama

    @property
    def _by_default(self) -> tuple[str, ...]:
        """The weights of llama.cpp that are measured if the user chose no variant of llama.cpp."""
        return ("", PUBLISHED) if self.model.engine == "torch" else ("",)

    @cached_property
    def _ggufs(self) -> PeerGgufs:
        show = lambda phase, done, total: self.show(Progress(phase, done, total))  # noqa: E731
        return PeerGgufs(self.model, self.settings, self.gguf, self.threads, self._warn_once, show, self.cancelled)

    def _open_llama_cpp(self, gguf: Path, options: LlamaCppOptions, max_tokens: int, stack: ExitStack) -> BenchEngine:
        gpu = self.model.device.type == "cuda"
        llama = stack.enter_context(closing(LlamaCppPeer(gguf, options, max_tokens, self.threads, gpu, self.cancelled)))
        if llama.vocabulary != self.model.vocabulary:
            raise ValueError(f"{gguf} is of another model than {self.model.name}")
        return llama

    def _is_chosen(self, engine: str, name: str) -> bool:
        """Returns True if the user chose ``engine``, or the configuration that tables call ``name``."""
        return engine in self.chosen or name.replace(" ", ":", 1).replace(" ", "-") in self.chosen

    def _usable(self, name: str, make: Callable[[], BenchEngine]) -> BenchEngine | None:
        """Make and warm up a peer. Returns None, with a warning, if the peer or its library fails."""
        try:
            engine = make()
            warm(engine)
        except PEER_ERRORS as e:
            self._warn_once(f"{name} was not measured ({str(e) or type(e).__name__})".splitlines()[0])
            return None
        return engine

    def _transformers_engines(self) -> Iterator[BenchEngine]:
        quantized = sorted(installed_peers(), key=lambda p: p.bits != 4)[:1]  # one at 4 bits if there is one
        peers: list[TransformersCachePeer | None] = (
            [None] if self._is_chosen("transformers", "transformers DynamicCache") else []
        )
        peers += quantized if self._is_chosen("transformers", "transformers QuantizedCache") else []
        for peer in peers:
            make = partial(TransformersEngine, self._stock, peer, self.settings.chunk, self.cancelled)
            if engine := self._usable(peer.name if peer else "transformers", make):
                yield engine

    @cached_property
    def _stock(self) -> Any:
        return load_stock(self._folder, self.paged_model)

    @property
    def _folder(self) -> Path:
        """The model's folder. The model was already loaded, so nothing is downloaded."""
        return resolve_model(self.settings.model, self.settings.models, lambda phase, done, total: None)

    def _warn_once(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            self.warn(text)


def warm(engine: BenchEngine) -> None:
    """Read and decode a few tokens, so that one-time work is not measured later. Raises Cancelled."""
    engine.read(WARM)
    engine.decode(WARM[:1])
    engine.reset()
