"""localctx: ask long documents on your own machine. A document is read once; its KV pages are kept, and every later
question starts where reading ended.

This package exports the public API (``localctx help python``). Each name is imported when it is first used.
"""

from importlib import import_module

from localctx.version import __version__

TYPE_CHECKING = False  # typing takes long to import, and the command cannot handle Ctrl-C before
if TYPE_CHECKING:
    from typing import Any

    from localctx.api import Library, census, compare, open, plan, table
    from localctx.batch.census import Census, Certificate
    from localctx.batch.table.cells import AnswerCell, AnswerRow
    from localctx.batch.table.columns import TableColumn
    from localctx.document_parts import Citation
    from localctx.engine import events
    from localctx.engine.planning.capacity import Capacity
    from localctx.errors import Cancelled, UserError
    from localctx.library.citations.sentence_sources import AnswerSentence
    from localctx.library.compare.comparison import ClauseChange, Comparison
    from localctx.results import Answer, AnswerStats, Summary
    from localctx.session import Session
    from localctx.session_chat import SessionChat
    from localctx.settings import Settings

_HOMES = {
    "Answer": "localctx.results",
    "AnswerCell": "localctx.batch.table.cells",
    "AnswerRow": "localctx.batch.table.cells",
    "AnswerSentence": "localctx.library.citations.sentence_sources",
    "AnswerStats": "localctx.results",
    "Cancelled": "localctx.errors",
    "Census": "localctx.batch.census",
    "Certificate": "localctx.batch.census",
    "Citation": "localctx.document_parts",
    "Capacity": "localctx.engine.planning.capacity",
    "ClauseChange": "localctx.library.compare.comparison",
    "Comparison": "localctx.library.compare.comparison",
    "Library": "localctx.api",
    "Session": "localctx.session",
    "SessionChat": "localctx.session_chat",
    "Settings": "localctx.settings",
    "Summary": "localctx.results",
    "TableColumn": "localctx.batch.table.columns",
    "UserError": "localctx.errors",
    "census": "localctx.api",
    "compare": "localctx.api",
    "open": "localctx.api",
    "plan": "localctx.api",
    "table": "localctx.api",
}
"""The module that defines each public name."""

__all__ = [
    "Answer",
    "AnswerCell",
    "AnswerRow",
    "AnswerSentence",
    "AnswerStats",
    "Cancelled",
    "Capacity",
    "Census",
    "Certificate",
    "Citation",
    "ClauseChange",
    "Comparison",
    "Library",
    "Session",
    "SessionChat",
    "Settings",
    "Summary",
    "TableColumn",
    "UserError",
    "__version__",
    "census",
    "compare",
    "events",
    "open",
    "plan",
    "table",
]


def __getattr__(name: str) -> "Any":
    if name == "events":
        return import_module("localctx.engine.events")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
