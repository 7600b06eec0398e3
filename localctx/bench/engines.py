"""Engines: ours and peers behind one Protocol; the one place that opens them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol

import torch

from localctx.bench import ENGINES
from localctx.budget import TierLimits
from localctx.engine.cache_plan import CachePlan, plan_cache
from localctx.errors import Cancelled, UserError
from localctx.kv.cache import Cache
from localctx.kv.keepers import make_keeper
from localctx.models.local_model import LocalModel
from localctx.models.peer_llama_cpp import WAYS, LlamaCppOptions, LlamaCppPeer, llama_is_here
from localctx.models.peer_llama_gguf import write_gguf
from localctx.models.peer_transformers import PeerReader, TransformersCachePeer, installed_peers, load_stock
from localctx.models.resolve import resolve_model
from localctx.settings import Settings

WARM = [1] * 192  # tokens read before anything is timed: kernels are compiled, quantized caches have quantized
REFUSALS = (ValueError, ImportError, RuntimeError, AssertionError)  # what peers' libraries refuse a model with
Stopped = Callable[[], bool]


class Engine(Protocol):
    """Something that reads tokens and predicts. ``kv``: how it keeps keys and values; ``reads``: it reads a text by
    itself, rather than take over what another has read.
    """

    name: str
    kv: str
    reads: bool

    def read(self, tokens: Sequence[int]) -> int:
        """Read ``tokens`` after what was read; the likeliest successor, for which a GPU is waited. Raises Cancelled."""

    def decode(self, tokens: Sequence[int]) -> list[int]:
        """Read ``tokens`` one by one after what was read; the likeliest successor of each."""

    def forget(self) -> None:
        """Give back what was read."""

    @property
    def nbytes(self) -> int:
        """Bytes of keys and values of what was read."""


class LocalctxEngine:
    """Ours, with a cache as ``memory`` says."""

    def __init__(self, model: LocalModel, memory: CachePlan, spill: Path, stopped: Stopped) -> None:
        self.name, self.kv, self.reads = "localctx", memory.codec, True
        self._model, self._memory, self._spill, self._stopped = model, memory, spill, stopped
        self.cache: Cache | None = None

    def read(self, tokens: Sequence[int]) -> int:
        """See ``Engine``."""
        (self.cache or self.start()).phase = "reading"
        return self.go_on(tokens)

    def start(self) -> Cache:
        """An empty cache, in place of what was read."""
        self.forget()
        self.cache = self._memory.new_cache(self._model, self._spill)
        return self.cache

    def go_on(self, tokens: Sequence[int], after_each: Callable[[Cache], None] = lambda cache: None) -> int:
        """Read more ``tokens``, a chunk at a time; the likeliest successor, 0 of none. Raises Cancelled."""
        assert self.cache, "it was not started"
        logits = torch.zeros(1)
        for at in range(0, len(tokens), self._memory.chunk):
            logits = self._model.forward(tokens[at : at + self._memory.chunk], self.cache, 1, self._stopped)
            after_each(self.cache)
        return int(logits.argmax())

    def decode(self, tokens: Sequence[int]) -> list[int]:
        """See ``Engine``."""
        assert self.cache, "nothing was read"
        self.cache.phase = "answering"
        return [int(self._model.forward([t], self.cache, 1, self._stopped).argmax()) for t in tokens]

    def forget(self) -> None:
        """See ``Engine``."""
        if self.cache:
            self.cache.drop()
        self.cache = None

    @property
    def nbytes(self) -> int:
        """Sealed pages wherever they are, sketches of them, and the open page."""
        assert self.cache, "nothing was read"
        return self.cache.bytes_with(0) + self.cache.sketch_bytes()


class Selecting(LocalctxEngine):
    """Ours with ``select``, which reads as ``full`` does: it goes on from what ``source`` has read."""

    def __init__(self, source: LocalctxEngine, keep: str) -> None:
        super().__init__(source._model, source._memory, source._spill, source._stopped)
        self.name, self.reads, self._source, self._keep = f"localctx {keep}", False, source, keep

    def read(self, tokens: Sequence[int]) -> int:
        """Fork what ``source`` has read, to these ``tokens``. What comes after them only ``source`` knows: 0."""
        self.forget()
        assert self._source.cache, "its source reads first"
        self.cache = self._source.cache.fork()
        self.cache.keeper = make_keeper(self._keep, self.cache.length)
        return 0


class Transformers:
    """transformers as it is, with SDPA: ``DynamicCache``, or the ``QuantizedCache`` of a ``peer``."""

    reads = True

    def __init__(self, module: Any, peer: TransformersCachePeer | None, chunk: int, stopped: Stopped) -> None:
        self.name = "transformers QuantizedCache" if peer else "transformers DynamicCache"
        self.kv = f"{peer.backend} {peer.bits} bit" if peer else str(module.dtype).removeprefix("torch.")
        self._module, self._peer, self._chunk, self._stopped = module, peer, chunk, stopped
        self.forget()

    def read(self, tokens: Sequence[int]) -> int:
        """See ``Engine``."""
        for at in range(0, len(tokens), self._chunk):
            if self._stopped():
                raise Cancelled
            logits = self._reader.forward(tokens[at : at + self._chunk])
        return int(logits.argmax())

    def decode(self, tokens: Sequence[int]) -> list[int]:
        """See ``Engine``."""
        return [int(self._reader.forward([token]).argmax()) for token in tokens]

    def forget(self) -> None:
        """See ``Engine``."""
        self._reader = PeerReader(self._module, self._peer)

    @property
    def nbytes(self) -> int:
        """See ``Engine``."""
        return self._reader.nbytes


@dataclass
class Engines:
    """Opens the engines that were ``chosen``: ours in each of ``codecs``, also with ``select`` as ``keeps`` say, and
    peers, all of each or by ``bench.PEER_WAYS``. ``say`` is told which peers are not measured, and why.
    """

    model: LocalModel
    settings: Settings
    chosen: Sequence[str] = ENGINES
    codecs: Sequence[str] = ("int8",)
    keeps: Sequence[str] = ()
    gguf: Path | None = None
    threads: int = 1
    say: Callable[[str], None] = lambda text: None
    stopped: Stopped = lambda: False
    _told: set[str] = field(default_factory=set)

    @contextmanager
    def open(self, context: int, room: int) -> Iterator[list[Engine]]:
        """All of them, for texts of ``context`` tokens and ``room`` more; peers that can do it."""
        with ExitStack() as stack:
            engines: list[Engine] = self._ours(context) if "localctx" in self.chosen else []
            engines += self._llamas(max(context, len(WARM)) + room, stack)
            engines += self._transformers()
            for engine in engines:
                stack.callback(engine.forget)
            yield engines

    def warm(self) -> None:
        """Have ours read and decode a little. Raises Cancelled."""
        for codec in self.codecs:
            warm(self.ours(codec, len(WARM)))

    def ours(self, codec: str, context: int, on_device: int | None = None) -> LocalctxEngine:
        """Ours with everything seen; ``on_device`` bytes of pages on the device at most (None: what is free)."""
        memory = plan_cache(self.model, replace(self.settings, keep="full"), codec, context)
        if on_device is not None:
            memory = replace(memory, limits=TierLimits(on_device, 0, None))
        return LocalctxEngine(self.model, memory, self.settings.home / "spill", self.stopped)

    def _ours(self, context: int) -> list[Engine]:
        engines = list[Engine]()
        for codec in self.codecs:
            source = self.ours(codec, context)
            engines += [source, *(Selecting(source, keep) for keep in self.keeps)]
        return engines

    def _llamas(self, room: int, stack: ExitStack) -> Iterator[Engine]:
        ways = [way for way in WAYS if self._is_chosen("llama.cpp", f"{way.name} {way.kv}")]
        for way in ways if ways and self._gguf else ():
            if llama := self._able(f"{way.name} {way.kv}", partial(self._llama, way, room, stack)):
                yield llama

    def _llama(self, way: LlamaCppOptions, room: int, stack: ExitStack) -> Engine:
        assert self._gguf
        gpu = self.model.device.type == "cuda"
        llama = stack.enter_context(closing(LlamaCppPeer(self._gguf, way, room, self.threads, gpu, self.stopped)))
        if llama.vocabulary != self.model.vocabulary:
            raise ValueError(f"{self._gguf} is of another model than {self.model.name}")
        return llama

    def _is_chosen(self, engine: str, name: str) -> bool:
        """Whether an engine, or the way of it that tables name so, is to be measured."""
        return engine in self.chosen or name.replace(" ", ":", 1).replace(" ", "-") in self.chosen

    def _able(self, name: str, make: Callable[[], Engine]) -> Engine | None:
        """A peer that has read and decoded a little; None where it, or its library, cannot."""
        try:
            engine = make()
            warm(engine)
        except REFUSALS as e:
            self._tell(f"{name} was not measured ({str(e) or type(e).__name__})".splitlines()[0])
            return None
        return engine

    @cached_property
    def _gguf(self) -> Path | None:
        """The file for llama.cpp; made of the model's own once, where none was named."""
        if not llama_is_here():
            self._tell("llama.cpp is not measured: pip install llama-cpp-python")
            return None
        made = self.settings.home / "bench" / f"{self.model.fingerprint('f32').hex()[:16]}.gguf"
        if self.gguf or made.exists():
            return self.gguf or made
        try:
            write_gguf(self._folder, made)
        except UserError as e:
            self._tell(f"llama.cpp is not measured: {e}")
            return None
        return made

    def _transformers(self) -> Iterator[Engine]:
        quantized = sorted(installed_peers(), key=lambda p: p.bits != 4)[:1]  # the first at 4 bits, or what there is
        peers: list[TransformersCachePeer | None] = (
            [None] if self._is_chosen("transformers", "transformers DynamicCache") else []
        )
        peers += quantized if self._is_chosen("transformers", "transformers QuantizedCache") else []
        for peer in peers:
            make = partial(Transformers, self._stock, peer, self.settings.chunk, self.stopped)
            if engine := self._able(peer.name if peer else "transformers", make):
                yield engine

    @cached_property
    def _stock(self) -> Any:
        return load_stock(self._folder, self.model)

    @property
    def _folder(self) -> Path:
        return resolve_model(self.settings.model, self.settings.models, lambda phase, done, total: None)

    def _tell(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self.say(text)


def warm(engine: Engine) -> None:
    """Have it read and decode a little: what it does only once is not timed then. Raises Cancelled."""
    engine.read(WARM)
    engine.decode(WARM[:1])
    engine.forget()
