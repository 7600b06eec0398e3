"""Asking through the Session in this process, and processes of their own that start in one second instead of five."""

import contextlib
import importlib
import io
import itertools
import multiprocessing
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

from localctx.engine.request_report import AnswerReport

PLAIN = {"max_tokens": 32, "chunk": 64, "threads": 1, "embedder": "none"}
"""Chunks of one page: whatever part of a document is kept, the rest is computed as a cold reading computes it."""

_IMPORTED = [
    *("pytest", "torch", "numba.np.ufunc.parallel", "sqlite_utils", "click", "transformers.generation.logits_process"),
    *("transformers.models.auto.modeling_auto", "transformers.models.auto.tokenization_auto"),
    *("transformers.models.llama.modeling_llama", "localctx.store.store", "localctx.kernels.quant", "localctx.doctor"),
]


@dataclass(frozen=True)
class Answer:
    """What an ask gave: the answer's token ids, the notes, the report, and why nothing was kept (None: it was)."""

    ids: list[int]
    notes: list[str]
    report: AnswerReport
    failed: str | None

    @property
    def reused(self) -> int:
        return self.report.tokens.reused


def ask(home: Path, model: Path, *files: Path, question: str = "How long is river 7?", **settings) -> Answer:
    """One question on ``files`` in a session of its own, with one thread."""
    from localctx.engine.events import Done, Note, Token

    with session(home, model, **settings) as s:
        events = list(s.stream(question, [str(f) for f in files]))
    done = events[-1]
    assert isinstance(done, Done)
    ids = [e.id for e in events if isinstance(e, Token)]
    return Answer(ids, [e.text for e in events if isinstance(e, Note)], done.report, done.failed)


@contextlib.contextmanager
def session(home: Path, model: Path, **settings) -> Iterator:
    """A session with one thread, which it gives back."""
    import torch

    from localctx.kernels.cpu.threads import set_threads
    from localctx.session import Session
    from localctx.settings import load_settings

    threads = torch.get_num_threads()
    try:
        with Session(load_settings(home=home, model=str(model), **{**PLAIN, **settings})) as s:
            yield s
    finally:
        torch.set_num_threads(threads)
        set_threads(threads)


def start(work: Callable, *args: object) -> tuple[BaseProcess, Connection]:
    """``work(say, *args)`` in a new process; what it says is received from the connection, at the end EOFError."""
    ours, its = _server().Pipe(duplex=False)
    process = _server().Process(target=work, args=(its.send, *args), daemon=True)
    process.start()
    its.close()
    return process, ours


def barrier(processes: int):
    """Where ``processes`` of ``start`` wait for each other."""
    return _server().Barrier(processes)


def said(connection: Connection) -> list:
    """Everything a process says until it ends."""
    heard = []
    with contextlib.suppress(EOFError):
        while True:
            heard.append(connection.recv())
    return heard


def command(say: Callable, environment: dict, arguments: list, file_limit: int | None) -> None:
    """The command, with files of at most ``file_limit`` bytes; says (exit code, stdout, stderr)."""
    from localctx.cli import run

    os.environ.update(environment)
    sys.argv = ["localctx", *map(str, arguments)]
    if file_limit is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit, file_limit))
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        code = run()
    say((code, out.getvalue(), err.getvalue()))


def killed_command(say: Callable, environment: dict, arguments: list, method: str, call: int, after: bool) -> None:
    """The command, killed before or ``after`` a ``call`` of a ``method``, such as ``outputs.JsonLines.write``."""
    module, owner, name = method.split(".")
    found = getattr(importlib.import_module(f"localctx.batch.{module}"), owner)
    plain, calls = getattr(found, name), itertools.count(1)

    def kill_at_call(*given: object) -> object:
        last = next(calls) == call
        result = None if last and not after else plain(*given)
        if last:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(found, name, kill_at_call)
    command(say, environment, arguments, None)


def prepare_each(say: Callable, home: Path, model: Path, files: list) -> None:
    """Prepare ``files`` one by one. Says ``ready`` with the model loaded, then why each was not kept (None: it was)."""
    with session(home, model) as s:
        s.model  # noqa: B018 (loads)
        say("ready")
        for file in files:
            *_, done = s.prepare(str(file))
            say(done.failed)


@cache
def _server() -> multiprocessing.context.ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_IMPORTED)
    return context
