"""A run: everything asked for, the shortest context first."""

from contextlib import suppress

from localctx.bench.measure import SPEED, Bench
from localctx.bench.ours import reopen, spill
from localctx.bench.speed import measure_speed
from localctx.errors import Cancelled


def run(bench: Bench) -> None:
    """Measure until all is done, or it is stopped: ``bench.samples`` have what there is."""
    with suppress(Cancelled):
        bench.engines.warm()
        for context in sorted(bench.contexts):
            if SPEED & {*bench.what}:
                measure_speed(bench, context)
            if "reopen" in bench.what:
                reopen(bench, context)
            if "spill" in bench.what:
                spill(bench, context)
