"""Needles: a fact planted in the user's text at some depth, asked for when everything has been read.

One needle a context, as in RULER's niah_single (arXiv:2404.06654) with the user's text as the haystack.
"""

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from localctx.engine.coroutine import compute_alone, drive, run_to_end
from localctx.engine.events import Progress, Token
from localctx.engine.prefill_decode import decode, prefill
from localctx.engine.prompt import Prompt, make_prompt
from localctx.kv.cache import Cache
from localctx.models.base import Tokenizer
from localctx.models.sampling import Sampler
from localctx.quality.variants import Setup, Variant, fork_for
from localctx.shape import PAGE

DEPTHS = (0.05, 0.275, 0.5, 0.725, 0.95)
ANSWER = 24  # tokens
ROOM = 256  # tokens for needle, question, the turns around them and the answer
_CITIES = ("Oakwood", "Riverton", "Ashford", "Millbrook", "Fairview")
_SENTENCE = re.compile(r"[.!?][\"')\]]*\s+|\n+")


@dataclass(frozen=True)
class Needle:
    """A number that only the planted sentence tells. ``depth`` is the share of the text before it."""

    depth: float
    city: str
    number: str

    @property
    def sentence(self) -> str:
        """What is planted."""
        return f"The special magic number for {self.city} is {self.number}."

    @property
    def question(self) -> str:
        """What is asked."""
        return f"What is the special magic number for {self.city}?"

    def found_in(self, answer: str) -> bool:
        """Whether the answer tells the number, however its thousands are set apart."""
        return self.number in re.sub(r"(?<=\d)[, .](?=\d)", "", answer)


def make_needles(depths: Sequence[float] = DEPTHS, seed: int = 7) -> list[Needle]:
    """One needle a depth, the same in every run: another city and another number of seven digits each."""
    numbers = random.Random(seed)
    return [
        Needle(d, _CITIES[i % len(_CITIES)], str(numbers.randrange(1_000_000, 10_000_000)))
        for i, d in enumerate(depths)
    ]


def plant(text: str, needle: Needle) -> str:
    """``text`` with the needle's sentence between the two of its sentences that are nearest to the depth."""
    ends = [0, *(m.end() for m in _SENTENCE.finditer(text)), len(text)]
    at = min(ends, key=lambda end: abs(end - needle.depth * len(text)))
    before = text[:at] if not at or text[at - 1].isspace() else text[:at] + " "
    return f"{before}{needle.sentence} {text[at:]}"


def head_of(tokenizer: Tokenizer, tokens: Sequence[int]) -> str:
    """The text of ``tokens``."""
    text_of = tokenizer.stream()
    return "".join(map(text_of, tokens))


def retrieve(
    on: Setup, variants: Sequence[Variant], text: str, read: Callable[[int], None] = lambda tokens: None
) -> dict[Variant, tuple[bool, ...]]:
    """Whether each of a group of variants, which share each reading, finds the needle at each of DEPTHS.

    The deepest comes first: where nothing was dropped, the next starts from the text before both. ``read`` hears of
    tokens read.
    """
    found: dict[Variant, list[bool]] = {v: [] for v in variants}
    cache, before = on.new_cache(variants[0], 0), list[int]()
    for needle in reversed(make_needles()):
        prompt = make_prompt(on.model.tokenizer, [plant(text, needle)], needle.question)
        size = len(prompt.tokens)
        cache = _rewound(on, cache, variants[0], _same(before, prompt.tokens), size)
        before = prompt.tokens[: prompt.shared // PAGE * PAGE]
        read_all(on, cache, before, read)
        for variant in variants:
            found[variant].insert(0, needle.found_in(answer(on, fork_for(cache, variant, size), prompt)))
    cache.drop()
    return {variant: tuple(marks) for variant, marks in found.items()}


def read_all(on: Setup, cache: Cache, tokens: Sequence[int], read: Callable[[int], None]) -> None:
    """Read ``tokens`` from where the cache ends; ``read`` hears of the tokens of each chunk."""
    done = cache.length
    reading = drive(prefill(cache, tokens, chunk=on.chunk, boundary=len(tokens)), compute_alone(on.model))
    for event in reading if done < len(tokens) else ():
        if isinstance(event, Progress):
            read(event.done - done)
            done = event.done


def _rewound(on: Setup, cache: Cache, variant: Variant, common: int, tokens: int) -> Cache:
    if variant.late:
        cache.trim(common // PAGE * PAGE)
        return cache
    cache.drop()
    return on.new_cache(variant, tokens)


def answer(on: Setup, cache: Cache, prompt: Prompt) -> str:
    """The answer to ``prompt``, of which ``cache`` holds the beginning; the cache is dropped."""
    logits = run_to_end(prefill(cache, prompt.tokens, chunk=on.chunk), compute_alone(on.model))
    said = decode(cache, logits, tokenizer=on.model.tokenizer, sampler=Sampler(), limit=ANSWER)
    text = "".join(t.text for t in drive(said, compute_alone(on.model)) if isinstance(t, Token))
    cache.drop()
    return text


def _same(a: Sequence[int], b: Sequence[int]) -> int:
    """How many tokens two sequences begin with alike."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
