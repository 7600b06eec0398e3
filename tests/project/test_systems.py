"""Windows and macOS: nothing of one system alone is used, unless the code asks first which system it is on."""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from import_graph import modules
from made_files import pdf
from repository import ROOT
from simulated_windows import ABSENT_IN_OS, ABSENT_MODULES, python
from test_house import HOMES

pytestmark = pytest.mark.process

# Of one system alone, or different: each is to be used beneath a question for sys.platform.
MODULES = {*ABSENT_MODULES, "msvcrt", "winreg", "_winapi", "posix", "syslog", "crypt"}
FUNCTIONS = {f"os.{name}" for name in ABSENT_IN_OS} | {
    *("os.getpgid", "os.setsid", "os.killpg", "os.chown", "os.mkfifo", "os.sysconf", "os.getloadavg", "os.O_BINARY"),
    *("os.EX_UNAVAILABLE", "os.EX_CANTCREAT", "os.EX_USAGE", "signal.SIGKILL", "signal.SIGXCPU", "signal.SIGHUP"),
    *("signal.SIGUSR1", "signal.setitimer", "signal.alarm", "time.tzset", "socket.AF_UNIX"),
}
TEXT = ("read_text", "write_text")


def unasked(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a module that run on every system: not those beneath an ``if`` that names ``sys.platform``, nor
    those after it if it returns.
    """
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If | ast.IfExp) and "sys.platform" in ast.unparse(node.test):
            if isinstance(node, ast.If) and isinstance(node.body[-1], ast.Return):
                return
            continue
        yield node
        yield from unasked(node)


def of_one_system(text: str) -> list[str]:
    found = []
    for node in unasked(ast.parse(text)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.split(".")[0] in MODULES]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in MODULES:
            found.append(str(node.module))
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            name = f"{node.value.id}.{node.attr}"
            found += [name] if name in FUNCTIONS else []
    return found


def test_nothing_of_one_system_is_used_unasked():
    found = {name: used for name, path in modules().items() if (used := of_one_system(path.read_text()))}
    assert found == {}


def test_what_is_of_one_system_is_found():
    guarded = 'import sys\nif sys.platform != "win32":\n    import fcntl\n    fcntl.flock(1, 2)\n'
    assert of_one_system(guarded) == []
    assert of_one_system('def f():\n    if sys.platform == "win32":\n        return 1\n    return os.getuid()') == []
    assert of_one_system("def f():\n    import resource\n    from fcntl import flock") == ["resource", "fcntl"]
    assert of_one_system("import os\nos.kill(1, signal.SIGKILL); os.pwrite(1, b'', 0)") == [
        "signal.SIGKILL",
        "os.pwrite",
    ]


def without_encoding(text: str) -> list[str]:
    """Calls that read or write text in whatever encoding the system prefers: on Windows an old code page."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call) or any(k.arg == "encoding" for k in node.keywords):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in TEXT and len(node.args) < (1 if name == "read_text" else 2):
            found.append(ast.unparse(node))
        if (
            name == "open"
            and "zip" not in ast.unparse(node)
            and (modes := [a for a in node.args if is_mode(a)])
            and "b" not in modes[0].value
        ):
            found.append(ast.unparse(node))
    return found


def is_mode(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and set(node.value) <= set("rwxabt+")


def test_text_files_name_their_encoding():
    found = {name: calls for name, path in modules().items() if (calls := without_encoding(path.read_text()))}
    assert found == {}
    assert len(without_encoding("p.read_text()\np.write_text('a')\nopen(f, 'w')\np.open('r+')")) == 4
    assert without_encoding("p.read_text('utf-8')\np.write_text('a', 'ascii')\nopen(f, 'rb')\np.open('a+b')") == []


# --- Simulated

USE = """
import sys
sys.path[:0] = {tests!r}, {root!r}
import simulated_windows
simulated_windows.install(*{libraries!r})
"""
IMPORT_ALL = """
from importlib import import_module
for name in {names!r}:
    import_module(name)
print("imported", len({names!r}))
"""
COMMANDS = """
sys._base_executable = {python!r}
from localctx.cli import run
for arguments in {commands!r}:
    sys.argv[1:] = arguments
    assert run() == 0, arguments
"""


ALWAYS = ("click", "filelock", "jinja2", "numpy", "platformdirs", "psutil", "sqlite_utils", "tqdm")


def on_windows(code: str, home: Path, *libraries: str) -> subprocess.CompletedProcess[str]:
    start = USE.format(tests=str(ROOT / "tests" / "helpers"), root=str(ROOT), libraries=(*ALWAYS, *libraries))
    environment = {
        "LOCALCTX_OFFLINE": "on",
        "LOCALCTX_HOME": str(home),
        "PATH": "/usr/bin:/bin",
        "HOME": str(home),
        "LOCALCTX_EMBEDDER": "none",
    }
    return subprocess.run(
        [sys.executable, "-c", start + code], capture_output=True, text=True, env=environment, timeout=280
    )


@pytest.mark.slow
def test_every_module_is_imported_without_what_is_posix_alone(home):
    names = sorted(name for name in modules() if name != "localctx.__main__")
    missing_here = ("llama_cpp", "ray", "rapidocr", "triton", "gguf", "bitsandbytes")  # none is imported at once
    libraries = [library for library in HOMES if library not in missing_here]
    names = [name for name in names if "triton" not in name]  # needs Triton, which there is for Linux alone
    done = on_windows(IMPORT_ALL.format(names=names), home, "torch", *libraries)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert done.stdout == f"imported {len(names)}\n"


@pytest.mark.slow
def test_documents_are_added_and_listed(home, tmp_path):
    (tmp_path / "harbour.pdf").write_bytes(pdf(["The lamp is lit at a quarter past eight."]))
    commands = [["library", "add", str(tmp_path / "harbour.pdf")], ["library", "list", "--json"]]
    code = COMMANDS.format(python=str(python(tmp_path, "pypdfium2", "numpy")), commands=commands)
    done = on_windows(code, home, "torch")
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert "harbour.pdf" in done.stdout
    assert (home / "library.db").is_file()


LIMITS = """
import json, time
sys._base_executable = {python!r}
from localctx.errors import DocumentError
from localctx.library.parsers.sandbox import ReadOptions, SandboxLimits, parse
said = []
for data, limits in (
    (b"<div>" * 400_000, SandboxLimits(seconds=1)),
    (b"<p>x" * (1 << 20), SandboxLimits(memory=24 << 20)),
    (b"<p>whole", SandboxLimits()),
):
    try:
        said.append(parse("html", data, ReadOptions(limits=limits)).text.strip())
    except DocumentError as e:
        said.append(e.problem)
from localctx.models.tokenizer.chat_template import render
from localctx.errors import ModelError
talk = [dict(role="user", content="Hello")]
for template in ({endless!r}, "{{{{ messages[0].content }}}}"):
    try:
        said.append(render(template, talk))
    except ModelError as e:
        said.append(e.problem)
print(json.dumps(said))
"""
ENDLESS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"


@pytest.mark.slow
def test_the_parent_ends_children_that_the_system_does_not_limit(home, tmp_path):
    done = on_windows(LIMITS.format(python=str(python(tmp_path)), endless=ENDLESS), home)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert json.loads(done.stdout) == [
        "takes more than 1 s to read",
        "needs more than 24 MiB of memory to be read",
        "whole",
        "the model's chat template takes too much time or memory",
        "Hello",
    ]


LOCKS = """
from pathlib import Path
from contextlib import ExitStack
from localctx.store.process_locks import WORK, at_work, is_at_work, the_watcher
from localctx.serving.open_servers import open_servers, registered
home = Path({home!r})
home.mkdir(exist_ok=True)
assert not is_at_work(home)
with at_work(home), at_work(home):
    assert is_at_work(home)
assert not is_at_work(home)
with the_watcher(home) as first, the_watcher(home) as second:
    assert (first, second) == (True, False)
with registered(home, "127.0.0.1", 9, "key"), registered(home, "127.0.0.1", 8, "key"):
    assert {{server.port for server in open_servers(home)}} == {{8, 9}}
assert open_servers(home) == []
(home / "servers" / "1-1.json").write_text("{{}}")
assert open_servers(home) == []
assert not list((home / "servers").iterdir())
"""


@pytest.mark.slow
def test_locks_of_byte_ranges_mean_what_those_of_files_mean(home):
    done = on_windows(LOCKS.format(home=str(home)), home)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]


# --- packaging/start.ps1


@pytest.fixture(scope="module")
def scripts() -> tuple[str, str]:
    folder = ROOT / "packaging"
    posix = "".join((folder / name).read_text() for name in ("start", "env.sh"))
    return posix, (folder / "start.ps1").read_text()


def test_the_script_for_windows_takes_the_steps_of_the_other(scripts):
    """No PowerShell runs here: what can be compared is what both scripts name."""
    posix, windows = scripts
    for name in re.findall(r"^(\w+)\(\)", posix, re.MULTILINE):
        if name in ("environment", "origin", "take_lock", "install_cpu_torch", "pip_in_log"):
            continue  # parts of others there
        assert f"function {name}" in windows, name
    for step in ("[1/4]", "[2/4]", "[3/4]", "[4/4] ready", "--clear", "--help", "'ready'", "was-ready", "install.log"):
        assert step.strip("'") in posix, step
        assert step in windows, step
    for variable in ("LOCALCTX_PYTHON", "LOCALCTX_MODEL", "LOCALCTX_ENGINE", "PIP_DISABLE_PIP_VERSION_CHECK=1"):
        assert variable in posix, variable
        assert variable.partition("=")[0] in windows, variable


def test_the_script_for_windows_is_well_formed(scripts):
    _, windows = scripts
    assert windows.isascii()  # Windows PowerShell reads other letters in an old code page
    code = re.sub(r"'[^'\n]*'|\"(?:`.|[^\"`\n])*\"|#.*", "", windows)  # without texts and comments
    assert not set(code) & set("'\"#")
    for opening, closing in ("()", "{}", "[]"):
        assert code.count(opening) == code.count(closing), opening
    called = {word for word in ("say", "die", "need", "pip", "once", "mark", "run") if f"{word} " in windows}
    assert all(f"function {word}" in windows for word in called)
