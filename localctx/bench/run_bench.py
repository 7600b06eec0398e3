"""A run: everything asked for, of each the shortest context first."""

from contextlib import suppress

from localctx.bench.measure import SPEED, Bench
from localctx.bench.speed import measure_speed
from localctx.bench.store_and_spill import announce, reopen, spill
from localctx.errors import Cancelled


def run(bench: Bench) -> None:
    """Measure until all is done, or it is stopped: ``bench.samples`` have what there is."""
    with suppress(Cancelled):
        bench.engines.warm()
        announce(bench)
        if SPEED & {*bench.what}:
            measure_speed(bench)
        for context in bench.contexts:
            if "reopen" in bench.what:
                reopen(bench, context)
            if "spill" in bench.what:
                spill(bench, context)
