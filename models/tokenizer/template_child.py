"""Child process that renders chat templates, which are programs that could run forever or fill the memory.

It runs as a script and imports little besides jinja2, so that it starts in a tenth of a second. Each line of standard
input is a JSON request: ``{"template", "messages", "variables", "seconds"}``. Each line of standard output is
``{"text"}`` or ``{"error"}``. Too much CPU time ends the process, and so does the end of its parent.
"""

import json
import math
import sys
import time
from functools import lru_cache
from typing import Any

from jinja2 import Template, nodes
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from localctx.system import limit_process

MEMORY = 1 << 30  # bytes of address space


def main() -> None:
    """Answer requests on standard input until it closes."""
    for line in sys.stdin.buffer:
        answer = json.dumps(_answer(json.loads(line)))
        sys.stdout.buffer.write(answer.encode() + b"\n")
        sys.stdout.buffer.flush()


def _answer(request: dict[str, Any]) -> dict[str, str]:
    limit_process(math.ceil(time.process_time() + request["seconds"]), MEMORY)
    try:
        return {"text": render(request["template"], request["messages"], **request["variables"])}
    except MemoryError:
        return {"error": "it needs too much memory"}
    except RecursionError:
        return {"error": "it is nested too deeply"}
    except Exception as e:  # a template may raise anything
        reason = " ".join(str(e).split())[:150]
        return {"error": reason or type(e).__name__}


def render(template: str, messages: list[dict[str, str]], **variables: object) -> str:
    """Returns the conversation in the format of ``template``, up to where the answer begins. Raises any exception of
    the template.
    """
    context = {"tools": None, "documents": None, "add_generation_prompt": True, **variables}
    return _compiled(template).render(messages=messages, **context)


@lru_cache
def _compiled(template: str) -> Template:
    return environment().from_string(template)


@lru_cache(1)
def environment() -> ImmutableSandboxedEnvironment:
    """Returns the sandboxed jinja environment for templates, with the extensions and functions that transformers
    provides.
    """
    jinja = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
    jinja.filters["tojson"] = _to_json
    jinja.globals |= {"raise_exception": _raise, "dict": _Dict(), "namespace": _Namespace}
    return jinja


class _Generation(Extension):
    """Renders the content of ``{% generation %}``, which marks text for training, unchanged."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_same"), [], [], body).set_lineno(line)

    def _same(self, caller: Macro) -> str:
        return caller()


class _Dict:
    """``dict`` without its attributes, through which a template could escape the sandbox."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args)


class _Namespace(Namespace):
    """``namespace`` that rejects names with a leading underscore, for the same reason."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, values = args[0], dict(*args[1:], **kwargs)
        for name in values:
            _refuse_private(name)
        Namespace.__init__(self, values)

    def __setitem__(self, name: str, value: Any) -> None:
        _refuse_private(name)
        super().__setitem__(name, value)


def _refuse_private(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a chat template may not store {name!r}")


def _raise(message: str) -> None:
    raise TemplateError(message)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Convert ``value`` to JSON. Replaces jinja's own ``tojson``, which escapes for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


if __name__ == "__main__":
    main()
