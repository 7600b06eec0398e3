"""The browser of the window's tests. What pages showed when a test failed is part of its report."""

from collections.abc import Iterator
from contextlib import suppress

import pytest
from browser import launched, texts_shown


@pytest.fixture(scope="module")
def chromium() -> Iterator:
    """A browser for the tests of a file."""
    with launched() as browser:
        yield browser


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo) -> Iterator:
    """Add the texts of the pages that are open."""
    report = yield
    if call.when == "call" and report.failed:
        with suppress(Exception):  # of a browser that was closed, or does not answer
            report.sections += [("a page showed", text[:4000]) for text in texts_shown()]
    return report
