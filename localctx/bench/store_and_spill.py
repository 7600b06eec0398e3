"""What only we do: a document reopened from the store, and decoding with most pages on disk."""

import ctypes
import mmap
import os
import sys
import tempfile
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

from localctx.bench.engines import LocalctxEngine, Selecting
from localctx.bench.measure import DECODED, QUESTION, Bench, Key
from localctx.bench.time_left import BenchStep, decoding, reading
from localctx.engine.persist import CacheIdentity, CachePersister
from localctx.kv.pool import Pool
from localctx.store.store import Store

ON_DEVICE = 8  # one page of so many is on the device, the others on disk
_SYNC, _PAGEOUT = 4, 21  # of msync and madvise, on Linux
_COLD = 4  # tokens of a round before each of which the page cache is dropped
_US = "localctx"
_REOPENING = BenchStep("reopening", 1)


def announce(bench: Bench) -> None:
    """Say what reopening and spilling will take."""
    codecs, ways = len(bench.engines.codecs), 1 + len(bench.engines.keeps)
    for context in bench.contexts:
        if "reopen" in bench.what:
            bench.ahead.expect(reading(_US, context), codecs)
            bench.ahead.expect(_REOPENING, 2 * codecs * bench.repeat)
        if "spill" in bench.what:
            bench.ahead.expect(reading(_US, context), 2 * codecs)
            bench.ahead.expect(decoding(_US, context), 2 * (DECODED + 1) * ways * codecs * bench.repeat)


def reopen(bench: Bench, context: int) -> None:
    """Milliseconds to the first token after a document of ``context`` tokens: read from nothing (and kept), reopened
    with its files out of the page cache, and reopened with them in it.
    """
    home = bench.engines.settings.home
    home.mkdir(parents=True, exist_ok=True)
    for codec in bench.engines.codecs:
        with tempfile.TemporaryDirectory(dir=home, prefix="bench-") as folder:
            document = _Document(bench, codec, context, Path(folder))
            read = document.seconds(f"reading and keeping {context:,} tokens", reading(_US, context))
            for _ in range(bench.repeat):
                bench.noise()
                drop_files(Path(folder))
                cold, warm = (document.seconds(f"reopening {context:,} tokens", _REOPENING) for _ in range(2))
                numbers = {"reopen_ms": 1000 * cold, "reopen_cached_ms": 1000 * warm, "read_ms": 1000 * read}
                bench.samples.add(Key("reopen", "localctx", codec, context), **numbers)


class _Document:
    """A document of ``context`` tokens that is kept in the store in ``folder`` once it was read."""

    def __init__(self, bench: Bench, codec: str, context: int, folder: Path) -> None:
        self._bench, self._folder = bench, folder
        self._tokens, self._question = bench.text(context), bench.text(context + QUESTION, context)
        self._engine = bench.engines.ours(codec, context)
        model = bench.engines.model
        self._identity = CacheIdentity(model.fingerprint(codec), model.name, codec)

    def seconds(self, text: str, turn: BenchStep) -> float:
        """Until the first token of an answer; what comes after is not counted."""
        with ExitStack() as after:
            return self._bench.turn(text, turn, partial(self._first_token, after))

    def _first_token(self, after: ExitStack) -> None:
        store = after.enter_context(closing(Store(self._folder)))
        keeping = CachePersister(lambda: store, [], self._identity, self._tokens)
        cache = self._engine.start()
        after.callback(self._engine.forget)
        keeping.restore(cache)
        keeping.enter(cache)
        after.callback(keeping.close, cache)
        self._engine.go_on(self._tokens[cache.length :], keeping)
        self._engine.go_on(self._question)


def spill(bench: Bench, context: int) -> None:
    """Milliseconds a token with 7/8 of the pages on disk and none of those in the system's page cache, which is dropped
    before every token; with what is in that cache from the tokens before; and with all pages in memory.
    """
    for codec in bench.engines.codecs:
        pages = bench.engines.model.shape.cache_bytes(codec, context, 0)
        in_memory = _read(bench, bench.engines.ours(codec, context), context)
        spilled = _read(bench, bench.engines.ours(codec, context, pages // ON_DEVICE), context)
        for i in range(bench.repeat):
            bench.noise()
            at = context + i * (DECODED + 1)
            for pair in zip(in_memory, spilled, strict=True):
                _compare(bench, context, *pair, bench.text(at + DECODED + 1, at))
        for engine in (*in_memory, *spilled):
            engine.forget()


def _read(bench: Bench, source: LocalctxEngine, context: int) -> list[LocalctxEngine]:
    """``source``, and those that select from what it has read."""
    text = bench.text(context)
    title = f"reading {context:,} tokens: {source.name} {source.kv}"
    bench.turn(title, reading(_US, context), partial(source.read, text))
    engines = [source, *(Selecting(source, keep) for keep in bench.engines.keeps)]
    for engine in engines[1:]:
        engine.read(text)
    for engine in engines:
        engine.decode(text[:1])  # `select` sketches the pages at its first token
    return engines


def _compare(bench: Bench, context: int, in_memory: LocalctxEngine, spilled: LocalctxEngine, tokens: list[int]) -> None:
    turns = {"disk": (spilled, tokens[:_COLD]), "cached": (spilled, tokens[_COLD:]), "in_memory": (in_memory, tokens)}
    numbers = {}
    for name, (engine, some) in turns.items():
        text = f"decoding at {context:,} tokens, {name.replace('_', ' ')}: {spilled.name} {spilled.kv}"
        seconds = 0.0
        for token in some:
            if name == "disk":
                drop_pages(spilled)
            seconds += bench.turn(text, decoding(_US, context), partial(engine.decode, [token]))
        numbers[f"{name}_ms_per_token"] = 1000 * seconds / len(some)
    bench.samples.add(Key("spill", spilled.name, spilled.kv, context), **numbers)


def drop_pages(engine: LocalctxEngine) -> None:
    """Take what was spilled out of the system's page cache, where that can be asked for."""
    assert engine.cache
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None)
    for start, stop in _spans(engine.cache.pool):
        place = ctypes.c_void_p(start), ctypes.c_size_t(stop - start)
        libc.msync(*place, _SYNC)
        libc.madvise(*place, _PAGEOUT)


def _spans(pool: Pool) -> list[list[int]]:
    """Where spilled pages lie, neighbours joined: what the system keeps in one piece goes as a whole, or stays."""
    places = sorted((payload.data_ptr(), len(payload)) for payload in map(pool.payload, pool.disk_tier))
    spans = list[list[int]]()
    for start, length in places:
        stop = start + -(-length // mmap.PAGESIZE) * mmap.PAGESIZE
        if spans and start == spans[-1][1]:
            spans[-1][1] = stop
        else:
            spans.append([start, stop])
    return spans


def drop_files(folder: Path) -> None:
    """Take the files below ``folder`` out of the system's page cache, where that can be asked for."""
    for path in folder.rglob("*") if hasattr(os, "posix_fadvise") else ():
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
