"""Runs all chosen measurements, each from the shortest context to the longest."""

from contextlib import suppress

from localctx.bench.measure import SPEED, Bench
from localctx.bench.parallel import parallel, plan_parallel_steps
from localctx.bench.speed import measure_speed
from localctx.bench.store_and_spill import plan_steps, reopen, spill
from localctx.errors import Cancelled


def run(bench: Bench) -> None:
    """Measures until all is done or the user cancels. ``bench.samples`` has the results."""
    with suppress(Cancelled):
        bench.engines.warm()
        plan_steps(bench)
        if "parallel" in bench.what:
            plan_parallel_steps(bench)
        if SPEED & {*bench.what}:
            measure_speed(bench)
        if "parallel" in bench.what:
            parallel(bench)
        for context in bench.contexts:
            if "reopen" in bench.what:
                reopen(bench, context)
            if "spill" in bench.what:
                spill(bench, context)
