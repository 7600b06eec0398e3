"""Blending measured: passages of a text read together, against the same ones read apart and put together."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor

from localctx.engine.blending import BLENDINGS, Blending, CachedPassage, blend, locate, refuse_unmovable
from localctx.engine.coroutine import compute_alone, run_to_end
from localctx.engine.events import Progress
from localctx.engine.plan import refuse_too_long
from localctx.engine.prompt import Prompt, make_prompt
from localctx.errors import DocumentError
from localctx.kv.cache import Cache
from localctx.quality.compare import Divergence, compare, score
from localctx.quality.gate import good_enough
from localctx.quality.needles import ROOM, answer, head_of, make_needles, plant, read_all
from localctx.quality.variants import Setup, Variant

LENGTH = 256  # tokens of a passage
FOLLOWING = 512  # tokens after the last one, which are predicted
_CHARACTERS = 32  # for each token asked for; what follows in a longer text is not even tokenized


@dataclass(frozen=True)
class Blended:
    """What one blending gave; ``how`` None is the reference, which reads all passages together.

    A mean over the prompts built, to the end of the last passage: ``read`` tokens, ``reused`` ones, ``seconds``.
    ``needles``: passage by passage, was the fact in it found?
    """

    how: Blending | None
    divergence: Divergence
    needles: tuple[bool, ...]
    read: int
    reused: int
    seconds: float
    passed: bool

    @property
    def name(self) -> str:
        """``together``, or what is read again: ``none``, ``32``, ``32+15%``."""
        return self.how.name if self.how else "together"

    def to_json(self) -> dict[str, Any]:
        """The result as ``--json`` prints it and the store keeps it."""
        counts = {"read": self.read, "reused": self.reused, "seconds": round(self.seconds, 3)}
        return {"blend": self.name, **asdict(self.divergence), "needles": self.needles, **counts, "passed": self.passed}


@dataclass(frozen=True)
class _Case:
    """A prompt of passages, each of them read alone; ``end`` is where the last ends in the prompt."""

    prompt: Prompt
    passages: list[CachedPassage]
    end: int


class BlendGate:
    """Measures blendings on ``count`` passages of LENGTH tokens that follow each other in ``text``.

    They are read in ``codec``, together too: what is measured is the blending alone. ``hear`` is told of prompts built.
    Raises DocumentError for a text that is too short, TooLong for too many passages, and ModelError for a model whose
    keys cannot be turned.
    """

    def __init__(
        self, on: Setup, codec: str, text: str, count: int, hear: Callable[[Progress], None] = lambda progress: None
    ) -> None:
        refuse_unmovable(on.model)
        self.on, self._variant, self._hear = on, Variant(codec), hear
        tokenizer, need = on.model.tokenizer, count * LENGTH + FOLLOWING + 1
        refuse_too_long(need + ROOM, on.model.context, on.model.name)
        tokens = tokenizer.encode(text[: _CHARACTERS * need])[:need]
        if len(tokens) < need:
            raise DocumentError(f"{len(tokens):,} tokens are too few to measure on", f"take {need:,} or more")
        self.following = tokens[count * LENGTH :]
        self.texts = [head_of(tokenizer, tokens[at : at + LENGTH]) for at in range(0, count * LENGTH, LENGTH)]
        self.needles = make_needles([0.5] * count)
        self._done, self._total, self._reference, self._found = 0, 0, list[Tensor](), 0

    def run(self, blendings: Sequence[Blending] = BLENDINGS) -> Iterator[Blended]:
        """Results as they come, the reference first."""
        self._total = len(self.needles) + (1 + len(blendings)) * (1 + len(self.needles))
        cases = list(self._cases())
        for how in (None, *blendings):
            yield self._measure(cases, how)

    def _cases(self) -> Iterator[_Case]:
        """The passages as they are, and with a needle in each of them in turn."""
        question, plain = self.needles[0].question, [self._read_alone(text) for text in self.texts]
        yield self._case(self.texts, plain, question)
        for i, needle in enumerate(self.needles):
            texts, passages = self.texts.copy(), plain.copy()
            texts[i] = plant(texts[i], needle)
            passages[i] = self._read_alone(texts[i])
            yield self._case(texts, passages, needle.question)
            self._tell()

    def _case(self, texts: list[str], passages: list[CachedPassage], question: str) -> _Case:
        prompt = make_prompt(self.on.model.tokenizer, texts, question)
        return _Case(prompt, passages, locate(prompt.tokens, passages)[-1].stop)

    def _read_alone(self, text: str) -> CachedPassage:
        prompt = make_prompt(self.on.model.tokenizer, [text], "")
        tokens, cache = prompt.tokens[: prompt.shared], self._new_cache()
        read_all(self.on, cache, tokens, lambda tokens: None)
        return CachedPassage(tokens, cache)

    def _measure(self, cases: list[_Case], how: Blending | None) -> Blended:
        divergence, found, reused, seconds = None, list[bool](), 0, 0.0
        for i, case in enumerate(cases):
            start, cache = time.perf_counter(), self._new_cache()
            reused += self._build(cache, case, how)
            seconds += time.perf_counter() - start
            if i == 0:
                divergence = self._diverge(cache, case)
                cache.drop()
            else:
                found.append(self.needles[i - 1].found_in(answer(self.on, cache, case.prompt)))
            self._tell()
        assert divergence
        self._found = self._found if how else sum(found)
        passed = good_enough(divergence, sum(found), self._found)
        tokens = sum(case.end for case in cases)
        n = len(cases)
        return Blended(how, divergence, tuple(found), (tokens - reused) // n, reused // n, seconds / n, passed)

    def _build(self, cache: Cache, case: _Case, how: Blending | None) -> int:
        """Fill ``cache`` to the end of the last passage; how many tokens were not read."""
        tokens = case.prompt.tokens
        if how is None:
            read_all(self.on, cache, tokens[: case.end], lambda tokens: None)
            return 0
        return run_to_end(
            blend(self.on.model, cache, tokens, case.passages, how, chunk=self.on.chunk), compute_alone(self.on.model)
        )

    def _diverge(self, cache: Cache, case: _Case) -> Divergence:
        tokens = [*case.prompt.tokens[: case.end], *self.following[:-1]]
        logs = score(lambda step, keep: self.on.model.forward(step, cache, keep), tokens, case.end)
        self._reference = self._reference or logs
        return compare(self._reference, logs, self.following[1:])

    def _new_cache(self) -> Cache:
        return self.on.new_cache(self._variant, 0)

    def _tell(self) -> None:
        self._done += 1
        self._hear(Progress("measuring passages", self._done, self._total))
