"""Runs all chosen measurements, each from the shortest to the longest context."""

from contextlib import suppress

from localctx.bench.measure import SPEED, Bench
from localctx.bench.parallel import parallel, plan_parallel_steps
from localctx.bench.speed import measure_speed
from localctx.bench.store_and_spill import plan_steps, reopen, spill
from localctx.errors import Cancelled


def run(bench: Bench) -> None:
    """Measure until all measurements are done or the user cancels. ``bench.samples`` has the results."""
    with suppress(Cancelled):
        if bench.engines.own_models or {"reopen", "spill"} & {*bench.what}:
            bench.announce("warming up")
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
