"""Pytest hooks that print how long the same tests took in the last run, and record how long they take now."""

import time

import pytest

_RECORD = "localctx/seconds"  # in pytest's cache: seconds, by the arguments of the run
_begun = time.monotonic()


def pytest_report_header(config: pytest.Config) -> str | None:
    """Returns a line for the top of the output; none in the first run."""
    seconds = config.cache.get(_RECORD, {}).get(_name(config))
    return f"time: the last run took {_minutes(seconds)}" if seconds is not None else None


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Record the time of a run that was not interrupted."""
    config = session.config
    if exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) and not hasattr(config, "workerinput"):
        recorded = config.cache.get(_RECORD, {}) | {_name(config): round(time.monotonic() - _begun)}
        config.cache.set(_RECORD, recorded)


def _name(config: pytest.Config) -> str:
    return " ".join(map(str, config.invocation_params.args))


def _minutes(seconds: int) -> str:
    return f"{seconds} s" if seconds < 100 else f"{seconds / 60:.0f} min"
