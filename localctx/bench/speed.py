"""Measures every engine: prefill up to each context, cache memory, and decoding in rounds."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from functools import partial

from localctx.bench.engines import BenchEngine
from localctx.bench.measure import DECODE_TOKENS, Bench, SampleKey, extra_tokens
from localctx.bench.peer_state import SavedStateFacts
from localctx.bench.time_left import LONG, decoding, reading
from localctx.budget import measure_process

_UNREAD = SavedStateFacts(0, 0.0, "")


def measure_speed(bench: Bench) -> None:
    """Measure the chosen speeds at each context: milliseconds per decoded token, prefilled tokens per second, KV bytes.

    Each engine reads the text once and stops at each context. There the engines take turns in decoding the following
    tokens, then read on. Only a prefill shorter than LONG seconds is repeated.
    """
    with bench.engines.open(bench.contexts[-1], extra_tokens(bench.repeat)) as engines:
        timed_engines = [_TimedEngine(bench, engine) for engine in engines]
        for timed in timed_engines:
            timed.plan_steps()
        for context in bench.contexts:
            _measure(bench, timed_engines, context)


def _measure(bench: Bench, timed_engines: Sequence["_TimedEngine"], context: int) -> None:
    for timed in timed_engines:
        timed.read_to(context)
    if "memory" in bench.what:
        _memory(bench, timed_engines, context)
    if "decode" in bench.what:
        for i in range(bench.repeat):
            bench.noise()
            for timed in timed_engines:
                timed.decode(context, f"round {i + 1} of {bench.repeat}")
    if "prefill" in bench.what:
        _read_again(bench, timed_engines, context)


def _memory(bench: Bench, timed_engines: Sequence["_TimedEngine"], context: int) -> None:
    for timed in timed_engines:
        timed.step(1)  # `select` makes its sketches of the pages at its first token
        nbytes, peak = timed.engine.nbytes, measure_process().peak
        bench.samples.add(timed.key("memory", context), bytes=nbytes, process_peak=peak)


def _read_again(bench: Bench, timed_engines: Sequence["_TimedEngine"], context: int) -> None:
    short = [timed for timed in timed_engines if timed.engine.prefills and timed.facts.seconds < LONG]
    for timed in timed_engines if bench.repeat > 1 else ():
        if not timed.engine.prefills:
            timed.reset()  # releases the pages it shares
    for _ in range(1, bench.repeat):
        bench.noise()
        for timed in short:
            timed.reset()
            timed.read_to(context, repeated=True)


class _TimedEngine:
    """Measures one engine, and knows the engine's position in the text. ``facts`` describes the prefill up to this
    position, without the decoding in between.
    """

    def __init__(self, bench: Bench, engine: BenchEngine) -> None:
        self._bench, self.engine, self._label = bench, engine, f"{engine.name} {engine.kv}"
        self._at, self.facts = 0, _UNREAD

    def plan_steps(self) -> None:
        """Add the engine's steps to the bench's estimate of the time left."""
        bench, before = self._bench, 0
        for context in bench.contexts:
            if "decode" in bench.what:
                bench.time_left.add(decoding(self._label, context), bench.repeat)
            if self.engine.prefills and not self._is_saved(context):
                bench.time_left.add(reading(self._label, context, before))
                if "prefill" in bench.what:
                    bench.time_left.add(reading(self._label, context, repeated=True), bench.repeat - 1)
            before = context

    def read_to(self, context: int, repeated: bool = False) -> None:
        """Move to the end of ``context`` tokens by loading a saved state or reading on, and add a sample of the prefill
        speed.
        """
        if self._at > context:
            self.reset()
        if not self._load(context):
            self._read_on(context, repeated)
        self._at = context
        if self.engine.prefills and "prefill" in self._bench.what:
            key = SampleKey("prefill", self._label, "", context, self.facts.day)
            self._bench.samples.add(key, tokens_per_second=self.facts.tokens / self.facts.seconds)

    def decode(self, context: int, which: str) -> None:
        """Decode the next tokens of the text and add a sample. The first token is not timed."""
        self.step(1)
        text = f"decoding at {context:,} tokens, {which}: {self._label}"
        seconds = self._bench.run_step(text, decoding(self._label, context), partial(self.step, DECODE_TOKENS))
        self._bench.samples.add(self.key("decode", context), ms_per_token=1000 * seconds / DECODE_TOKENS)

    def step(self, count: int) -> None:
        """Decode the next ``count`` tokens of the text."""
        self.engine.decode(self._bench.text(self._at + count, self._at))
        self._at += count

    def reset(self) -> None:
        """Move back to the start of the text."""
        self.engine.reset()
        self._at, self.facts = 0, _UNREAD

    def key(self, what: str, context: int) -> SampleKey:
        """Returns the key of this engine's samples."""
        return SampleKey(what, self.engine.name, self.engine.kv, context)

    def _is_saved(self, context: int) -> bool:
        return bool(self._bench.saved and self._bench.saved.has(self.engine, self._bench.text(context)))

    def _load(self, context: int) -> bool:
        if not (self._bench.saved and self._is_saved(context)):
            return False
        facts = self._bench.saved.load(self.engine, self._bench.text(context))
        if facts is None:
            self.reset()
            return False
        self.facts = facts
        return True

    def _read_on(self, context: int, repeated: bool) -> None:
        bench, tokens = self._bench, self._bench.text(context, self._at)
        read = partial(self.engine.read, tokens)
        if not self.engine.prefills:
            read()
            return
        before = max((n for n in bench.contexts if n <= self._at), default=0)
        step = reading(self._label, context, before, repeated)
        seconds = self.facts.seconds + bench.run_step(f"reading to {context:,} tokens: {self._label}", step, read)
        self.facts = replace(self.facts, tokens=self.facts.tokens + len(tokens), seconds=seconds)
        if bench.saved and self.facts.seconds >= LONG:
            facts = replace(self.facts, day=self.facts.day or date.today().isoformat())
            bench.saved.save(self.engine, bench.text(context), facts)
