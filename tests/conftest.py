"""Tiny random models made on the spot, data folders of their own, and the real command."""

import gc
import io
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import settings
from parse_in_process import parsed_here  # noqa: F401
from roomy_stack import call_with_room
from run_times import pytest_report_header, pytest_sessionfinish  # noqa: F401
from tiny_models import save_sharp_model, save_tiny_model
from window_in_process import opened, served_in_process
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

os.environ["HF_HUB_OFFLINE"] = "1"  # the tests' own processes fetch nothing
os.environ.setdefault("LOCALCTX_MODEL", "smollm2-135m-instruct")  # where no test names one: a fifth of the download
os.environ.setdefault("LOCALCTX_EFFECTIVE_CONTEXT", "1000000")  # random models are of no size that bears anything
os.environ.setdefault("LOCALCTX_CAREFUL", "off")  # no passage makes a question likelier to them
os.environ.setdefault("LOCALCTX_REPEATS", "allow")  # and they say the same again and again
if "PYTEST_XDIST_WORKER" in os.environ:  # each on a core of its own: threads that wait for each other spin
    os.environ |= {name: os.environ.get(name, "1") for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS")}
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it, and hand that down
settings.register_profile("patient", deadline=None)  # how long an example takes says how busy the machine is
settings.load_profile("patient")

# What both processes would compile first, each for itself, while tests wait.
COMPILED = (
    "from localctx.kernels.cpu.warmup import warm_prefill as warm; warm()",
    "from localctx.kernels.cpu.warmup import warm_experts as warm; warm()",
    "from localctx.kernels.cpu.warmup import warm_decoding as warm; warm()",
    "from localctx.kernels.cpu.warmup import warm_selection as warm; warm()",
)

KERNELS = "localctx/kernels"  # in pytest's cache: the folder of the kernels that an earlier run compiled
MARKED_FILE = re.compile(r"^pytestmark = .*\bpytest\.mark\.(process|slow)\b", re.MULTILINE)


def pytest_configure(config: pytest.Config) -> None:
    """Have kernels compiled, where that was not done, before several processes begin. Elsewhere, kernels for GPUs run
    without one: Triton looks when it is imported.
    """
    if getattr(config.option, "numprocesses", None):
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # or each process compiles every test anew
        _compile(config.cache)
        return
    import torch

    if not torch.cuda.is_available():
        os.environ.setdefault("TRITON_INTERPRET", "1")


def _compile(done: pytest.Cache) -> None:
    from localctx.kernels import CACHE

    if done.get(KERNELS, "") == str(CACHE) and CACHE.exists():
        return
    begun = [subprocess.Popen([sys.executable, "-c", code]) for code in COMPILED]
    assert [process.wait() for process in begun] == [0] * len(begun)
    done.set(KERNELS, str(CACHE))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave files unread if all their tests have a mark that is left out (``not slow``): reading them takes longer than
    a hundred quick tests.
    """
    if not collection_path.match("test_*.py"):
        return None
    left_out = re.findall(r"\bnot (\w+)", config.option.markexpr)
    marked = MARKED_FILE.search(collection_path.read_text("utf-8")) if left_out else None
    return True if marked and marked[1] in left_out else None


class FileByFile(LoadFileScheduling):
    """Gives each file to one process. The first process begins with the window's tests, and the others take those last:
    two browsers at once slow each other down.
    """

    def _assign_work_unit(self, node: WorkerController) -> None:
        is_first = node.gateway.id == "gw0"
        preferred = (scope for scope in self.workqueue if scope.startswith("tests/ui/") == is_first)
        if scope := next(preferred, None):
            self.workqueue.move_to_end(scope, last=False)
        super()._assign_work_unit(node)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log) -> FileByFile:
    """How tests are divided among processes."""
    return FileByFile(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run a ``browser`` test once more if it fails, because a browser that shares two cores with all else may lose a
    click. The summary names it (RERUN) with the reason, so that a fault that comes and goes is seen.
    """
    for item in items:
        if item.get_closest_marker("browser"):
            item.add_marker(pytest.mark.flaky(reruns=1))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool:
    """Call a test as pytest does, but with room for frames."""
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    call_with_room(lambda: pyfuncitem.obj(**arguments))
    return True


def pytest_collection_finish() -> None:
    """Keep what is there before the tests out of what is searched for garbage, which takes half a second each time."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Why tests were skipped, a line for each reason with the files and how many tests of each; and how tests failed
    that were run once more.
    """
    reasons: dict[str, Counter[str]] = {}
    for report in terminalreporter.stats.get("skipped", ()):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        reasons.setdefault(reason, Counter())[Path(report.nodeid.partition("::")[0]).stem] += 1
    if reasons:
        terminalreporter.section("skipped")
    for reason, files in sorted(reasons.items()):
        terminalreporter.line(f"{reason}: " + ", ".join(f"{file} {n}" for file, n in files.items()))
    for report in terminalreporter.stats.get("rerun", ()):
        terminalreporter.section(f"run once more: {report.nodeid}")
        terminalreporter.line(str(report.longrepr))
        for title, text in report.sections:
            terminalreporter.section(title, "-")
            terminalreporter.line(text)


@pytest.fixture(autouse=True)
def online(monkeypatch) -> None:
    """What a test that goes offline sets is undone after it."""
    monkeypatch.setenv("LOCALCTX_OFFLINE", "")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory) -> Path:
    """The folder of a tiny random model. Read only: copy it to change it."""
    return save_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def sharp_model(tmp_path_factory) -> Path:
    """The folder of a tiny random model whose answer hangs on every page. Read only."""
    return save_sharp_model(tmp_path_factory.mktemp("models") / "sharp", seed=0)


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    """An empty data folder that everything in this test uses."""
    folder = tmp_path / "home"
    monkeypatch.setenv("LOCALCTX_HOME", str(folder))
    return folder


@pytest.fixture
def store(home):
    """The store of the test's data folder."""
    from localctx.store.store import Store

    with closing(Store(home)) as store:
        yield store


@pytest.fixture
def window(home, tiny_model):
    """A window on the tiny model, with nothing that serves its pages."""
    with opened(home, tiny_model) as window:
        yield window


@pytest.fixture
def settings_page(window):
    """The settings page of ``window``, built and not served."""
    import gradio as gr

    from localctx.ui.settings.settings_page import SettingsPage

    page = SettingsPage(window)
    with gr.Blocks():
        page.build()
    return page


@pytest.fixture
def address(window):
    """Where the pages of ``window`` are served, on a free port."""
    with served_in_process(window) as address:
        yield address


Command = Callable[..., subprocess.CompletedProcess]


@pytest.fixture
def localctx(home) -> Command:
    """The real command in a process of its own: ``localctx("ask", file, question, stdin=..., **Popen arguments)``."""

    def run(*arguments: object, stdin: bytes | None = None, **how) -> subprocess.CompletedProcess:
        command = [sys.executable, "-m", "localctx", *map(str, arguments)]
        how = {"timeout": 120, **how}
        done = subprocess.run(command, input=stdin or b"", capture_output=True, **how)
        done.stdout, done.stderr = done.stdout.decode(), done.stderr.decode()
        return done

    return run


@pytest.fixture
def run(home, monkeypatch, capsys) -> Command:
    """The command in this process, with a data folder of its own: the same entry, without seconds of imports."""
    from localctx import cli

    monkeypatch.setenv("LOCALCTX_EMBEDDER", "none")  # but where a test asks for one

    def run(*arguments: object, stdin: bytes = b"") -> subprocess.CompletedProcess:
        monkeypatch.setattr(sys, "argv", ["localctx", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        return subprocess.CompletedProcess(arguments, cli.run(), *capsys.readouterr())

    return run


@pytest.fixture
def document(tmp_path) -> Path:
    """A text of about 700 bytes."""
    path = tmp_path / "rivers.txt"
    path.write_text("".join(f"River {i} is {i * 37} km long.\n" for i in range(26)))
    return path


@pytest.fixture(scope="session")
def pull() -> Callable[[str], Path]:
    """A function from a model of the catalogue to a models folder that has it: the user's own, fetched if need be."""
    from localctx.settings import load_settings

    models = load_settings().models
    environment = {k: v for k, v in os.environ.items() if k != "HF_HUB_OFFLINE"}  # before a test has a home of its own

    def pull(name: str) -> Path:
        command = [sys.executable, "-m", "localctx", "models", "pull", name]
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
        return models

    return pull


@pytest.fixture(scope="session")
def default_home(tmp_path_factory, pull) -> Path:
    """A data folder with the small model and the embedder: the user's own copies, or fetched as a first start would."""
    from localctx.models.catalog import FALLBACK
    from localctx.settings.table import EMBEDDER

    folder = tmp_path_factory.mktemp("home")
    pull(EMBEDDER)
    (folder / "models").symlink_to(pull(FALLBACK))
    return folder


@pytest.fixture(scope="session")
def default_gguf(tmp_path_factory, default_home) -> Path:
    """The small model as a GGUF file. Read only."""
    from default_gguf import write_with_vocabulary

    from localctx.models.catalog import FALLBACK

    return write_with_vocabulary(default_home / "models" / FALLBACK, tmp_path_factory.mktemp("gguf") / "default.gguf")


PROSE = "api asking benchmarks chats internals library limits memory models promises quality servers settings"
"""Pages of sentences. Those for developers are tables and code, and more pages must not change what tests read."""


@pytest.fixture(scope="session")
def prose() -> str:
    """About 12,000 tokens of English that every checkout has: pages of the documentation."""
    from localctx.docs import page

    return "\n\n".join(page(topic) for topic in [*PROSE.split(), "summarizing", "window"])
