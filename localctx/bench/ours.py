"""What only we do: a document reopened from the store, and decoding with most pages on disk."""

import ctypes
import os
import sys
import tempfile
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

from localctx.bench.engines import Localctx, Selecting
from localctx.bench.measure import QUESTION, ROUND_UNITS, Bench, Key, read_units
from localctx.engine.keep import Identity, Keeping
from localctx.store.store import Store

ON_DEVICE = 8  # one page of so many is on the device, the others on disk
_SYNC, _PAGEOUT = 4, 21  # of msync and madvise, on Linux


def reopen(bench: Bench, context: int) -> None:
    """Milliseconds to the first token after a document of ``context`` tokens: read from nothing (and kept), reopened
    with its files out of the page cache, and reopened with them in it.
    """
    home = bench.engines.settings.home
    home.mkdir(parents=True, exist_ok=True)
    for codec in bench.engines.codecs:
        with tempfile.TemporaryDirectory(dir=home, prefix="bench-") as folder:
            document = _Document(bench, codec, context, Path(folder))
            read = document.seconds(f"reading and keeping {context:,} tokens", read_units(context))
            for _ in range(bench.repeat):
                bench.noise()
                drop_files(Path(folder))
                cold, warm = (document.seconds(f"reopening {context:,} tokens", 1) for _ in range(2))
                numbers = {"reopen_ms": 1000 * cold, "reopen_cached_ms": 1000 * warm, "read_ms": 1000 * read}
                bench.samples.add(Key("reopen", "localctx", codec, context), **numbers)


class _Document:
    """A document of ``context`` tokens that is kept in the store in ``folder`` once it was read."""

    def __init__(self, bench: Bench, codec: str, context: int, folder: Path) -> None:
        self._bench, self._folder = bench, folder
        self._tokens, self._question = bench.text(context), bench.text(context + QUESTION)[context:]
        self._engine = bench.engines.ours(codec, context)
        model = bench.engines.model
        self._identity = Identity(model.fingerprint(codec), model.name, codec)

    def seconds(self, text: str, units: float) -> float:
        """Until the first token of an answer; what comes after is not counted."""
        with ExitStack() as after:
            return self._bench.turn(text, units, partial(self._first_token, after))

    def _first_token(self, after: ExitStack) -> None:
        store = after.enter_context(closing(Store(self._folder)))
        keeping = Keeping(lambda: store, [], self._identity, self._tokens)
        cache = self._engine.start()
        after.callback(self._engine.forget)
        keeping.restore(cache)
        keeping.enter(cache)
        after.callback(keeping.close, cache)
        self._engine.go_on(self._tokens[cache.length :], keeping)
        self._engine.go_on(self._question)


def spill(bench: Bench, context: int) -> None:
    """Milliseconds a token with 7/8 of the pages on disk, beside the same with all of them in memory.

    Before every round what the system has of the spilled pages in its page cache is dropped; ``first_ms`` is what the
    token after that takes.
    """
    for codec in bench.engines.codecs:
        pages = bench.engines.model.shape.cache_bytes(codec, context, 0)
        in_memory = _read(bench, bench.engines.ours(codec, context), context)
        spilled = _read(bench, bench.engines.ours(codec, context, pages // ON_DEVICE), context)
        for _, tokens in zip(range(bench.repeat), bench.following(context), strict=False):
            bench.noise()
            for pair in zip(in_memory, spilled, strict=True):
                _compare(bench, context, *pair, tokens)
        for engine in (*in_memory, *spilled):
            engine.forget()


def _read(bench: Bench, source: Localctx, context: int) -> list[Localctx]:
    """``source``, and those that select from what it has read."""
    text = bench.text(context)
    bench.turn(
        f"reading {context:,} tokens: {source.name} {source.kv}", read_units(context), partial(source.read, text)
    )
    engines = [source, *(Selecting(source, keep) for keep in bench.engines.keeps)]
    for engine in engines[1:]:
        engine.read(text)
    for engine in engines:
        engine.decode(text[:1])  # `select` sketches the pages at its first token
    return engines


def _compare(bench: Bench, context: int, in_memory: Localctx, spilled: Localctx, tokens: list[int]) -> None:
    text = f"decoding at {context:,} tokens, %s: {spilled.name} {spilled.kv}"
    first, rest = tokens[:1], tokens[1:]
    in_memory.decode(first)
    fast = bench.turn(text % "in memory", ROUND_UNITS, partial(in_memory.decode, rest))
    drop_pages(spilled)
    cold = bench.turn(text % "on disk", ROUND_UNITS, partial(spilled.decode, first))
    slow = bench.turn(text % "on disk", ROUND_UNITS, partial(spilled.decode, rest))
    numbers = {
        "ms_per_token": (cold + slow) / len(tokens),
        "first_ms": cold,
        "in_memory_ms_per_token": fast / len(rest),
    }
    key = Key("spill", spilled.name, spilled.kv, context)
    bench.samples.add(key, **{name: 1000 * seconds for name, seconds in numbers.items()})


def drop_pages(engine: Localctx) -> None:
    """Take what was spilled out of the system's page cache, where that can be asked for."""
    assert engine.cache
    if sys.platform != "linux":
        return
    libc, pool = ctypes.CDLL(None), engine.cache.pool
    for page in pool.disk:
        payload = pool.payload(page)
        place = ctypes.c_void_p(payload.data_ptr()), ctypes.c_size_t(len(payload))
        libc.msync(*place, _SYNC)
        libc.madvise(*place, _PAGEOUT)


def drop_files(folder: Path) -> None:
    """Take the files below ``folder`` out of the system's page cache, where that can be asked for."""
    for path in folder.rglob("*") if hasattr(os, "posix_fadvise") else ():
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
