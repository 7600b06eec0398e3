"""Session: the one obvious entry. Open documents, ask, and take the events as they come."""

import gc
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import cached_property
from typing import Any

from torch import Tensor

from localctx.engine.beams import beam_search
from localctx.engine.events import Done, Event, Note, Planned, Progress, Token
from localctx.engine.generate import decode, decode_each, prefill
from localctx.engine.keep import Identity, Keeping
from localctx.engine.looks import looks
from localctx.engine.memory import Memory, Relief, choose_codec, choose_window, decide, longest, smaller_codec
from localctx.engine.plan import plan, refuse_too_big, refuse_too_long
from localctx.engine.prompt import Prompt, estimate_tokens, make_prompt
from localctx.engine.work import Work
from localctx.errors import Cancelled, StoreError, UsageError
from localctx.kv.keepers import make_keeper
from localctx.kv.pages import pack_tokens
from localctx.library.cite import glimpses
from localctx.library.read import read_document
from localctx.models.base import Model
from localctx.models.fetch import resolve
from localctx.models.hf import load_model
from localctx.models.sampling import Sampler
from localctx.settings import Settings
from localctx.shape import FORMATS, PAGE, SINKS
from localctx.store.bundle import Prepared
from localctx.store.documents import Held
from localctx.store.store import Store, told

SURELY_COUNTED = 8  # characters for each token of the window; a longer text is first counted roughly
MIN_RATED = 256  # tokens; a shorter reading says little about speed


class Session:
    """Documents asked on this machine, under ``settings``. Close it when done; use from one thread at a time.

    ``progress`` hears of the model being fetched and loaded, which happens when it is first needed.
    """

    def __init__(self, settings: Settings, progress: Callable[[Progress], None] = lambda event: None) -> None:
        make_keeper(settings.keep, 0)  # nonsense is told before anything is loaded
        self.settings, self._progress = settings, progress
        self._window = settings.rope
        self._stop = threading.Event()
        self._listening = False
        self._load_seconds = 0.0

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the store."""
        if "store" in self.__dict__:
            self.store.close()

    def cancel(self) -> bool:
        """Stop what runs, from any thread or a signal handler; heard within one layer of the model.

        False when nothing runs that would hear it (a model being loaded does not), or it was told already.
        """
        heard = self._listening and not self._stop.is_set()
        self._stop.set()
        return heard

    @cached_property
    def store(self) -> Store:
        """The data folder's store. Raises StoreError."""
        return Store(self.settings.home)

    @cached_property
    def model(self) -> Model:
        """The model, fetched and loaded when first needed. Raises ModelError."""
        start, s = time.perf_counter(), self.settings
        gc.disable()  # loading makes a million objects that stay: looking through them takes a fifth of the time
        try:
            folder = resolve(s.model, s.models, lambda phase, done, total: self._progress(Progress(phase, done, total)))
            refuse_too_big(folder, s)
            self._progress(Progress("loading", 0, 0))
            model = load_model(folder, s.model, s.device, s.dtype, s.threads, s.rope)
        finally:
            gc.freeze()
            gc.enable()
        self._load_seconds = time.perf_counter() - start
        return model

    def ask(self, sources: Sequence[str], question: str, keep: bool = True) -> Generator[Event, None, None]:
        """Answer ``question`` from the files ``sources`` (``-`` is standard input); the last event is Done.

        With ``keep`` False the store is not touched. Raises UserError before any work that would be wasted. A store
        that cannot be written costs the keeping (``Done.failed``), not the answer. Raises Cancelled when cancelled
        before reading began.
        """
        with self._running():
            work = yield from self._open(sources, question, keep)
            try:
                logits = yield from self._read(work)
                yield from self._answer(work, logits)
                work.citations = self._citations(work, question)
            except Cancelled:
                pass
            finally:
                self._shut(work)
        yield from map(Note, work.notes)
        yield Done(work.answered(self.settings.model), work.failed)

    def prepare(self, source: str) -> Generator[Event, None, None]:
        """Read the document ``source`` and keep its pages, so that questions start where reading ended.

        The last event is Done; ``Done.failed`` when the pages could not be kept.
        """
        with self._running():
            work = yield from self._open([source], None, keep=True)
            try:
                if work.cache.length < len(work.tokens):
                    yield from self._read(work)
                work.stopped = "eos"
            except Cancelled:
                pass
            finally:
                self._shut(work)
        yield from map(Note, work.notes)
        yield Done(work.prepared(self.settings.model), work.failed)

    def may_adopt(self, text: str, kept: Prepared) -> bool:
        """Whether pages made elsewhere have the fingerprint, tokens and sizes that this ``text`` has here."""
        prompt, shape, count = self._prompt([text], ""), self.model.shape, len(kept.pages)
        tokens = prompt.tokens[: prompt.shared]
        sizes = [shape.page_bytes(kept.codec, sinks=i < SINKS) for i in range(count)] if kept.codec in FORMATS else []
        if opened := count and len(tokens[(count - 1) * PAGE :][:PAGE]) % PAGE:
            sizes[-1:] = [shape.tail_bytes(self.model.dtype.itemsize) // PAGE * opened]
        return (
            [page.nbytes for page in kept.pages] == sizes
            and kept.fingerprint == self.model.fingerprint(kept.codec)
            and kept.slot_bytes == shape.slot_bytes(kept.codec)
            and b"".join(page.tokens for page in kept.pages) == pack_tokens(tokens[: count * PAGE])
            and kept.tokens == len(tokens)
        )

    def _turning(self, source: str) -> Callable[[int, int], None]:
        return lambda done, total: self._progress(Progress(f"pages of {source}", done, total))

    @contextmanager
    def _running(self) -> Iterator[None]:
        self._stop.clear()
        try:
            yield
        finally:
            self._listening = False

    def _open(self, sources: Sequence[str], question: str | None, keep: bool) -> Generator[Event, None, Work]:
        start = time.perf_counter()
        documents = [read_document(s, self._turning(s)) for s in sources]
        parsed = time.perf_counter() - start
        model = self.model
        start = time.perf_counter() - parsed
        self._listening = True
        prompt = self._prompt([d.text for d in documents], question or "")
        boundary = prompt.shared
        tokens = prompt.tokens if question is not None else prompt.tokens[:boundary]
        memory = decide(model, self.settings, self._codec(), len(tokens))
        if not memory.keeper.turns:
            refuse_too_long(len(tokens), model.context, model.name)
        cache = memory.new_cache(model, self.settings.home / "spill")
        drops = memory.keeper.drops and memory.keeper.held(len(tokens)) < len(tokens)
        if drops and question is None:
            what = f"{memory.keeper.name} drops part of {documents[0].row.name}: nothing could be kept for later"
            raise UsageError(what, "prepare it with --keep full, snapkv or select, or ask at once")
        keep = keep and not drops
        held: list[Held] = [(d.row, d.text, d.spans) for d in documents]
        keeping = self._keeping(held, prompt.tokens[:boundary], memory.codec) if keep else None
        restoring = time.perf_counter()
        notes = keeping.restore(cache) if keeping else []
        seconds = {"load": self._load_seconds, "parse": parsed, "restore": time.perf_counter() - restoring}
        self._load_seconds = 0.0  # the next question finds it loaded
        yield from map(Note, notes)
        planned = self._plan(memory, tokens, cache.length, keeping)
        yield planned
        if keeping:
            keeping.enter(cache)
        relief = Relief(memory.chunk, self._smaller)
        return Work(held, tokens, boundary, cache, keeping, planned, relief, start, seconds)

    def _prompt(self, texts: list[str], question: str) -> Prompt:
        """The prompt, and the model's window as it wants it. TooLong before anything is kept of it; what is hopelessly
        long is not even counted.
        """
        model, most = self.model, longest(self.settings, self.model)
        if sum(map(len, texts)) > SURELY_COUNTED * most:
            guess = estimate_tokens(model.tokenizer, texts, int(most), self._stop.is_set)
            refuse_too_long(guess, most, model.name, "about ")
        prompt = make_prompt(model.tokenizer, texts, question)
        refuse_too_long(len(prompt.tokens), most, model.name)
        window = choose_window(self.settings, model, prompt.shared, len(prompt.tokens)).rope
        if window != self._window:
            model.stretch(window)
            self._window = window
        return prompt

    def _codec(self) -> str:
        return choose_codec(self.model.shape, self._passed) if self.settings.kv == "auto" else self.settings.kv

    def _passed(self, codec: str) -> bool | None:
        """What the quality gate said of a codec with this model; None where it was not asked, or cannot be."""
        if "store" not in self.__dict__ and not Store.is_at(self.settings.home):
            return None  # and asking leaves no trace
        try:
            with told(self.settings.home):
                return self.store.verdicts.passed(self.model.fingerprint(codec))
        except StoreError:
            return None

    def _smaller(self, codec: str) -> str | None:
        return smaller_codec(self.model.shape, self._passed, codec) if self.settings.kv == "auto" else None

    def _keeping(self, held: list[Held], tokens: list[int], codec: str) -> Keeping:
        identity = Identity(self.model.fingerprint(codec), self.settings.model, codec)
        return Keeping(lambda: self.store, held, identity, tokens, self.settings.caps["disk"])

    def _plan(self, memory: Memory, tokens: list[int], reused: int, keeping: Keeping | None) -> Planned:
        rate, answer = keeping.rate if keeping else None, self.settings.max_tokens
        return plan(self.model, memory, tokens=len(tokens), reused=reused, answer=answer, per_second=rate)

    def _read(self, work: Work) -> Generator[Event, None, Tensor]:
        start = time.perf_counter()
        try:
            return (
                yield from prefill(
                    self.model,
                    work.cache,
                    work.tokens,
                    chunk=work.relief,
                    boundary=work.boundary,
                    cancelled=self._stop.is_set,
                    after_chunk=work.keeping or (lambda cache: None),
                )
            )
        finally:
            work.read = work.cache.length - work.plan.reused
            work.seconds["prefill"] = time.perf_counter() - start

    def _answer(self, work: Work, logits: Tensor) -> Iterator[Event]:
        first = 0.0
        for event in self._decoding(work, logits):
            yield event
            if not isinstance(event, Token):
                continue
            now = time.perf_counter()
            first = first or now
            work.seconds |= {"first_token": first - work.started, "decode": now - first}
            work.answers[event.answer].append(event)
        work.seconds.setdefault("first_token", time.perf_counter() - work.started)  # the model had nothing to say
        work.stopped = "length" if max(map(len, work.answers)) == work.plan.answer_tokens else "eos"

    def _decoding(self, work: Work, logits: Tensor) -> Iterator[Event]:
        s, model, stop = self.settings, self.model, self._stop.is_set
        work.cache.watch()
        limit = work.plan.answer_tokens
        if s.beams > 1:
            yield from beam_search(model, work.cache, logits, width=s.beams, limit=limit, cancelled=stop)
            return
        seeds = [None if s.seed is None else s.seed + i for i in range(s.n)]
        samplers = [Sampler(s.temperature, s.top_p, s.top_k, seed) for seed in seeds]
        work.answers = [[] for _ in samplers]
        if s.n == 1:
            yield from decode(model, work.cache, logits, sampler=samplers[0], limit=limit, cancelled=stop)
        else:
            yield from decode_each(model, work.cache, logits, samplers=samplers, limit=limit, cancelled=stop)

    def _citations(self, work: Work, question: str) -> list[dict[str, Any]]:
        texts = [text for _, text, _ in work.held]
        seen = looks(work.cache, self.model.tokenizer, work.tokens[: work.boundary], texts)
        return [asdict(citation) for citation in glimpses(work.texts[0], question, work.held, seen)]

    def _shut(self, work: Work) -> None:
        if work.keeping:
            rate = work.read / work.seconds["prefill"] if work.read >= MIN_RATED else None
            work.keeping.close(work.cache, rate)
        pool = work.cache.pool
        work.pages, work.evicted = pool.counts(), list(work.cache.evicted)
        work.bytes, work.sketched = pool.nbytes(), work.cache.sketch_bytes()
        work.cache.drop()
