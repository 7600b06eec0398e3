"""Remembers the last report of some chats."""

import threading
from typing import Any

from localctx.engine.events import Done
from localctx.engine.request_report import AnswerReport

MAX_REPORTS = 32  # chats whose last report is kept


class LastReports:
    """Remembers the last report of each chat, as JSON. Threads may share this object."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reports: dict[str, dict[str, Any]] = {}

    def note(self, event: Any) -> None:
        """Store the report of an answer in a chat, if the event has one."""
        if isinstance(event, Done) and isinstance(event.report, AnswerReport) and (chat := event.report.chat):
            with self._lock:
                self._reports.pop(chat, None)
                self._reports[chat] = event.report.to_json()
                if len(self._reports) > MAX_REPORTS:
                    del self._reports[next(iter(self._reports))]

    def last(self, chat: str) -> dict[str, Any] | None:
        """Returns the report of the last answer in ``chat``, or else of the last answer in any chat; None if there was
        no answer yet.
        """
        with self._lock:
            return self._reports.get(chat) or next(reversed(self._reports.values()), None)

    def clear(self) -> None:
        """Forget the reports of all chats."""
        with self._lock:
            self._reports.clear()
