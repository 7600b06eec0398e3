"""Chooses the terms of the word index: words and, for languages other than English, character n-grams of words.

English is matched by stems. German compounds, inflections of most languages and scripts without spaces are matched by
n-grams: 4 letters of an alphabet, measured best for European languages (McNamee and Mayfield, "Character n-gram
tokenization for European language text retrieval", 2004), and 2 characters of Chinese, Japanese and Korean.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator

from sqlite_utils import Database

_TERM = re.compile(r"\w+")
_MARK = "\ue000"  # marks the end of a word part: no word ends in this character, and the stemmer leaves it unchanged
_MAX_PARTS = 256  # word parts of a query
_SAMPLES, _SAMPLE = 8, 4_000  # number and characters of the samples that decide a document's language
_OTHER_SHARE = 0.1  # share of a sample's words; in prose, at least twice this share are common words of its language

COMMON_WORDS = frozenset(
    _TERM.findall(
        "a an and are as at be by did do does for from had has have how in is it its of on or that the their this to "
        "was were what when where which who whom whose why will with"
    )
)
_ONLY_ENGLISH = COMMON_WORDS - set(_TERM.findall("a an as at be by do for had in it on was will"))
OTHER_WORDS = frozenset(
    _TERM.findall(
        "der das den dem des ein eine einen einem einer eines und oder ist sind wird werden wurde hat haben mit von zu "
        "zum zur im für nicht auf aus bei nach auch sich wie wer wo wann welche welcher welches welchem darf muss ich "
        "het een van en de op te dat voor met zijn niet aan wat hoe welke le la les un une du et ou est sont dans pour "
        "par sur avec que qui quel quelle quand où comment combien ne pas au aux ce cette il elle el los las una y del "
        "por con para se su sus como qué quién quiénes cuándo dónde cómo cuánto cuántos cuántas es más da dos das um "
        "uma em na não com é ao quem onde lo gli di che non è sono della nel chi dove si și în cu care este och att "
        "det som på är av för med og til af ikke hvad hvem w z nie jest że co kto gdzie je kdo ja ei että mitä kuka az "
        "és nem hogy egy ve bir bu için là của và có các được cho không"
    )
)
"""Common words of other languages in Latin letters and of a few more."""

SIGNS = r"\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
"""The ranges of Chinese characters, kana and Hangul, for a set in a pattern."""

_SCRIPTS = r"\u0590-\u1dff"  # Hebrew, Arabic, the scripts of India and South-East Asia and others
_RUN = re.compile(rf"(?P<signs>[{SIGNS}]+)|(?P<script>[{_SCRIPTS}]+)|(?P<alphabet>[^\W\d_{SIGNS}{_SCRIPTS}]+)")
_LENGTHS = {"signs": 2, "script": 3, "alphabet": 4}
_NOT_LATIN = re.compile("[\u0370-\u1dff\u3005-\ufaff]")
_INVISIBLE = re.compile("[\xad\u200b\u2060\ufeff]")  # soft hyphens, zero-width spaces
_SIGN = re.compile(r"([\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff])")  # kana and Chinese characters


def signs_apart(text: str) -> str:
    """Returns ``text`` with spaces around each kana or Chinese character, because FTS5 takes a run of such characters
    for one word.
    """
    return _SIGN.sub(r" \1 ", text)


def is_other_language(document: str) -> bool:
    """Returns True if ``document`` seems to be written in Latin letters in another language than English: many of its
    words are common words of such a language.
    """
    step = max(_SAMPLE, len(document) // _SAMPLES)
    sample = " ".join(document[at : at + _SAMPLE] for at in range(0, len(document), step))
    words = _TERM.findall(sample.lower())
    return sum(word in OTHER_WORDS for word in words) > _OTHER_SHARE * len(words)


def usual_form(text: str) -> str:
    """Returns ``text`` in the form in which it is indexed and searched: ligatures and full-width characters become the
    usual ones, and invisible characters are removed.
    """
    return unicodedata.normalize("NFKC", _INVISIBLE.sub("", text))


def indexed_words(text: str, latin: bool) -> str:
    """Returns the terms under which ``text`` is indexed. If ``latin``, words in Latin letters are also divided into
    parts (runs of four letters).
    """
    return terms_as_written(usual_form(text), latin)


def terms_as_written(text: str, latin: bool) -> str:
    """Returns the index terms of ``text`` without changing the text to its usual form first; older stores were indexed
    in this way. ``latin`` has the same meaning as in ``indexed_words``.
    """
    words = signs_apart(text)
    if not latin and not _NOT_LATIN.search(text):
        return words
    return " ".join([words, *_parts(text, latin)])


def words_of_chunks(
    db: Database, terms: Callable[[str, bool], str] = indexed_words
) -> Iterator[tuple[int, str, str, bool]]:
    """Yields (id, title and text, index terms, ``latin``) of each chunk in ``db``. ``terms`` is the function that makes
    index terms from a text and ``latin``.
    """
    for (document,) in list(db.execute("SELECT DISTINCT document FROM chunks")):
        ((text,),) = db.execute("SELECT text FROM documents WHERE id = ?", [document])
        latin = is_other_language(text)
        for chunk in list(db.query('SELECT id, title, start, "end" FROM chunks WHERE document = ?', [document])):
            titled = f"{chunk['title']}\n{text[chunk['start'] : chunk['end']]}"
            yield chunk["id"], titled, terms(titled, latin), latin


def words_of_query(query: str) -> list[str]:
    """Returns the words of a query in lower case, each once."""
    return list(dict.fromkeys(_TERM.findall(signs_apart(usual_form(query).lower()))))


def parts_of_word(word: str) -> list[str]:
    """Divide a query word into the parts by which the index may find it, each once. The parts are runs of neighbouring
    characters: two Chinese, Japanese or Korean characters, three letters of scripts such as Hebrew, Arabic and Thai, or
    four letters of other alphabets. A word with fewer letters has no parts.

    The words of texts are indexed by the same parts. Words in Latin letters are indexed by parts only if the text is
    not in English.
    """
    return list(dict.fromkeys(_parts(word, latin=True)))


def parts_of_query(query: str) -> list[str]:
    """Returns the parts of words by which a query is searched. In an English query, words in Latin letters are not
    divided into parts.
    """
    query = usual_form(query)
    words = _TERM.findall(query.lower())
    english = sum(word in _ONLY_ENGLISH for word in words) > sum(word in OTHER_WORDS for word in words)
    return list(dict.fromkeys(_parts(query, latin=not english)))[:_MAX_PARTS]


def _parts(text: str, latin: bool) -> Iterator[str]:
    for run in _RUN.finditer(unicodedata.normalize("NFKC", text.casefold())):
        kind = run.lastgroup or "alphabet"
        if latin or _NOT_LATIN.match(run.group()):
            letters, length = _letters(run.group()) if kind != "signs" else run.group(), _LENGTHS[kind]
            yield from (f"{letters[i : i + length]}{_MARK}" for i in range(len(letters) - length + 1))


def _letters(word: str) -> str:
    """Returns a word without accents and vowel signs, because FTS5 would split the word at these signs."""
    return "".join(c for c in unicodedata.normalize("NFD", word) if not unicodedata.category(c).startswith("M"))
