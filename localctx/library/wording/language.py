"""Warns about documents in a language that a model does not know."""

from collections.abc import Iterator, Sequence

from localctx.library.wording.identify_language import NAMES, language_of
from localctx.models.catalog import load_catalog
from localctx.settings import Settings
from localctx.store.documents import StoredDocument


def language_warnings(settings: Settings, documents: Sequence[StoredDocument], searched: bool = False) -> Iterator[str]:
    """Yields a warning for each language of ``documents`` that the chosen model is not known to read.

    If the documents were ``searched``, also warns about languages that the embedder does not know. Does not warn about
    models whose languages are unknown.
    """
    catalog = load_catalog()
    model, embedder = (catalog.get(name) for name in (settings.model, settings.embedder))
    read = model.languages if model else frozenset[str]()
    compared = embedder.languages if embedder and searched else frozenset[str]()
    if not read and not compared:
        return
    for language, name in _languages_of(documents).items():
        if read and language not in read:
            yield _unread(name, language, settings.model)
        if compared and language not in compared:
            yield _found_by_words(name, language, settings.embedder)


def _languages_of(documents: Sequence[StoredDocument]) -> dict[str, str]:
    """Returns the languages of ``documents`` that could be detected with certainty. Each is mapped to the name of the
    first document in this language.
    """
    found = dict[str, str]()
    for row, text, _ in documents:
        if language := language_of(text):
            found.setdefault(language, row.name)
    return found


def _unread(name: str, language: str, model: str) -> str:
    return (
        f"{name} is in {NAMES[language]}, which {model} was neither made for nor measured to read: trust the quoted "
        "words, not the answer; models that read it: localctx models list"
    )


def _found_by_words(name: str, language: str, embedder: str) -> str:
    others = (entry for entry in load_catalog().values() if entry.kind == "embedder")
    better = next((entry.name for entry in others if language in entry.languages), None)
    remedy = f"; by their meaning: --embedder {better}" if better else ""
    return (
        f"{name} is in {NAMES[language]}, which {embedder} does not know: passages are found by their words rather "
        f"than their meaning{remedy}"
    )
