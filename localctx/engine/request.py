"""Work: one question, or one reading without a question, on its way, and what is reported of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor

from localctx.budget import measure_process
from localctx.engine.cache_plan import MemoryRelief
from localctx.engine.drafting import PromptLookup
from localctx.engine.events import Planned, Token
from localctx.engine.persist import CachePersister
from localctx.engine.repetition import Repetition
from localctx.kv.cache import Cache, EvictedRange
from localctx.shape import PAGE
from localctx.store.documents import StoredDocument

PHASES = ("load", "parse", "search", "restore", "rank", "prefill", "first_token", "decode")


@dataclass
class Request:
    """``tokens`` are to be read, what is kept ends at ``boundary``; ``started`` is the clock when the model was loaded.

    ``restored`` tokens were kept from before; ``news``: why there were not more. ``passages`` it answers from, where
    not whole documents were read, and the works that were ``ranked`` to find them. ``likelihood`` is the mean of the
    log-likelihoods of a greedy answer's tokens. ``following`` gives the tokens a
    next question comes after, by the answer to this one.
    """

    held: Sequence[StoredDocument]
    tokens: list[int]
    boundary: int
    cache: Cache
    keeping: CachePersister | None
    plan: Planned
    relief: MemoryRelief
    started: float
    seconds: dict[str, float]
    answers: list[list[Token]] = field(default_factory=lambda: [[]])
    stopped: str = "cancelled"
    read: int = 0
    restored: int = 0
    map: dict[str, Any] = field(default_factory=dict)
    pages: dict[str, int] = field(default_factory=dict)
    bytes: dict[str, int] = field(default_factory=dict)
    sketched: int = 0
    evicted: list[EvictedRange] = field(default_factory=list)
    news: list[str] = field(default_factory=list)
    passages: Sequence[dict[str, Any]] = ()
    ranked: Sequence["Request"] = ()
    citations: list[dict[str, Any]] = field(default_factory=list)
    lookup: PromptLookup = field(default_factory=lambda: PromptLookup((), 0))
    likelihood: float = 0.0
    repetition: Repetition = field(default_factory=Repetition)
    following: Callable[[str], list[int]] = lambda answer: []

    def enter(self) -> None:
        """Enter in the store what is about to be read."""
        if self.keeping:
            self.keeping.enter(self.cache)

    @property
    def said(self) -> str:
        """The first answer as it came."""
        return "".join(token.text for token in self.answers[0])

    @property
    def failed(self) -> str | None:
        """Why the pages could not be kept, in one line."""
        return str(self.keeping.failed) if self.keeping and self.keeping.failed else None

    @property
    def notes(self) -> list[str]:
        """What keeping the pages cost other documents, in lines."""
        return self.keeping.notes if self.keeping else []

    @property
    def texts(self) -> list[str]:
        """The answers as text."""
        return ["".join(token.text for token in answer).strip() for answer in self.answers]

    def answered(self, model: str) -> dict[str, Any]:
        """What ``ask --json`` prints. Fields are added with time, none is renamed."""
        texts = self.texts
        return {
            "answer": texts[0],
            "answers": texts,
            "mode": self.plan.mode,
            "model": model,
            "stopped": self.stopped,
            "tokens": {
                "prompt": len(self.tokens),
                "reused": self.plan.reused,
                "prefilled": self.read,
                "generated": sum(map(len, self.answers)),
                "longest": max(map(len, self.answers)),
                "drafted": self.lookup.drafted,
                "accepted": self.lookup.accepted,
            },
            "passages": list(self.passages),
            "ranking": self._ranking(),
            "seconds": self._seconds(),
            "kv": self._kv(),
            "memory": {"peak_bytes": measure_process().peak},
            "citations": self.citations,
        }

    def prepared(self, model: str) -> dict[str, Any]:
        """What ``prepare --json`` prints of one document."""
        row = self.held[0][0]
        return {
            "document": row.id,
            "name": row.name,
            "model": model,
            "stopped": self.stopped,
            "tokens": {"prompt": len(self.tokens), "reused": self.plan.reused, "prefilled": self.read},
            "kept": self._kept(),
            "seconds": self._seconds(),
            "kv": self._kv(),
        }

    def _ranking(self) -> dict[str, int] | None:
        """What was read of all passages that were ranked; None where none was."""
        if not self.ranked:
            return None
        counts = {
            "tokens": sum(len(w.tokens) for w in self.ranked),
            "reused": sum(w.plan.reused for w in self.ranked),
            "prefilled": sum(w.read for w in self.ranked),
        }
        return {"passages": len(self.ranked), **counts}

    def _kept(self) -> dict[str, int]:
        pages = self.keeping.kept if self.keeping else 0
        nbytes = self.keeping.nbytes if self.keeping and pages else 0
        return {"pages": pages, "tokens": min(pages * PAGE, self.boundary), "bytes": nbytes}

    def _seconds(self) -> dict[str, float]:
        return {phase: round(self.seconds.get(phase, 0.0), 4) for phase in PHASES}

    def _kv(self) -> dict[str, Any]:
        pool = self.cache.pool
        return {
            "codec": pool.codec,
            "keeper": self.cache.keeper.name,
            "bytes_per_token": pool.shape.bytes_per_token(pool.codec),
            "pages": self.pages,
            "bytes": self.bytes,
            "sketch_bytes": self.sketched,
            "window": self.plan.window,
            "chunk": self.relief.chunk,
            "evicted": [{"start": e.start, "stop": e.stop, "kept": round(e.kept, 4)} for e in self.evicted],
            "map": self.map,
        }


class Begun(NamedTuple):
    """Work that is to be answered; its last logits where it is read already, and the passages it is about, if any.
    ``closely``: from sentences of the passage. ``answerable``: some passage makes the question likelier.
    """

    work: Request
    logits: Tensor | None = None
    passages: Sequence[Any] = ()
    closely: bool = False
    answerable: bool = True
