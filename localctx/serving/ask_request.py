"""Defines the request of ``localctx ask`` to an open server, and the settings that both sides must agree on."""

import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from localctx.errors import UsageError
from localctx.settings import Settings, with_changes

ASK_PATH, CANCEL_PATH = "/localctx/ask", "/localctx/cancel"
DIFFERS = 409  # status if the server's settings differ from the command's

QUESTION_SETTINGS = (
    *("max_tokens", "temperature", "top_p", "top_k", "seed", "draft", "n", "beams", "mode", "effective_context"),
    *("passages", "repeats", "careful", "answers", "ocr", "blend"),
)
"""The settings that each question may choose for itself."""

UNUSED_SETTINGS = ("home", "prompts", "summaries", "read_ahead", "appearance")
"""The settings that do not affect answers. (``home`` is the same on both sides: the server was found in it.)"""

PATHS = ("model", "adapter", "embedder")
"""The settings that may be paths. Their meaning depends on the working directory."""


@dataclass(frozen=True)
class AskRequest:
    """A request to an open server: a ``question`` about ``sources`` (absolute paths, or ids of stored documents) or
    about the ``library``.

    If ``persist``, the pages of the documents are kept. ``until`` is a mark in the only document, such as ``40%``; the
    text after the mark is not read. ``settings`` are the settings of the command. ``places`` are the resolved paths of
    the settings ``model``, ``adapter`` and ``embedder``.
    """

    question: str
    sources: tuple[str, ...] = ()
    persist: bool = True
    library: bool = False
    until: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)
    id: str = field(default_factory=lambda: secrets.token_hex(16))

    @classmethod
    def of(cls, question: str, sources: Sequence[str], settings: Settings, **how: Any) -> "AskRequest":
        """Returns the request for a question asked in this process under ``settings``. ``how`` has the fields
        ``persist``, ``library`` and ``until``.
        """
        values = {name: value for name, value in asdict(settings).items() if name not in UNUSED_SETTINGS}
        return cls(question, tuple(map(absolute_source, sources)), settings=values, places=places_of(settings), **how)

    @classmethod
    def parse(cls, body: Any) -> "AskRequest":
        """Parse a JSON body. Raises UsageError if it does not have the fields and types of this version."""
        try:
            request = cls(**body)
        except TypeError as e:
            raise UsageError("this is not a request of `localctx ask`", "send one of this version") from e
        kinds = {
            "question": str,
            "persist": bool,
            "library": bool,
            "until": str,
            "settings": dict,
            "places": dict,
            "id": str,
        }
        wrong = [name for name, kind in kinds.items() if not isinstance(getattr(request, name), kind)]
        if wrong or not _are_texts(request.sources):
            raise UsageError(
                f"{' and '.join(wrong or ['sources'])} have a wrong value", "send a request of this version"
            )
        return replace(request, sources=tuple(request.sources))

    def to_json(self) -> dict[str, Any]:
        """Returns the request as JSON."""
        return asdict(self)

    def adapted(self, current: Settings) -> Settings:
        """Returns ``current``, the settings of the server, changed by the settings of the question. Raises UsageError
        if server and command differ in a setting that a question cannot choose.
        """
        shared = {name: value for name, value in asdict(current).items() if name not in UNUSED_SETTINGS}
        places, asked = places_of(current), dict(self.settings)
        changes = {name: asked[name] for name in QUESTION_SETTINGS if name in asked}
        differ = [n for n in shared if n not in QUESTION_SETTINGS and (n not in asked or asked[n] != shared[n])]
        differ += [name for name in PATHS if name not in differ and self.places.get(name) != places[name]]
        if differ or asked.keys() - shared.keys():
            raise UsageError(f"the server has a different {', '.join(differ) or 'version'}", "answer without it")
        return with_changes(current, changes)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def absolute_source(source: str) -> str:
    """Returns the absolute path of an existing file. Other sources, such as document ids, stay as they are."""
    return str(Path(source).absolute()) if os.path.lexists(source) else source


def places_of(settings: Settings) -> dict[str, str]:
    """Returns the resolved path of each setting that may be a path (``model``, ``adapter`` and ``embedder``), or "" if
    no such file exists.
    """
    given = {name: getattr(settings, name) for name in PATHS}
    return {name: str(Path(value).resolve()) if Path(value).exists() else "" for name, value in given.items()}
