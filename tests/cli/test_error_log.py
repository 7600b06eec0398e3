"""Errors that nobody foresaw: one line for the user, types and frames in a log, and nothing of what was said."""

import logging
import subprocess
import sys
import threading

import pytest
from command_checks import assert_one_line

from localctx import error_log
from localctx.errors import Cancelled, InternalError, UsageError

pytestmark = pytest.mark.slow

SECRET = "the rent is 900 euros"


@pytest.fixture
def log(home):
    """The log of this test's data folder, as ``main`` starts it; afterwards everything is as it was."""
    before = threading.excepthook, error_log.sys.excepthook, error_log.sys.unraisablehook
    handlers = list(logging.getLogger().handlers)
    error_log.start_error_log()
    yield home / "localctx.log"
    threading.excepthook, error_log.sys.excepthook, error_log.sys.unraisablehook = before
    for handler in set(logging.getLogger().handlers) - set(handlers):
        logging.getLogger().removeHandler(handler)
        handler.close()


def fail(text: str) -> None:
    """Fails in a way that says ``text``, as many errors do."""
    raise KeyError(text)


def failure(text: str = SECRET) -> BaseException:
    """An error with frames."""
    try:
        fail(text)
    except KeyError as e:
        return e
    raise AssertionError


def test_a_command_that_fails_inside_says_one_line_and_where_the_log_is(home):
    code = (
        "import localctx.cli, localctx.docs\n"
        "def topics():\n"
        f"    raise KeyError({SECRET!r})\n"
        "localctx.docs.topics = topics\n"
        "localctx.cli.main()"
    )
    done = subprocess.run([sys.executable, "-c", code, "help"], capture_output=True, text=True)
    assert_one_line(done, 1, "KeyError", str(home / "localctx.log"))
    log = (home / "localctx.log").read_text()
    assert "builtins.KeyError" in log
    assert "in topics" in log
    assert SECRET not in log + done.stderr + done.stdout
    assert (home / "localctx.log").stat().st_mode & 0o777 == 0o600


def test_an_error_of_a_thread_is_logged_and_not_printed(log, capsys):
    thread = threading.Thread(target=fail, args=[SECRET])
    thread.start()
    thread.join()
    assert "in fail" in log.read_text()
    assert SECRET not in log.read_text()
    assert capsys.readouterr() == ("", "")


def test_the_cause_is_logged_too(log):
    error = ValueError(SECRET)
    error.__cause__ = failure()
    assert isinstance(error_log.explain(error), InternalError)
    text = log.read_text()
    assert text.index("builtins.ValueError") < text.index("builtins.KeyError")
    assert SECRET not in text


def test_what_a_user_can_fix_is_told_as_it_is_and_not_logged(log):
    error = UsageError("no such file", "name another")
    assert error_log.explain(error) is error
    error_log.log_error(error)
    error_log.log_error(Cancelled())
    assert not log.exists()


def test_what_libraries_log_is_written_without_its_values(log, capsys):
    logging.getLogger("a.library").warning("cannot read %s", SECRET)
    assert "a.library" in log.read_text()
    assert SECRET not in log.read_text()
    assert capsys.readouterr() == ("", "")


def test_the_log_rotates_and_stays_small(log, monkeypatch):
    handler = next(h for h in logging.getLogger().handlers if type(h).__name__ == "_ErrorLogHandler")
    handler.maxBytes = 20_000
    for _ in range(400):
        error_log.log_error(failure())
    sizes = [file.stat().st_size for file in log.parent.glob("localctx.log*")]
    assert len(sizes) == 3
    assert max(sizes) <= 21_000


def test_a_log_that_cannot_be_written_is_left(log, home, capsys):
    home.write_text("no folder")
    assert "KeyError" in str(error_log.explain(failure()))
    assert capsys.readouterr() == ("", "")


def test_memory_that_is_used_up_is_said(log):
    assert "not enough memory" in str(error_log.explain(MemoryError()))


def test_doctor_names_the_log(run, home, monkeypatch):
    from localctx import doctor

    monkeypatch.setattr(doctor, "_advice", lambda settings: {})
    assert f"log: {home / 'localctx.log'}" in run("doctor").stdout
