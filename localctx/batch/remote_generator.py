"""RemoteGenerator: a server, instead of the local model, generates the text about a document."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from typing import Any

from localctx.batch.server_client import ServerAnswer, ServerClient
from localctx.engine.events import Event, Note
from localctx.engine.prompt_wording import AS_IT_IS, ASK, content
from localctx.errors import NothingFound, TooLong
from localctx.library.citations.cite import cite_passages
from localctx.library.search.search import Passage
from localctx.library.wording.no_answer import is_no_answer
from localctx.library.wording.sentences import trim_to_sentence
from localctx.settings import Settings
from localctx.store.documents import StoredDocument, labels, part_labels
from localctx.workflows.text_generator import GeneratedAnswer, zero_token_counts

MIN_TOKEN_BYTES = 3  # per token: gives an upper estimate of token counts, used to cut sections
MAX_TOKEN_BYTES = 8  # per token: gives a lower estimate; a text that still exceeds the window is not sent
MAX_WORDS_PER_TOKEN = 2  # a server that counts fewer tokens has read only part of the text
DEFAULT_WINDOW = 4096  # tokens, if the window of the server is unknown
DEFAULT_PASSAGES = 5  # used to answer if the document is too long; the number that `ask` ranks

FindPassages = Callable[[StoredDocument, str, int], tuple[list[Passage], str | None]]
"""A function that returns a document's best passages for a question, up to a given number, and a warning or None."""


def remote_settings(settings: Settings, model: str) -> Settings:
    """Returns the settings on which results of a server's ``model`` depend. Settings that concern only the local model
    get their defaults.
    """
    defaults = Settings(settings.home)
    machine = ("adapter", "device", "dtype", "weights", "threads", "chunk", "rope", "reading", "memory", "ram", "disk")
    local = ("kv", *machine, "keep", "beams", "blend")
    return replace(settings, model=f"server:{model}", **{name: getattr(defaults, name) for name in local})


class RemoteGenerator:
    """A TextGenerator in which a server generates text about ``document``. ``find`` is a function that returns passages
    for a question.
    """

    def __init__(self, client: ServerClient, settings: Settings, document: StoredDocument, find: FindPassages) -> None:
        self._client, self._settings, self._document, self._find = client, settings, document, find
        self._server = client.server
        self.model, self.token_counts = f"{self._server.model} @ {self._server.address.host}", zero_token_counts()
        self.token_counts["estimated"] = 0  # tokens that the server did not count

    @property
    def window(self) -> int:
        """The number of tokens that the server's model reads at once. If the server does not report it, a number is
        assumed.
        """
        return self._server.window or DEFAULT_WINDOW

    def count(self, text: str) -> int:
        """Returns an upper estimate of the number of tokens in a text."""
        return -(-len(text.encode()) // MIN_TOKEN_BYTES)

    def refuse_too_long(self, texts: Sequence[str], instruction: str) -> None:
        """Raise TooLong if ``texts`` and ``instruction`` do not fit in one prompt. Numbers of tokens are estimates, so
        the server may still refuse a text.
        """
        self._server.refuse_too_long(self.count(content(texts, instruction, AS_IT_IS)))

    def generate(self, texts: Sequence[str], instruction: str, max_tokens: int) -> Generator[Event, None, str]:
        return (yield from self._ask(texts, instruction, AS_IT_IS, max_tokens))

    def generate_from_whole(self, instruction: str, max_tokens: int, persist: bool) -> Generator[Event, None, str]:
        """Generate a text of at most ``max_tokens`` tokens that follows an instruction about the whole document.
        ``persist`` has no effect: the server decides what it caches.
        """
        return (yield from self.generate([self._document[1]], instruction, max_tokens))

    def answer(self, question: str) -> Generator[Event, None, GeneratedAnswer]:
        """Answer a question about the document from its whole text. In the mode ``retrieve``, or if the text is too
        long in the mode ``auto``, answer from passages. The search alone chooses the passages, because the server does
        not rank them.
        """
        row, text, _ = self._document
        if self._settings.mode != "retrieve":
            try:
                answer = yield from self._ask([text], question, ASK, self._settings.max_tokens)
            except TooLong:
                if self._settings.mode == "full":
                    raise
            else:
                whole = Passage(row.id, row.name, 0, len(text), text, None, None, 0.0, {})
                return self._cite(answer, question, "full", [whole])
        return (yield from self._answer_from_passages(question))

    def _answer_from_passages(self, question: str) -> Generator[Event, None, GeneratedAnswer]:
        passages, warning = self._find(self._document, question, self._settings.passages or DEFAULT_PASSAGES)
        if not passages:
            what = f"{self._document[0].name} is too long, and no passage of it matches the question"
            raise NothingFound(what, "ask in other words")
        if warning:
            yield Note(warning)
        while True:
            ordered = sorted(passages, key=lambda p: p.start)
            try:
                answer = yield from self._ask([p.text for p in ordered], question, ASK, self._settings.max_tokens)
                return self._cite(answer, question, "retrieve", ordered)
            except TooLong:
                if len(passages) == 1:
                    raise
                passages = passages[: len(passages) // 2]

    def _cite(self, answer: str, question: str, mode: str, passages: Sequence[Passage]) -> GeneratedAnswer:
        """Return an answer with its citations."""
        page, heading = part_labels(self._document[2]), labels(self._document[2], "heading")
        cited = [
            replace(c, page=page(c.start), heading=heading(c.start)) for c in cite_passages(answer, question, passages)
        ]
        return GeneratedAnswer(answer, mode, cited, bool(answer.strip()) and not is_no_answer(answer))

    def _ask(self, texts: Sequence[str], question: str, form: str, max_tokens: int) -> Generator[Event, None, str]:
        prompt = content(texts, question, form)
        self._server.refuse_too_long(len(prompt.encode()) / MAX_TOKEN_BYTES)
        answer = yield from self._client.ask(prompt, max_tokens)
        self._count(prompt, answer)
        if self.token_counts["estimated"] and not self._server.estimated:
            self._server.estimated = True
            yield Note(f"{self._server.address.host} does not count tokens: they are estimated")
        return answer.text if answer.complete else trim_to_sentence(answer.text)

    def _count(self, text: str, answer: ServerAnswer) -> None:
        """Set ``token_counts`` from the server's counts, or estimates. Raises TooLong if the server read only part of
        the text.
        """
        usage = _object(answer.usage)
        prompt, generated = usage.get("prompt_tokens"), usage.get("completion_tokens")
        cached = _object(usage.get("prompt_tokens_details")).get("cached_tokens") or 0
        if not (isinstance(prompt, int) and isinstance(generated, int) and isinstance(cached, int)):
            prompt, generated, cached = self.count(text), answer.chunks or self.count(answer.text), 0
            self.token_counts["estimated"] += prompt + generated
        elif prompt * MAX_WORDS_PER_TOKEN < len(text.split()):
            what = f"{self._server.address.host} read {prompt:,} tokens of a text that has more"
            raise TooLong(what, "give that server a longer window")
        self.token_counts.update(prompt=prompt, reused=cached, prefilled=prompt - cached, generated=generated)


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
