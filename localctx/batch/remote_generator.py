"""Elsewhere: a server speaks about a document in place of the model here. All else stays here."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict, replace
from typing import Any

from localctx.batch.server_client import ServerAnswer, ServerClient
from localctx.engine.events import Event, Note
from localctx.engine.prompt import ASK, content
from localctx.errors import NothingFound, TooLong
from localctx.library.cite import cite_passages
from localctx.library.search import Passage
from localctx.library.sentences import trim_to_sentence
from localctx.settings import Settings
from localctx.store.documents import StoredDocument, labels
from localctx.workflows.summary_task import AS_IT_IS
from localctx.workflows.text_generator import GeneratedAnswer, zero_token_counts

COUNTED = 3  # bytes of a token, at least, as long as the server has not counted: sections are cut by it
SURELY = 8  # bytes of a token, at most: what is longer than the window even so is not sent
WORDS = 2  # of a text, at most, in a token; where a server counts fewer tokens it has read only a part
ASSUMED = 4096  # tokens of a window that is not told
PASSAGES = 5  # a question is answered from, where the document is too long; as many as `ask` ranks

Find = Callable[[StoredDocument, str, int], tuple[list[Passage], str | None]]


def settings_elsewhere(settings: Settings, model: str) -> Settings:
    """``settings`` of results of a server's ``model``: what is said of the model here has no part in them."""
    plain = Settings(settings.home)
    machine = ("device", "dtype", "weights", "threads", "chunk", "rope", "memory", "ram", "disk")
    ours = ("kv", *machine, "keep", "beams", "blend")
    return replace(settings, model=f"server:{model}", **{name: getattr(plain, name) for name in ours})


class RemoteGenerator:
    """A server that speaks about ``held``. ``find`` gives the best passages for a question, and a doubt about them."""

    def __init__(self, caller: ServerClient, settings: Settings, held: StoredDocument, find: Find) -> None:
        self._caller, self._settings, self._held, self._find = caller, settings, held, find
        self._server = caller.server
        self.model, self.token_counts = f"{self._server.model} @ {self._server.address.host}", zero_token_counts()
        self.token_counts["estimated"] = 0  # tokens that the server did not count

    @property
    def window(self) -> int:
        """See ``TextGenerator``."""
        return self._server.window or ASSUMED

    def count(self, text: str) -> int:
        """See ``TextGenerator``. Rather too many."""
        return -(-len(text.encode()) // COUNTED)

    def refuse_too_long(self, texts: Sequence[str], instruction: str) -> None:
        """See ``TextGenerator``. As far as it can be known here; the server may refuse a text all the same."""
        self._server.refuse_too_long(self.count(content(texts, instruction, AS_IT_IS)))

    def generate(self, texts: Sequence[str], instruction: str, most: int) -> Generator[Event, None, str]:
        """See ``TextGenerator``."""
        return (yield from self._ask(texts, instruction, AS_IT_IS, most))

    def generate_from_whole(self, instruction: str, most: int, persist: bool) -> Generator[Event, None, str]:
        """See ``TextGenerator``. What is kept there is that server's affair."""
        return (yield from self.generate([self._held[1]], instruction, most))

    def answer(self, question: str) -> Generator[Event, None, GeneratedAnswer]:
        """See ``TextGenerator``. Passages are those that search puts first: nobody asks the server to rank them."""
        row, text, _ = self._held
        if self._settings.mode != "retrieve":
            try:
                said = yield from self._ask([text], question, ASK, self._settings.max_tokens)
            except TooLong:
                if self._settings.mode == "full":
                    raise
            else:
                whole = Passage(row.id, row.name, 0, len(text), text, None, None, 0.0, {})
                return self._answered(said, question, "full", [whole])
        return (yield from self._of_passages(question))

    def _of_passages(self, question: str) -> Generator[Event, None, GeneratedAnswer]:
        found, doubt = self._find(self._held, question, self._settings.passages or PASSAGES)
        if not found:
            what = f"{self._held[0].name} is too long, and nothing in it is like the question"
            raise NothingFound(what, "say it in other words")
        if doubt:
            yield Note(doubt)
        while True:
            best = sorted(found, key=lambda p: p.start)
            try:
                said = yield from self._ask([p.text for p in best], question, ASK, self._settings.max_tokens)
                return self._answered(said, question, "retrieve", best)
            except TooLong:
                if len(found) == 1:
                    raise
                found = found[: len(found) // 2]

    def _answered(self, said: str, question: str, mode: str, passages: Sequence[Passage]) -> GeneratedAnswer:
        page, heading = (labels(self._held[2], kind) for kind in ("page", "heading"))
        cited = [
            {**asdict(c), "page": page(c.start), "heading": heading(c.start)}
            for c in cite_passages(said, question, passages)
        ]
        return GeneratedAnswer(said, mode, cited)

    def _ask(self, texts: Sequence[str], question: str, form: str, most: int) -> Generator[Event, None, str]:
        whole = content(texts, question, form)
        self._server.refuse_too_long(len(whole.encode()) / SURELY)
        said = yield from self._caller.ask(whole, most)
        self._count(whole, said)
        if self.token_counts["estimated"] and not self._server.estimated:
            self._server.estimated = True
            yield Note(f"{self._server.address.host} does not count tokens: they are estimated")
        return said.text if said.whole else trim_to_sentence(said.text)

    def _count(self, whole: str, said: ServerAnswer) -> None:
        """Count tokens, as the server does where it does. Raises TooLong where it has not read all of it."""
        usage = _object(said.usage)
        prompt, generated = usage.get("prompt_tokens"), usage.get("completion_tokens")
        cached = _object(usage.get("prompt_tokens_details")).get("cached_tokens") or 0
        if not (isinstance(prompt, int) and isinstance(generated, int) and isinstance(cached, int)):
            prompt, generated, cached = self.count(whole), said.pieces or self.count(said.text), 0
            self.token_counts["estimated"] += prompt + generated
        elif prompt * WORDS < len(whole.split()):
            what = f"{self._server.address.host} read {prompt:,} tokens of a text that has more"
            raise TooLong(what, "let that server have a longer window")
        self.token_counts.update(prompt=prompt, reused=cached, prefilled=prompt - cached, generated=generated)


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
