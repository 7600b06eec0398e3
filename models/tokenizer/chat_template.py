"""Renders chat templates exactly like transformers' ``apply_chat_template``, without importing transformers.

Templates are untrusted: they run in jinja's sandbox, in a child process with limits, and receive only text.
"""

import json
import math
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from jinja2 import nodes

from localctx import system
from localctx.budget import measure_use
from localctx.child_process import ChildWatch, start_python
from localctx.errors import ModelError
from localctx.models.tokenizer.template_child import MEMORY, environment

MAX_TEMPLATE = 1 << 20  # characters; the longest in use have 20,000
SECONDS = 3.0  # CPU time limit for one conversation, which normally takes milliseconds
WALL = 60.0  # seconds of wall time, for a busy machine or one without a CPU time limit
MAX_ANSWER = 256 << 20  # bytes
_REMEDY = "choose another model, or fetch this one again from its makers"
_CHILD = Path(__file__).with_name("template_child.py")
_ROOT = str(Path(system.__file__).parents[1])  # the folder that contains localctx, not always this file's package

_START, _END = "\U000f0000", "\U000f0001"  # private-use characters that mark control tokens in users' text


class ControlTokenMarker:
    """Marks the model's control tokens in users' text before a template is rendered. In the rendered text they can then
    be distinguished from control tokens of the template, and encoded as plain text. ``controls`` are marked; ``added``
    are all added tokens of the tokenizer.
    """

    def __init__(self, controls: Iterable[str], added: Iterable[str]) -> None:
        self._controls = _any_of(controls)
        self._marked = re.compile(f"{_START}({_any_of(added).pattern}){_END}|[{_START}{_END}]")

    def mark(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Returns ``message`` with its control tokens marked. Marks that the message already contained, which could be
        forged, are removed.
        """
        return {key: self.mark_values(value) for key, value in message.items()}

    def mark_values(self, value: Any) -> Any:
        """Returns a JSON value with the control tokens marked in all texts, including keys."""
        if isinstance(value, str):
            return self._controls.sub(f"{_START}\\g<0>{_END}", value.replace(_START, "").replace(_END, ""))
        if isinstance(value, Mapping):
            return {self.mark_values(key): self.mark_values(one) for key, one in value.items()}
        return [self.mark_values(one) for one in value] if isinstance(value, list | tuple) else value

    def split(self, text: str) -> list[str]:
        """Split rendered text at marked control tokens. Returns text, token, text, and so on. A mark without its token
        gives an empty string in place of the token.
        """
        return [piece or "" for piece in self._marked.split(text)]


def render(template: str, messages: list[dict[str, str]], **variables: object) -> str:
    """Render the conversation, up to where the answer begins. Raises ModelError for a template that fails, or exceeds
    its limits: SECONDS of CPU time and a gigabyte of memory, which are more than a template needs.
    """
    _refuse_long(template)
    request = {"template": template, "messages": messages, "variables": variables, "seconds": SECONDS}
    answer = _renderer().answer(request)
    if answer is None:
        raise ModelError("the model's chat template takes too much time or memory", _REMEDY)
    if "text" not in answer:
        raise ModelError(f"the model's chat template fails ({answer.get('error', 'it says nothing')})", _REMEDY)
    return str(answer["text"])


def start_rendering() -> None:
    """Start the rendering process early, so that it is ready for the first conversation."""
    _renderer().start()


@lru_cache
def template_literals(template: str) -> str:
    """Returns the literal text of ``template``, joined by null characters: the text outside of jinja's expressions, and
    the strings inside them. Raises ModelError if the template is invalid.
    """
    _refuse_long(template)
    try:
        tree = environment().parse(template)
        texts = {node.data for node in tree.find_all(nodes.TemplateData)}
        texts |= {node.value for node in tree.find_all(nodes.Const) if isinstance(node.value, str)}
    except Exception as e:
        reason = " ".join(str(e).split())[:150] or type(e).__name__
        raise ModelError(f"the model's chat template is damaged ({reason})", _REMEDY) from e
    return "\0".join(texts)


@lru_cache
def has_tools(template: str) -> bool:
    """Returns True if the chat template supports ``tools``, with calls written between <tool_call> and </tool_call> as
    by Hermes and Qwen.
    """
    tree = environment().parse(template)
    named = {node.name for node in tree.find_all(nodes.Name)}
    return "tools" in named and "<tool_call>" in template_literals(template)


def _refuse_long(template: str) -> None:
    if len(template) > MAX_TEMPLATE:
        raise ModelError(f"the model's chat template has {len(template):,} characters", _REMEDY)


class _Renderer:
    """The child process, restarted if it has ended. It renders one conversation at a time."""

    def __init__(self) -> None:
        self._lock, self._child = threading.Lock(), None

    _child: "subprocess.Popen[bytes] | None"

    def start(self) -> None:
        """Start the process if it is not running."""
        with self._lock:
            self._running()

    def answer(self, request: dict[str, Any]) -> dict[str, Any] | None:
        """Returns the child's answer; None if it ended, for example at a limit."""
        data = json.dumps(request).encode() + b"\n"
        with self._lock:
            child = self._running()
            watch = ChildWatch(child, WALL)
            watch.allow(math.ceil(measure_use(child.pid)[0] + request["seconds"]), MEMORY)
            watch.start()
            try:
                return self._exchange(child, data)
            finally:
                watch.ended.set()

    def _exchange(self, child: "subprocess.Popen[bytes]", data: bytes) -> dict[str, Any] | None:
        assert child.stdin
        assert child.stdout
        with suppress(OSError, ValueError):
            child.stdin.write(data)
            child.stdin.flush()
            if (line := child.stdout.readline(MAX_ANSWER)).endswith(b"\n"):
                return json.loads(line)
        self._end()
        return None

    def _running(self) -> "subprocess.Popen[bytes]":
        if self._child and self._child.poll() is not None:
            self._end()
        if not self._child:
            run = "import sys, runpy; sys.path[:] = {path!r}; runpy.run_path({file!r}, run_name='__main__')"
            self._child = start_python(run.format(path=[_ROOT, *sys.path], file=str(_CHILD)))
        return self._child

    def _end(self) -> None:
        if child := self._child:
            self._child = None
            child.kill()
            for pipe in filter(None, (child.stdin, child.stdout)):
                with suppress(OSError):
                    pipe.close()
            child.wait()


@lru_cache(1)
def _renderer_of(process: int) -> _Renderer:
    return _Renderer()


def _renderer() -> _Renderer:
    """Returns the renderer of this process. A forked process gets a new one, because it must not share pipes with its
    parent.
    """
    return _renderer_of(os.getpid())


def _any_of(words: Iterable[str]) -> re.Pattern[str]:
    """Returns a pattern that matches any of ``words``, longest first. Without words it never matches."""
    return re.compile("|".join(map(re.escape, sorted(words, key=len, reverse=True))) or "(?!)")
