"""Needle in a haystack: plants a fact in the user's text at some depth and asks for it.

A context has one needle, as in RULER's niah_single (arXiv:2404.06654).
"""

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from localctx.engine.coroutine import compute_alone, drive, run_to_end
from localctx.engine.decoding.prefill_decode import decode, prefill
from localctx.engine.events import Progress, Token
from localctx.engine.prompt import Prompt, make_prompt
from localctx.kv.cache import Cache
from localctx.models.base import Tokenizer
from localctx.models.sampling import Sampler
from localctx.quality.variants import Setup, Variant, fork_for
from localctx.shape import PAGE

DEPTHS = (0.05, 0.275, 0.5, 0.725, 0.95)
ANSWER = 24  # tokens
ROOM = 256  # tokens for needle, question, chat template and answer
_CITIES = ("Oakwood", "Riverton", "Ashford", "Millbrook", "Fairview")
_SENTENCE = re.compile(r"[.!?][\"')\]]*\s+|\n+")


@dataclass(frozen=True)
class Needle:
    """A planted sentence with a number that the text contains nowhere else. ``depth`` is the share of the text that
    precedes the sentence.
    """

    depth: float
    city: str
    number: str

    @property
    def sentence(self) -> str:
        """The planted sentence."""
        return f"The special magic number for {self.city} is {self.number}."

    @property
    def question(self) -> str:
        """The question that asks for the number."""
        return f"What is the special magic number for {self.city}?"

    def found_in(self, answer: str) -> bool:
        """Returns True if the answer contains the number, with or without thousands separators."""
        return self.number in re.sub(r"(?<=\d)[, .](?=\d)", "", answer)


def make_needles(depths: Sequence[float] = DEPTHS, seed: int = 7) -> list[Needle]:
    """Returns a needle for each depth, with its own city and seven-digit number. The same ``seed`` gives the same
    needles.
    """
    numbers = random.Random(seed)
    return [
        Needle(d, _CITIES[i % len(_CITIES)], str(numbers.randrange(1_000_000, 10_000_000)))
        for i, d in enumerate(depths)
    ]


def plant(text: str, needle: Needle) -> str:
    """Insert the needle's sentence into ``text`` at the sentence boundary nearest to its depth."""
    ends = [0, *(m.end() for m in _SENTENCE.finditer(text)), len(text)]
    at = min(ends, key=lambda end: abs(end - needle.depth * len(text)))
    before = text[:at] if not at or text[at - 1].isspace() else text[:at] + " "
    return f"{before}{needle.sentence} {text[at:]}"


def decode_tokens(tokenizer: Tokenizer, tokens: Sequence[int]) -> str:
    """Returns the text of ``tokens``."""
    decode_next = tokenizer.stream()
    return "".join(map(decode_next, tokens))


def find_needles(
    setup: Setup, variants: Sequence[Variant], text: str, read: Callable[[int], None] = lambda tokens: None
) -> dict[Variant, tuple[bool, ...]]:
    """Returns for each variant whether it finds the needle at each of DEPTHS. The variants share each prefill.

    The deepest needle is measured first. If the keeper drops nothing, the next text then reuses the pages of the prefix
    that both texts have in common. Calls ``read`` with the number of tokens read.
    """
    found: dict[Variant, list[bool]] = {v: [] for v in variants}
    cache, before = setup.new_cache(variants[0], 0), list[int]()
    for needle in reversed(make_needles()):
        prompt = make_prompt(setup.model.tokenizer, [plant(text, needle)], needle.question)
        length = len(prompt.tokens)
        cache = _trimmed(setup, cache, variants[0], _common_prefix(before, prompt.tokens), length)
        before = prompt.tokens[: prompt.shared // PAGE * PAGE]
        prefill_all(setup, cache, before, read)
        for variant in variants:
            found[variant].insert(0, needle.found_in(answer(setup, fork_for(cache, variant, length), prompt)))
    cache.drop()
    return {variant: tuple(hits) for variant, hits in found.items()}


def prefill_all(setup: Setup, cache: Cache, tokens: Sequence[int], read: Callable[[int], None]) -> None:
    """Prefill the part of ``tokens`` that is not in ``cache`` yet. Calls ``read`` with the number of tokens in each
    chunk.
    """
    done = cache.length
    events = drive(prefill(cache, tokens, chunk=setup.chunk, cuts=[len(tokens)]), compute_alone(setup.model))
    for event in events if done < len(tokens) else ():
        if isinstance(event, Progress):
            read(event.done - done)
            done = event.done


def _trimmed(setup: Setup, cache: Cache, variant: Variant, common: int, tokens: int) -> Cache:
    """Trim the cache to the whole pages of the ``common`` first tokens. Returns a new cache if pages may be missing."""
    if variant.shares_prefill:
        cache.trim(cache.trimmable(common // PAGE * PAGE))
        return cache
    cache.drop()
    return setup.new_cache(variant, tokens)


def answer(setup: Setup, cache: Cache, prompt: Prompt) -> str:
    """Answer ``prompt``, whose first tokens are in ``cache``, then drop the cache."""
    logits = run_to_end(prefill(cache, prompt.tokens, chunk=setup.chunk), compute_alone(setup.model))
    decoding = decode(cache, logits, tokenizer=setup.model.tokenizer, sampler=Sampler(), limit=ANSWER)
    text = "".join(t.text for t in drive(decoding, compute_alone(setup.model)) if isinstance(t, Token))
    cache.drop()
    return text


def _common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """Returns the length of the common prefix of two token sequences."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
