"""Renders chat templates exactly as transformers' ``apply_chat_template``, without importing transformers.

Templates are untrusted: they run in jinja's sandbox and receive only text.
"""

import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from jinja2 import Template, nodes
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

_START, _END = "\U000f0000", "\U000f0001"  # private-use characters around control tokens in users' text


class ControlTokenMarker:
    """Marks control tokens in users' text before a template is rendered, so that afterwards they can be distinguished
    from the template's own and encoded as plain text.
    """

    def __init__(self, controls: Iterable[str], added: Iterable[str]) -> None:
        self._controls = _any_of(controls)
        self._marked = re.compile(f"{_START}({_any_of(added).pattern}){_END}|[{_START}{_END}]")

    def mark(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Returns ``message`` with its control tokens marked; removes marks that were in it."""
        return {key: self.mark_values(value) for key, value in message.items()}

    def mark_values(self, value: Any) -> Any:
        """Returns JSON with the control tokens in all its texts marked, those of keys too."""
        if isinstance(value, str):
            return self._controls.sub(f"{_START}\\g<0>{_END}", value.replace(_START, "").replace(_END, ""))
        if isinstance(value, Mapping):
            return {self.mark_values(key): self.mark_values(one) for key, one in value.items()}
        return [self.mark_values(one) for one in value] if isinstance(value, list | tuple) else value

    def split(self, text: str) -> list[str]:
        """Splits rendered text at marked tokens: text, token, text, and so on. An empty token is a broken mark."""
        return [piece or "" for piece in self._marked.split(text)]


def render(template: str, messages: list[dict[str, str]], **variables: object) -> str:
    """Renders the conversation with the generation prompt. Raises jinja2's TemplateError."""
    context = {"tools": None, "documents": None, "add_generation_prompt": True, **variables}
    return _compiled(template).render(messages=messages, **context)


@lru_cache
def template_literals(template: str) -> str:
    """Returns all literal text in ``template``, joined by null characters."""
    tree = _environment().parse(template)
    texts = {node.data for node in tree.find_all(nodes.TemplateData)}
    texts |= {node.value for node in tree.find_all(nodes.Const) if isinstance(node.value, str)}
    return "\0".join(texts)


@lru_cache
def has_tools(template: str) -> bool:
    """Returns True if a template describes ``tools``, which its answers call between <tool_call> and </tool_call>, as
    Hermes and Qwen do.
    """
    tree = _environment().parse(template)
    named = {node.name for node in tree.find_all(nodes.Name)}
    return "tools" in named and "<tool_call>" in template_literals(template)


@lru_cache
def _compiled(template: str) -> Template:
    return _environment().from_string(template)


@lru_cache(1)
def _environment() -> ImmutableSandboxedEnvironment:
    jinja = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
    jinja.filters["tojson"] = _to_json
    jinja.globals |= {"raise_exception": _raise, "dict": _Dict(), "namespace": _Namespace}
    return jinja


class _Generation(Extension):
    """``{% generation %}`` marks text for training; here its content is rendered unchanged."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_same"), [], [], body).set_lineno(line)

    def _same(self, caller: Macro) -> str:
        return caller()


class _Dict:
    """``dict`` without its attributes, through which a template could leave the sandbox."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args)


class _Namespace(Namespace):
    """``namespace`` that refuses names with a leading underscore, for the same reason."""

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
    """Replaces jinja's own ``tojson``, which escapes for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _any_of(words: Iterable[str]) -> re.Pattern[str]:
    """Returns a pattern for any of ``words``, longest first; without words, one that never matches."""
    return re.compile("|".join(map(re.escape, sorted(words, key=len, reverse=True))) or "(?!)")
