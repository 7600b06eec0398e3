"""What is measured of every engine: all read a text, then they take turns at decoding, and at reading it again."""

from collections.abc import Sequence
from functools import partial

from localctx.bench.engines import Engine
from localctx.bench.measure import DECODED, ROUND_UNITS, Bench, Key, read_units, room
from localctx.budget import measure_process

LONG = 30.0  # seconds: who reads a text for longer reads it once


def measure_speed(bench: Bench, context: int) -> None:
    """Milliseconds a token, tokens read per second and bytes of keys and values at ``context``, as far as asked for."""
    with bench.engines.open(context, room(bench.repeat)) as engines:
        for engine in engines:
            _read(bench, engine, context)
        if "memory" in bench.what:
            _memory(bench, engines, context)
        if "decode" in bench.what:
            _decode(bench, engines, context)
        if "prefill" in bench.what:
            _read_again(bench, engines, context)


def _read(bench: Bench, engine: Engine, context: int) -> None:
    text = f"reading {context:,} tokens: {engine.name} {engine.kv}"
    units = read_units(context) if engine.reads else 0
    seconds = bench.turn(text, units, partial(engine.read, bench.text(context)))
    if engine.reads and "prefill" in bench.what:
        bench.samples.add(_prefill(engine, context), tokens_per_second=context / seconds)


def _memory(bench: Bench, engines: Sequence[Engine], context: int) -> None:
    for engine in engines:
        engine.decode(bench.text(1))  # `select` sketches the pages at its first token
        nbytes, peak = engine.nbytes, measure_process().peak
        bench.samples.add(Key("memory", engine.name, engine.kv, context), bytes=nbytes, process_peak=peak)


def _decode(bench: Bench, engines: Sequence[Engine], context: int) -> None:
    for i, tokens in zip(range(bench.repeat), bench.following(context), strict=False):
        bench.noise()
        for engine in engines:
            engine.decode(tokens[:1])
            text = f"decoding at {context:,} tokens, round {i + 1} of {bench.repeat}: {engine.name} {engine.kv}"
            seconds = bench.turn(text, ROUND_UNITS, partial(engine.decode, tokens[1:]))
            bench.samples.add(Key("decode", engine.name, engine.kv, context), ms_per_token=1000 * seconds / DECODED)


def _read_again(bench: Bench, engines: Sequence[Engine], context: int) -> None:
    for engine in engines:
        if not engine.reads:
            engine.forget()  # or the pages it shares would stay
    for _ in range(1, bench.repeat):
        bench.noise()
        for engine in filter(lambda engine: engine.reads, engines):
            if context / min(bench.samples.values[_prefill(engine, context)]["tokens_per_second"]) < LONG:
                _read(bench, engine, context)


def _prefill(engine: Engine, context: int) -> Key:
    return Key("prefill", f"{engine.name} {engine.kv}", "", context)
