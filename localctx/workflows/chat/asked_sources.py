"""The sources about which a question of a chat was asked. They are stored with the answer, because the chat's sources
may change later.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from localctx.store.chats import Chat

ASKED = "asked"  # where the statistics of an answer or a summary keep its sources


@dataclass(frozen=True)
class AskedSources:
    """``documents`` maps ids to names. ``library`` is True if the whole library was asked, and ``collection`` is the id
    of a collection that was asked besides the documents.
    """

    documents: Mapping[str, str]
    library: bool = False
    collection: int | None = None

    @classmethod
    def of(cls, chat: Chat) -> Self:
        """Returns the sources about which a question of the chat is asked now."""
        documents = {d.id: d.name for d in chat.documents if not d.removed}
        return cls(documents, bool(chat.settings.get("library")), chat.settings.get("collection") or None)

    @classmethod
    def from_stats(cls, stats: Mapping[str, Any]) -> Self | None:
        """Returns the sources in the statistics of an answer; None if it was stored without them."""
        return cls(**stats[ASKED]) if ASKED in stats else None

    def stats(self, earlier: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Returns the sources as statistics of an answer. For a continued answer, whose statistics so far are
        ``earlier``, they include the sources of its beginning.
        """
        before = self.from_stats(earlier or {}) or AskedSources({})
        documents = {**before.documents, **self.documents}
        library, collection = self.library or before.library, self.collection or before.collection
        return {ASKED: asdict(AskedSources(documents, library, collection))}

    def includes(self, other: "AskedSources") -> bool:
        """True if every source of ``other`` is among these. Documents of a collection are not compared one by one."""
        if self.library:
            return True
        known = other.documents.keys() <= self.documents.keys() and other.collection in (None, self.collection)
        return known and not other.library
