"""Measures how many tokens per second several sequences decode side by side, one forward pass per token."""

from collections.abc import Sequence
from functools import partial

from localctx.bench.engines import OwnModel
from localctx.bench.measure import DECODE_TOKENS, Bench, SampleKey
from localctx.bench.own_engines import LocalctxEngine, decode_each
from localctx.bench.time_left import decoding, reading

SEQUENCES = 8
_LABEL = "localctx"
_APART = 37  # offset in tokens between the texts of two sequences


def plan_parallel_steps(bench: Bench) -> None:
    """Add the steps of decoding side by side to the bench's estimate of the time left."""
    context, engines = bench.contexts[0], len(bench.engines.codecs) * len(bench.engines.own_models)
    bench.time_left.add(reading(_LABEL, context), SEQUENCES * engines)
    for label in (_LABEL, f"{_LABEL} side by side"):
        bench.time_left.add(decoding(label, context), bench.repeat * engines)


def parallel(bench: Bench) -> None:
    """Measure tokens per second of SEQUENCES texts side by side, and of one alone, at the shortest context, in
    alternating rounds. Each text has its own pages.
    """
    for own in bench.engines.own_models:
        for codec in bench.engines.codecs:
            _measure(bench, own, codec, bench.contexts[0])


def _measure(bench: Bench, own: OwnModel, codec: str, context: int) -> None:
    engines = [bench.engines.paged_engine(codec, context, own=own) for _ in range(SEQUENCES)]
    try:
        for i, engine in enumerate(engines):
            text = f"reading {context:,} tokens, sequence {i + 1} of {SEQUENCES}: {own.name} {codec}"
            read = partial(engine.read, _text(bench, context, i))
            bench.run_step(text, reading(_LABEL, context), read)
        for _ in range(bench.repeat):
            bench.noise()
            _round(bench, engines, context)
    finally:
        for engine in engines:
            engine.reset()


def _round(bench: Bench, engines: Sequence[LocalctxEngine], context: int) -> None:
    rates = list[float]()
    for several, label in ((engines[:1], _LABEL), (engines, f"{_LABEL} side by side")):
        decode_each(several, [1] * len(several))  # not timed, so that weights and threads are warm
        steps = partial(_decode, several, bench.text(DECODE_TOKENS))
        text = f"decoding {len(several)} at {context:,} tokens: {engines[0].name} {engines[0].kv}"
        seconds = bench.run_step(text, decoding(label, context), steps)
        rates.append(len(several) * DECODE_TOKENS / seconds)
    one, many = rates
    numbers = {"tokens_per_second": many, "alone_per_second": one, "times": many / one}
    bench.samples.add(SampleKey("parallel", engines[0].name, engines[0].kv, context), **numbers)


def _decode(engines: Sequence[LocalctxEngine], tokens: Sequence[int]) -> None:
    for at in range(len(tokens)):
        decode_each(engines, [tokens[(at + i) % len(tokens)] for i in range(len(engines))])


def _text(bench: Bench, context: int, i: int) -> list[int]:
    """Returns the first ``context`` tokens, rotated to a different start for each sequence."""
    text, start = bench.text(context), i * _APART % context
    return text[start:] + text[:start]
