"""Prints how many files and frames of ours lie between a question and a token: python measure_layers.py [--json]

A frame is a call on Python's stack whose code is in localctx/, ui/, models/ or kernels/. Three paths are measured, with
a tiny random model that is made on the spot: from ``localctx ask`` to its first token; from a page's sealing to its
file and from the file back into a cache; from a question typed into the window to its first token.
"""

import json
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass, field
from inspect import CO_OPTIMIZED
from io import StringIO
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import harness  # noqa: F401
from repository import ROOT

OURS = tuple(f"{ROOT / folder}/" for folder in ("localctx", "ui", "models", "kernels"))
QUESTION = "How long is river 7?"

ATTENTION = ("/kv/attention.py", "/kv/dispatch.py")  # where a model's layer asks for attention

Frame = tuple[str, str]
"""A file, relative to the repository, and the function in it."""


@dataclass
class LayerProbe:
    """What was executed while ``recording``: the files, and at each moment the stack of ours, outermost frame first.

    ``before`` are the files that had run by then. ``waiting`` is the id of the thread that waits for the token, where
    another one computes it.
    """

    recording: bool = False
    files: set[str] = field(default_factory=set)
    stacks: dict[str, list[Frame]] = field(default_factory=dict)
    before: dict[str, set[str]] = field(default_factory=dict)
    waiting: int | None = None

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        """Python's profile hook, which it calls for every call of a function."""
        if not self.recording:
            return
        if event == "c_call" and argument is os.write and frame.f_code.co_filename.endswith("slot_file.py"):
            self._note("written", frame)
        elif event == "call":
            if file := own_file(frame):
                self.files.add(file)
            if moment := moment_of(frame):
                self._note(moment, frame)

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Python's audit hook, which it also calls when a file is mapped."""
        if event == "mmap.__new__" and self.recording and own_file(sys._getframe(1)):
            self._note("mapped", sys._getframe(1))

    def _note(self, moment: str, frame: FrameType) -> None:
        if moment not in self.stacks:
            others = own_stack(sys._current_frames()[self.waiting]) if self.waiting else []
            self.stacks[moment] = [*others, *own_stack(frame)]
            self.before[moment] = set(self.files)


def moment_of(frame: FrameType) -> str | None:
    """Returns which moment the call of this function is, if any: an answer begun in the window, attention, a token, a
    page sealed or adopted.
    """
    code = frame.f_code
    if code.co_name == "begin" and code.co_filename.endswith("/ui/running/running_answers.py"):
        return "begun"
    if code.co_filename.endswith(ATTENTION):
        return "attention"
    if code.co_name == "__init__" and code.co_filename == "<string>":
        return "token" if type(frame.f_locals.get("self")).__name__ == "Token" else None
    if code.co_name in ("seal", "adopt") and code.co_filename.endswith("/kv/pool.py"):
        return "sealed" if code.co_name == "seal" else "adopted"
    return None


def own_file(frame: FrameType) -> str | None:
    """Returns the file of ours that a function's frame is in; the body of a module or class is none."""
    code = frame.f_code
    inside = code.co_flags & CO_OPTIMIZED and code.co_filename.startswith(OURS)
    return str(Path(code.co_filename).relative_to(ROOT)) if inside else None


def own_stack(frame: FrameType | None) -> list[Frame]:
    """Returns the frames of ours from the outermost to this one."""
    frames = []
    while frame:
        if file := own_file(frame):
            frames.append((file, frame.f_code.co_qualname))
        frame = frame.f_back
    return frames[::-1]


PROBE = LayerProbe()


@contextmanager
def recorded() -> Iterator[LayerProbe]:
    """Records into PROBE, which is emptied before."""
    PROBE.files, PROBE.stacks, PROBE.before, PROBE.waiting = set(), {}, {}, None
    PROBE.recording = True
    try:
        yield PROBE
    finally:
        PROBE.recording = False


@dataclass(frozen=True)
class LayerPath:
    """A path through the code: its frames in order, its files, and every file in which a function ran on the way."""

    frames: int
    files: list[str]
    executed: list[str]


def path_of(stacks: list[list[Frame]], executed: set[str] | None = None) -> LayerPath:
    """Returns the path that these stacks make together. A frame that several of them share counts once."""
    frames = dict.fromkeys(frame for stack in stacks for frame in stack)
    files = list(dict.fromkeys(file for file, _ in frames))
    return LayerPath(len(frames), files, sorted(executed or files))


def shared(stacks: list[list[Frame]]) -> int:
    """Returns how many of their outermost frames these stacks have in common."""
    same = 0
    while all(len(stack) > same for stack in stacks) and len({stack[same] for stack in stacks}) == 1:
        same += 1
    return same


def question_path(ask: Callable[[], None]) -> LayerPath:
    """Returns the path from a question down to the model's attention and up to the first token."""
    with recorded() as probe:
        ask()
    begun = [probe.stacks["begun"]] if "begun" in probe.stacks else []  # in the window, by another thread
    return path_of([*begun, probe.stacks["attention"], probe.stacks["token"]], probe.before["token"])


def page_path(ask: Callable[[], None]) -> LayerPath:
    """Returns the path of a page from its sealing to its file, in one question, and back into a cache, in the next.

    Its frames are those at four moments (the page is sealed, written, mapped, adopted) below the frames that all share.
    """
    with recorded() as probe:
        ask()
    stacks = [probe.stacks["sealed"], probe.stacks["written"]]
    with recorded() as probe:
        ask()
    stacks += [probe.stacks["mapped"], probe.stacks["adopted"]]
    same = shared(stacks)
    return path_of([stack[same:] for stack in stacks])


def command(folder: Path, home: str, model: Path) -> Callable[[], None]:
    """Returns a function that asks the command a question about a document, in this process."""
    from localctx import cli

    def ask() -> None:
        os.environ["LOCALCTX_HOME"] = str(folder / home)
        own, sys.argv = sys.argv, ["localctx", "ask", str(folder / "rivers.txt"), QUESTION, "--model", str(model)]
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()) as errors:
            status = cli.run()
        sys.argv = own
        assert status == 0, errors.getvalue()

    return ask


@contextmanager
def window_on(folder: Path, model: Path) -> Iterator[Callable[[], None]]:
    """A window, and a function that types a question into it as a browser tab does."""
    from localctx.settings import load_settings
    from localctx.ui.app import build
    from localctx.ui.window import AppWindow

    settings = load_settings(home=folder / "window", model=str(model), embedder="none", max_tokens=4, threads=1)
    settings.home.mkdir(exist_ok=True)
    with closing(AppWindow(settings)) as window:
        page = build(window)
        boxes = {(number, "submit") for number, block in page.blocks.items() if block.elem_id == "question"}
        handler = next(fn.fn for fn in page.fns.values() if boxes & set(fn.targets))
        tab = SimpleNamespace(session_hash="tab", query_params={})
        box = {"text": QUESTION, "files": []}

        def ask() -> None:
            handler(box, "", [], "", "", ("", ()), tab)
            (answering,) = (thread for thread in threading.enumerate() if thread.name == "answer")
            PROBE.waiting = answering.ident
            answering.join()

        yield ask


COMMAND_PATHS = {"ask": question_path, "page": page_path}


def measure() -> dict[str, LayerPath]:
    """Returns the three paths. The first, unrecorded question imports and compiles what any question needs."""
    from tiny_models import save_tiny_model

    os.environ |= {
        "LOCALCTX_EMBEDDER": "none",
        "LOCALCTX_THREADS": "1",
        "LOCALCTX_MAX_TOKENS": "4",
        "LOCALCTX_DEVICE": "cpu",
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = save_tiny_model(folder / "model")
        (folder / "rivers.txt").write_text("".join(f"River {i} is {i * 37} km long.\n" for i in range(26)))
        command(folder, "first", model)()
        sys.addaudithook(PROBE.audit)
        sys.setprofile(PROBE)
        threading.setprofile(PROBE)
        try:
            paths = {name: path(command(folder, name, model)) for name, path in COMMAND_PATHS.items()}
            with window_on(folder, model) as question:
                question()
                paths["window"] = question_path(question)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
    return paths


def main() -> None:
    paths = measure()
    if "--json" in sys.argv[1:]:
        print(json.dumps({name: asdict(path) for name, path in paths.items()}))
        return
    for name, path in paths.items():
        print(f"{name}: {len(path.files)} files and {path.frames} frames; functions of {len(path.executed)} files ran")
        print("\n".join(f"  {file}" for file in path.files))


if __name__ == "__main__":
    main()
