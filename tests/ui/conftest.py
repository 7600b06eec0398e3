"""What pages showed when a test of the window failed is part of its report."""

from collections.abc import Iterator
from contextlib import suppress

import pytest
from browser import texts_shown


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo) -> Iterator:
    """Add the texts of the pages that are open."""
    report = yield
    if call.when == "call" and report.failed:
        with suppress(Exception):  # of a browser that was closed, or does not answer
            report.sections += [("a page showed", text[:4000]) for text in texts_shown()]
    return report
