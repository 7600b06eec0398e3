"""Reads a document only up to a mark, so that text after the mark cannot influence an answer."""

from collections.abc import Sequence
from dataclasses import dataclass

from localctx.engine.prompt_prefix import cut_at_token
from localctx.errors import UsageError
from localctx.library.reading_mark import find_mark
from localctx.models.base import Tokenizer
from localctx.store.documents import DocumentBeginning, StoredDocument

LAST_WORDS = 8


@dataclass(frozen=True)
class ReadUntil:
    """Describes the part of a document that is read: the text before a ``mark``.

    The part has the first ``characters`` of ``of_characters`` characters, which are ``tokens`` tokens, and ends with
    ``last_words``.
    """

    mark: str
    characters: int
    of_characters: int
    tokens: int
    last_words: str

    def __str__(self) -> str:
        share = 100 * self.characters / self.of_characters
        return f'read up to "… {self.last_words}" ({share:.0f} % of the document); nothing after that is seen'


def locate_mark(documents: Sequence[StoredDocument] | None, mark: str) -> int:
    """Returns the number of characters before ``mark`` in the only document.

    Raises UsageError if the document does not have the mark, and for several documents or the library (None).
    """
    if documents is None or len(documents) != 1:
        asked = "the whole library is asked" if documents is None else f"{len(documents)} documents are asked"
        raise UsageError(f"--until needs exactly one document, and {asked}", "ask one document, or leave out --until")
    return find_mark(documents[0], mark)


def read_until(
    tokenizer: Tokenizer, documents: Sequence[StoredDocument] | None, mark: str
) -> tuple[DocumentBeginning, ReadUntil]:
    """Cut the only document at ``mark``, or at the end of the last token before it. Returns the beginning of the
    document, and its description.

    Raises UsageError if the document does not have the mark or begins with it, and for several documents or the library
    (None).
    """
    end = locate_mark(documents, mark)
    assert documents
    (document,) = documents
    cut = cut_at_token(tokenizer, document.text, end)
    if not cut.characters:
        raise UsageError(f"nothing of {document.name} comes before {mark}", "give a later place")
    beginning = document.beginning(cut.characters)
    words = " ".join(beginning.text[-200:].split()[-LAST_WORDS:])
    return beginning, ReadUntil(mark, cut.characters, len(document.text), cut.tokens, words)
