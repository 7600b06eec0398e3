"""Measures blending: compares passages prefilled alone and blended with the same passages prefilled together."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor

from localctx.engine.blending import BLENDINGS, Blending, CachedPassage, blend, locate, refuse_unmovable
from localctx.engine.coroutine import compute_alone, run_to_end
from localctx.engine.events import Progress
from localctx.engine.planning.plan import refuse_too_long
from localctx.engine.prompt import Prompt, make_prompt
from localctx.errors import DocumentError
from localctx.kv.cache import Cache
from localctx.quality.compare import Divergence, compare, score
from localctx.quality.gate import meets_quality_bar
from localctx.quality.needles import ROOM, answer, decode_tokens, make_needles, plant, prefill_all
from localctx.quality.variants import Setup, Variant

LENGTH = 256  # tokens of a passage
FOLLOWING = 512  # tokens after the last passage, which are predicted
_CHARACTERS = 32  # most characters tokenized per needed token; the rest of a long text is ignored


@dataclass(frozen=True)
class BlendResult:
    """The measured quality of one blending. If ``blending`` is None, it is the reference, which prefills all passages
    together.

    ``read`` and ``reused`` tokens and ``seconds`` are means over the prompts, up to the end of the last passage.
    ``needles`` has True for each passage whose planted fact was found.
    """

    blending: Blending | None
    divergence: Divergence
    needles: tuple[bool, ...]
    read: int
    reused: int
    seconds: float
    passed: bool

    @property
    def name(self) -> str:
        """The name of the blending: ``together``, or which tokens were computed again, such as ``none``, ``32`` or
        ``32+15%``.
        """
        return self.blending.name if self.blending else "together"

    def to_json(self) -> dict[str, Any]:
        """Returns the result as ``--json`` prints it and the store saves it."""
        counts = {"read": self.read, "reused": self.reused, "seconds": round(self.seconds, 3)}
        return {"blend": self.name, **asdict(self.divergence), "needles": self.needles, **counts, "passed": self.passed}


@dataclass(frozen=True)
class _BlendCase:
    """A prompt and its passages, each prefilled alone. The last passage ends at token ``end`` of the prompt."""

    prompt: Prompt
    passages: list[CachedPassage]
    end: int


class BlendGate:
    """Measures blendings on ``count`` consecutive passages of ``text``, each of LENGTH tokens.

    The reference uses ``codec`` too, so only the effect of blending is measured. ``on_progress`` gets the number of
    finished steps. Raises DocumentError for a text that is too short, TooLong for too many passages, and ModelError for
    a model whose keys cannot be re-rotated.
    """

    def __init__(
        self,
        setup: Setup,
        codec: str,
        text: str,
        count: int,
        on_progress: Callable[[Progress], None] = lambda progress: None,
    ) -> None:
        refuse_unmovable(setup.model)
        self.setup, self._variant, self._on_progress = setup, Variant(codec), on_progress
        tokenizer, need = setup.model.tokenizer, count * LENGTH + FOLLOWING + 1
        refuse_too_long(need + ROOM, setup.model.context, setup.model.name)
        tokens = tokenizer.encode(text[: _CHARACTERS * need])[:need]
        if len(tokens) < need:
            raise DocumentError(f"{len(tokens):,} tokens are too few to measure on", f"take {need:,} or more")
        self.following = tokens[count * LENGTH :]
        self.texts = [decode_tokens(tokenizer, tokens[at : at + LENGTH]) for at in range(0, count * LENGTH, LENGTH)]
        self.needles = make_needles([0.5] * count)
        self._done, self._total, self._reference, self._reference_needles = 0, 0, list[Tensor](), 0

    def run(self, blendings: Sequence[Blending] = BLENDINGS) -> Iterator[BlendResult]:
        """Yield the result of each blending as soon as it is known, and the result of the reference first."""
        self._total = len(self.needles) + (1 + len(blendings)) * (1 + len(self.needles))
        cases = list(self._cases())
        for blending in (None, *blendings):
            yield self._measure(cases, blending)

    def _cases(self) -> Iterator[_BlendCase]:
        """Yield a case without needles, then a case for each passage, with a needle in this passage."""
        question, plain = self.needles[0].question, [self._read_alone(text) for text in self.texts]
        yield self._case(self.texts, plain, question)
        for i, needle in enumerate(self.needles):
            texts, passages = self.texts.copy(), plain.copy()
            texts[i] = plant(texts[i], needle)
            passages[i] = self._read_alone(texts[i])
            yield self._case(texts, passages, needle.question)
            self._report_step()

    def _case(self, texts: list[str], passages: list[CachedPassage], question: str) -> _BlendCase:
        prompt = make_prompt(self.setup.model.tokenizer, texts, question)
        return _BlendCase(prompt, passages, locate(prompt.tokens, passages)[-1].stop)

    def _read_alone(self, text: str) -> CachedPassage:
        prompt = make_prompt(self.setup.model.tokenizer, [text], "")
        tokens, cache = prompt.tokens[: prompt.shared], self._new_cache()
        prefill_all(self.setup, cache, tokens, lambda tokens: None)
        return CachedPassage(tokens, cache)

    def _measure(self, cases: list[_BlendCase], blending: Blending | None) -> BlendResult:
        divergence, found, reused, seconds = None, list[bool](), 0, 0.0
        for i, case in enumerate(cases):
            start, cache = time.perf_counter(), self._new_cache()
            reused += self._build(cache, case, blending)
            seconds += time.perf_counter() - start
            if i == 0:
                divergence = self._divergence(cache, case)
                cache.drop()
            else:
                found.append(self.needles[i - 1].found_in(answer(self.setup, cache, case.prompt)))
            self._report_step()
        assert divergence
        self._reference_needles = self._reference_needles if blending else sum(found)
        passed = meets_quality_bar(divergence, sum(found), self._reference_needles)
        tokens = sum(case.end for case in cases)
        n = len(cases)
        return BlendResult(blending, divergence, tuple(found), (tokens - reused) // n, reused // n, seconds / n, passed)

    def _build(self, cache: Cache, case: _BlendCase, blending: Blending | None) -> int:
        """Fill ``cache`` up to the end of the last passage. Returns the number of reused tokens."""
        tokens = case.prompt.tokens
        if blending is None:
            prefill_all(self.setup, cache, tokens[: case.end], lambda tokens: None)
            return 0
        return run_to_end(
            blend(self.setup.model, cache, tokens, case.passages, blending, chunk=self.setup.chunk),
            compute_alone(self.setup.model),
        )

    def _divergence(self, cache: Cache, case: _BlendCase) -> Divergence:
        tokens = [*case.prompt.tokens[: case.end], *self.following[:-1]]
        logs = score(lambda step, keep: self.setup.model.forward(step, cache, keep), tokens, case.end)
        self._reference = self._reference or logs
        return compare(self._reference, logs, self.following[1:])

    def _new_cache(self) -> Cache:
        return self.setup.new_cache(self._variant, 0)

    def _report_step(self) -> None:
        self._done += 1
        self._on_progress(Progress("measuring passages", self._done, self._total))
