"""Languages that a model, or an embedder, was not made for: the person who asks is told before the answer."""

from collections.abc import Iterator, Sequence

from localctx.library.language import NAMES, language_of
from localctx.models.catalog import load_catalog
from localctx.settings import Settings
from localctx.store.documents import Held


def language_warnings(settings: Settings, documents: Sequence[Held]) -> Iterator[str]:
    """A line for each language of ``documents`` that the model of ``settings`` was not made for, as far as is known."""
    known = load_catalog()
    reads = known[settings.model].languages if settings.model in known else ()
    searches = known[settings.embedder].languages if settings.embedder in known else ()
    if not reads:
        return
    told = set[str]()
    for row, text, _ in documents:
        language = language_of(text)
        if language is None or language in reads or language in told:
            continue
        told.add(language)
        by_words = searches and language not in searches
        means = ", and passages are found by their words rather than their meaning" if by_words else ""
        yield (
            f"{row.name} is in {NAMES[language]}, which {settings.model} was not made for: trust the quoted words, not "
            f"the answer{means}; models that read it: localctx models list"
        )
