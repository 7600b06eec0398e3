"""What is measured of every engine: all read a text, and take turns at decoding where a context ends."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from functools import partial

from localctx.bench.engines import Engine
from localctx.bench.measure import DECODED, Bench, Key, room
from localctx.bench.peer_state import SavedStateFacts
from localctx.bench.time_left import LONG, decoding, reading
from localctx.budget import measure_process

_UNREAD = SavedStateFacts(0, 0.0, "")


def measure_speed(bench: Bench) -> None:
    """Milliseconds a token, tokens read per second and bytes of keys and values at each context, as far as asked for.

    The text is read once, with a stop at every context: there all decode the tokens that follow, and read on after
    these. Only short readings are repeated.
    """
    with bench.engines.open(bench.contexts[-1], room(bench.repeat)) as engines:
        readers = [_Reader(bench, engine) for engine in engines]
        for reader in readers:
            reader.announce()
        for context in bench.contexts:
            _measure(bench, readers, context)


def _measure(bench: Bench, readers: Sequence["_Reader"], context: int) -> None:
    for reader in readers:
        reader.read_to(context)
    if "memory" in bench.what:
        _memory(bench, readers, context)
    if "decode" in bench.what:
        for i in range(bench.repeat):
            bench.noise()
            for reader in readers:
                reader.decode(context, f"round {i + 1} of {bench.repeat}")
    if "prefill" in bench.what:
        _read_again(bench, readers, context)


def _memory(bench: Bench, readers: Sequence["_Reader"], context: int) -> None:
    for reader in readers:
        reader.step(1)  # `select` sketches the pages at its first token
        nbytes, peak = reader.engine.nbytes, measure_process().peak
        bench.samples.add(reader.key("memory", context), bytes=nbytes, process_peak=peak)


def _read_again(bench: Bench, readers: Sequence["_Reader"], context: int) -> None:
    quick = [reader for reader in readers if reader.engine.reads and reader.facts.seconds < LONG]
    for reader in readers if bench.repeat > 1 else ():
        if not reader.engine.reads:
            reader.forget()  # or the pages it shares would stay
    for _ in range(1, bench.repeat):
        bench.noise()
        for reader in quick:
            reader.forget()
            reader.read_to(context, again=True)


class _Reader:
    """An engine and how far it is in the text. ``facts``: of its reading so far, what it decoded between left out."""

    def __init__(self, bench: Bench, engine: Engine) -> None:
        self._bench, self.engine, self._who = bench, engine, f"{engine.name} {engine.kv}"
        self._at, self.facts = 0, _UNREAD

    def announce(self) -> None:
        """Say what it will do."""
        bench, before = self._bench, 0
        for context in bench.contexts:
            if "decode" in bench.what:
                bench.ahead.expect(decoding(self._who, context), bench.repeat)
            if self.engine.reads and not self._is_kept(context):
                bench.ahead.expect(reading(self._who, context, before))
                if "prefill" in bench.what:
                    bench.ahead.expect(reading(self._who, context, again=True), bench.repeat - 1)
            before = context

    def read_to(self, context: int, again: bool = False) -> None:
        """Be after so many tokens of the text: by what was kept, or by reading on."""
        if self._at > context:
            self.forget()
        if not self._load(context):
            self._read_on(context, again)
        self._at = context
        if self.engine.reads and "prefill" in self._bench.what:
            key = Key("prefill", self._who, "", context, self.facts.day)
            self._bench.samples.add(key, tokens_per_second=self.facts.tokens / self.facts.seconds)

    def decode(self, context: int, which: str) -> None:
        """A turn at decoding: the tokens after what it has read, of which the first is not timed."""
        self.step(1)
        text = f"decoding at {context:,} tokens, {which}: {self._who}"
        seconds = self._bench.turn(text, decoding(self._who, context), partial(self.step, DECODED))
        self._bench.samples.add(self.key("decode", context), ms_per_token=1000 * seconds / DECODED)

    def step(self, count: int) -> None:
        """Decode the next tokens of the text."""
        self.engine.decode(self._bench.text(self._at + count, self._at))
        self._at += count

    def forget(self) -> None:
        """Begin anew."""
        self.engine.forget()
        self._at, self.facts = 0, _UNREAD

    def key(self, what: str, context: int) -> Key:
        """What a number of it is of."""
        return Key(what, self.engine.name, self.engine.kv, context)

    def _is_kept(self, context: int) -> bool:
        return bool(self._bench.kept and self._bench.kept.has(self.engine, self._bench.text(context)))

    def _load(self, context: int) -> bool:
        if not (self._bench.kept and self._is_kept(context)):
            return False
        facts = self._bench.kept.load(self.engine, self._bench.text(context))
        if facts is None:
            self.forget()
            return False
        self.facts = facts
        return True

    def _read_on(self, context: int, again: bool) -> None:
        bench, tokens = self._bench, self._bench.text(context, self._at)
        work = partial(self.engine.read, tokens)
        if not self.engine.reads:
            work()
            return
        before = max((n for n in bench.contexts if n <= self._at), default=0)
        turn = reading(self._who, context, before, again)
        seconds = self.facts.seconds + bench.turn(f"reading to {context:,} tokens: {self._who}", turn, work)
        self.facts = replace(self.facts, tokens=self.facts.tokens + len(tokens), seconds=seconds)
        if bench.kept and seconds >= LONG:
            facts = replace(self.facts, day=self.facts.day or date.today().isoformat())
            bench.kept.save(self.engine, bench.text(context), facts)
