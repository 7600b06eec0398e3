"""Measures localctx alone: reopening a document from the store, and decoding with most pages on disk."""

import ctypes
import mmap
import os
import sys
import tempfile
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

from localctx.bench.measure import DECODE_TOKENS, QUESTION_TOKENS, Bench, SampleKey
from localctx.bench.own_engines import LocalctxEngine, SelectEngine
from localctx.bench.time_left import BenchStep, decoding, reading
from localctx.engine.persistence.persister import CacheIdentity
from localctx.kv.pool import Pool
from localctx.store.store import Store

ON_DEVICE = 8  # one in this many pages is on the device, the others are on disk
_SYNC, _PAGEOUT = 4, 21  # flags of Linux's msync and madvise
_COLD = 4  # number of first tokens of a round, each after dropping the page cache
_LABEL = "localctx"
_REOPENING = BenchStep("reopening", 1)


def plan_steps(bench: Bench) -> None:
    """Add the steps of reopening and spilling to the bench's estimate of the time left."""
    codecs, keepers = len(bench.engines.codecs), 1 + len(bench.engines.keeps)
    for context in bench.contexts:
        if "reopen" in bench.what:
            bench.time_left.add(reading(_LABEL, context), codecs)
            bench.time_left.add(_REOPENING, 2 * codecs * bench.repeat)
        if "spill" in bench.what:
            bench.time_left.add(reading(_LABEL, context), 2 * codecs)
            bench.time_left.add(decoding(_LABEL, context), 2 * (DECODE_TOKENS + 1) * keepers * codecs * bench.repeat)


def reopen(bench: Bench, context: int) -> None:
    """Measure milliseconds to the first token after a document of ``context`` tokens, in three cases: prefilled and
    persisted, reopened with its files dropped from the system's page cache, and reopened with them in it.
    """
    home = bench.engines.settings.home
    home.mkdir(parents=True, exist_ok=True)
    for codec in bench.engines.codecs:
        with tempfile.TemporaryDirectory(dir=home, prefix="bench-") as folder:
            document = _ReopenedDocument(bench, codec, context, Path(folder))
            read = document.seconds(f"reading and keeping {context:,} tokens", reading(_LABEL, context))
            for _ in range(bench.repeat):
                bench.noise()
                drop_files(Path(folder))
                cold, warm = (document.seconds(f"reopening {context:,} tokens", _REOPENING) for _ in range(2))
                numbers = {"reopen_ms": 1000 * cold, "reopen_cached_ms": 1000 * warm, "read_ms": 1000 * read}
                numbers["times_sooner"] = read / cold
                bench.samples.add(SampleKey("reopen", "localctx", codec, context), **numbers)


class _ReopenedDocument:
    """A document of ``context`` tokens, persisted in the store in ``folder`` when it is first read."""

    def __init__(self, bench: Bench, codec: str, context: int, folder: Path) -> None:
        self._bench, self._folder = bench, folder
        self._tokens, self._question = bench.text(context), bench.text(context + QUESTION_TOKENS, context)
        self._engine = bench.engines.localctx_engine(codec, context)
        model = bench.engines.model
        self._identity = CacheIdentity(model.fingerprint(codec), model.name, codec)

    def seconds(self, text: str, step: BenchStep) -> float:
        """Returns the seconds to the first token of an answer, without the time to close the document."""
        with ExitStack() as cleanup:
            return self._bench.run_step(text, step, partial(self._first_token, cleanup))

    def _first_token(self, cleanup: ExitStack) -> None:
        store = cleanup.enter_context(closing(Store(self._folder)))
        persister = self._engine.persister(store, self._identity, self._tokens)
        cleanup.callback(self._engine.forget)
        cache = self._engine.start()
        cleanup.callback(self._engine.reset)
        persister.restore(cache)
        persister.register(cache)
        cleanup.callback(persister.close, cache)
        self._engine.read_more(self._tokens[cache.length :], persister)
        self._engine.read_more(self._question)


def spill(bench: Bench, context: int) -> None:
    """Measure milliseconds per token in three cases: 7/8 of the pages on disk with the system's page cache dropped
    before each token, the same with the page cache filled by earlier tokens, and all pages in memory.
    """
    for codec in bench.engines.codecs:
        pages = bench.engines.paged_model.shape.cache_bytes(codec, context, 0)
        in_memory = _read(bench, bench.engines.paged_engine(codec, context), context)
        spilled = _read(bench, bench.engines.paged_engine(codec, context, pages // ON_DEVICE), context)
        for i in range(bench.repeat):
            bench.noise()
            at = context + i * (DECODE_TOKENS + 1)
            for pair in zip(in_memory, spilled, strict=True):
                _compare(bench, context, *pair, bench.text(at + DECODE_TOKENS + 1, at))
        for engine in (*in_memory, *spilled):
            engine.reset()


def _read(bench: Bench, source: LocalctxEngine, context: int) -> list[LocalctxEngine]:
    """Let ``source`` read the text. Returns ``source``, and the engines with the keeper ``select`` that fork its
    cache.
    """
    text = bench.text(context)
    title = f"reading {context:,} tokens: {source.name} {source.kv}"
    bench.run_step(title, reading(_LABEL, context), partial(source.read, text))
    engines = [source, *(SelectEngine(source, keep) for keep in bench.engines.keeps)]
    for engine in engines[1:]:
        engine.read(text)
    for engine in engines:
        engine.decode(text[:1])  # `select` makes its sketches of the pages at its first token
    return engines


def _compare(bench: Bench, context: int, in_memory: LocalctxEngine, spilled: LocalctxEngine, tokens: list[int]) -> None:
    steps = {"disk": (spilled, tokens[:_COLD]), "cached": (spilled, tokens[_COLD:]), "in_memory": (in_memory, tokens)}
    numbers = {}
    for name, (engine, tokens_now) in steps.items():
        text = f"decoding at {context:,} tokens, {name.replace('_', ' ')}: {spilled.name} {spilled.kv}"
        seconds = 0.0
        for token in tokens_now:
            if name == "disk":
                drop_pages(spilled)
            seconds += bench.run_step(text, decoding(_LABEL, context), partial(engine.decode, [token]))
        numbers[f"{name}_ms_per_token"] = 1000 * seconds / len(tokens_now)
    bench.samples.add(SampleKey("spill", spilled.name, spilled.kv, context), **numbers)


def drop_pages(engine: LocalctxEngine) -> None:
    """Drop the spilled pages from the system's page cache, on Linux."""
    assert engine.cache
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None)
    for start, stop in _address_ranges(engine.cache.pool):
        address_range = ctypes.c_void_p(start), ctypes.c_size_t(stop - start)
        libc.msync(*address_range, _SYNC)
        libc.madvise(*address_range, _PAGEOUT)


def _address_ranges(pool: Pool) -> list[list[int]]:
    """Returns the address ranges of spilled pages. Adjacent ranges are joined, because the system evicts a large folio
    only as a whole.
    """
    places = sorted((payload.data_ptr(), len(payload)) for payload in map(pool.payload, pool.disk_tier))
    ranges = list[list[int]]()
    for start, length in places:
        stop = start + -(-length // mmap.PAGESIZE) * mmap.PAGESIZE
        if ranges and start == ranges[-1][1]:
            ranges[-1][1] = stop
        else:
            ranges.append([start, stop])
    return ranges


def drop_files(folder: Path) -> None:
    """Drop the files below ``folder`` from the system's page cache, on Linux."""
    if sys.platform != "linux":
        return
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
