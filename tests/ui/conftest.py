"""The browser of the window's tests. What pages showed when a test failed is part of its report."""

from collections.abc import Iterator
from contextlib import suppress

import pytest
from browser import Served, Tab, Watch, launched, save_saying_model, served, texts_shown
from window_in_process import opened, served_with_key


@pytest.fixture(scope="module")
def chromium() -> Iterator:
    """A browser for the tests of a file."""
    with launched() as browser:
        yield browser


@pytest.fixture(scope="module")
def brief_window(tmp_path_factory) -> Iterator[Served]:
    """A window whose answers are four words long."""
    folder = tmp_path_factory.mktemp("brief")
    model = save_saying_model(folder / "model", ["one ", "two "])
    with served(folder / "home", "--model", model, "--max-tokens", 4, "--threads", 1) as window:
        yield window


@pytest.fixture(scope="module")
def tiny_window(tmp_path_factory, tiny_model) -> Iterator:
    """A window on the tiny model, in this process, for the tests of a file."""
    with opened(tmp_path_factory.mktemp("home"), tiny_model) as window:
        yield window


@pytest.fixture(scope="module")
def tiny_address(tiny_window) -> Iterator[str]:
    """Where the pages of ``tiny_window`` are served, with its key."""
    with served_with_key(tiny_window) as address:
        yield address


@pytest.fixture
def brief_tab(chromium, brief_window) -> Iterator[Tab]:
    """A tab of ``brief_window``, of a user of its own. Afterwards, nothing was fetched from elsewhere or refused."""
    watch, context = Watch(brief_window.origin), chromium.new_context()
    yield Tab(watch.over(context.new_page())).open(brief_window.url)
    context.close()
    assert watch.seen == []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo) -> Iterator:
    """Add the texts of the pages that are open."""
    report = yield
    if call.when == "call" and report.failed:
        with suppress(Exception):  # of a browser that was closed, or does not answer
            report.sections += [("a page showed", text[:4000]) for text in texts_shown()]
    return report
