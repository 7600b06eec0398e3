"""Passages in other languages than English are found by their words, as the index of an older release is."""

import hashlib
import time
import tomllib
from contextlib import closing
from pathlib import Path

import pytest

from localctx.library.search.chunk import MAX_CHUNK, SIGN_LETTERS, VIEW, chunks, views
from localctx.library.search.indexing import index
from localctx.library.search.search import all_passages, search
from localctx.store.documents import DocumentRow
from localctx.store.schema import migrate, signs_apart
from localctx.store.search_words import (
    indexed_words,
    is_other_language,
    parts_of_query,
    terms_as_written,
    words_of_chunks,
)
from localctx.store.store import Store

pytestmark = pytest.mark.slow

LANGUAGES = tomllib.loads(Path(__file__).with_name("passages_in_languages.toml").read_text(encoding="utf-8"))
ENGLISH = (
    "The tenant pays the rent on the third day of each month. A deposit of three rents is due before the keys are "
    "handed over. Pets are allowed with the consent of the landlord, who may not refuse it without a reason."
)


def add(store: Store, name: str, text: str) -> DocumentRow:
    now = time.time()
    row = DocumentRow(hashlib.sha256(text.encode()).hexdigest(), name, f"/t/{name}", "utf-8", 0, len(text), now, now)
    store.documents.add(row, text, [])
    return row


def add_passages(store: Store, language: str) -> list[int]:
    """Each passage becomes a chunk; returns their ids."""
    passages, ranges, at = LANGUAGES[language]["passages"], [], 0
    for passage in passages:
        ranges.append((at, at + len(passage), ""))
        at += len(passage) + 2
    text = "\n\n".join(passages)
    row = add(store, f"{language}.txt", text)
    store.index.add(row.id, text, ranges, is_other_language(text))
    return [chunk.id for chunk in store.index.of_document(row.id)]


def ranks(store: Store, language: str, ids: list[int]) -> list[int]:
    """The rank of the right passage for each question; 99 where it is not found."""
    found = [(store.index.by_words(question, 20), ids[n]) for question, n in LANGUAGES[language]["questions"]]
    return [chunks.index(right) + 1 if right in chunks else 99 for chunks, right in found]


@pytest.fixture
def library(store) -> dict[str, list[int]]:
    index(store, add(store, "lease.txt", ENGLISH), None)
    return {language: add_passages(store, language) for language in LANGUAGES}


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_right_passage_is_first_nearly_always_and_among_three_always(store, library, language):
    found = ranks(store, language, library[language])
    assert max(found) <= 3, found
    assert found.count(1) >= len(found) - 1, found


def test_a_word_is_found_inside_of_a_compound_and_the_other_way_round(store):
    index(store, add(store, "a.txt", "Die Kündigungsfrist ist drei Monate und gilt für alle, die nicht kaufen."), None)
    for query in ("Frist", "Fristen", "Kündigung", "Vermieterkündigungen", "KUNDIGUNGSFRISTEN"):
        assert search(store, query, None).passages, query
    assert not search(store, "Heizung", None).passages


def test_english_is_indexed_as_before_and_asked_by_whole_words(store):
    assert not is_other_language(ENGLISH)
    assert indexed_words(ENGLISH, is_other_language(ENGLISH)) == ENGLISH
    assert parts_of_query("When is the rent due?") == []
    assert parts_of_query("Wann ist die Miete fällig?")


@pytest.mark.parametrize(
    "text", ["x = 1\ndef area(width, height):\n    return width * height\n" * 30, "1,2,3\n4,5,6\n" * 50, ""]
)
def test_code_and_numbers_are_no_language(text):
    assert not is_other_language(text)


def test_removing_a_document_removes_the_parts_of_its_words(store, library):
    for document in [row.id for row in store.documents.all()]:
        store.remove_document(document)
    store.db.execute("CREATE VIRTUAL TABLE temp.vocabulary USING fts5vocab(main, chunk_words, row)")
    assert store.db.execute("SELECT * FROM temp.vocabulary").fetchall() == []


def test_passages_that_have_a_words_parts_count_as_having_it(store, library):
    row = next(row for row in store.documents.all() if row.name == "de.txt")
    passages = all_passages(store, [row.id], "Mietkaution für Haustier")
    best = sorted(passages, key=lambda passage: -passage.score)[:2]
    assert {LANGUAGES["de"]["passages"].index(passage.text) for passage in best} == {1, 2}


def test_an_index_of_an_older_release_is_brought_up_to_date(home):
    """Its words were as they stand; none of its texts is read again."""
    steps = list(migrate._migrations)
    try:
        migrate._migrations = [step for step in steps if step.name not in ("parts_of_words", "usual_letters")]
        with closing(Store(home)) as store:
            ids = {language: add_passages(store, language) for language in ("de", "th", "ru")}
            store.db.execute("INSERT INTO chunk_words (chunk_words) VALUES ('delete-all')")
            for chunks in ids.values():
                for chunk in store.index.get(chunks):
                    words = signs_apart(f"\n{store.documents.text(chunk.document)[chunk.start : chunk.end]}")
                    store.db.execute("INSERT INTO chunk_words (rowid, words) VALUES (?, ?)", [chunk.id, words])
            assert 99 in ranks(store, "de", ids["de"])
    finally:
        migrate._migrations = steps
    with closing(Store(home)) as store:
        for language, chunks in ids.items():
            assert max(ranks(store, language, chunks)) <= 3
        store.db.execute("INSERT INTO chunk_words (chunk_words) VALUES ('integrity-check')")
        for row in store.documents.all():
            store.remove_document(row.id)
        store.db.execute("CREATE VIRTUAL TABLE temp.vocabulary USING fts5vocab(main, chunk_words, row)")
        assert store.db.execute("SELECT * FROM temp.vocabulary").fetchall() == []


WRITTEN = (
    "The scienti\ufb01c of\ufb01ce has \uff21\uff22\uff11\uff12\uff13\uff14 and \uff76\uff9e\uff7d, "
    "so\xadft zero\u200bwidth words and H\u2082O."
)


@pytest.mark.parametrize(
    "query",
    [
        "scientific",
        "scienti\ufb01c",
        "AB1234",
        "\uff21\uff22\uff11\uff12\uff13\uff14",
        "ガス",
        "soft",
        "zerowidth",
        "H2O",
    ],
)
def test_letters_are_searched_in_their_usual_form_and_quoted_as_printed(store, query):
    index(store, add(store, "a.txt", WRITTEN), None)
    assert [p.text for p in search(store, query, None).passages] == [WRITTEN]


def test_an_index_without_usual_letters_is_brought_up_to_date(home):
    steps = list(migrate._migrations)
    try:
        migrate._migrations = [step for step in steps if step.name != "usual_letters"]
        with closing(Store(home)) as store:
            index(store, add(store, "a.txt", WRITTEN), None)
            index(store, add(store, "b.txt", "Der Bürgermeister und die Kündigung: nichts daran ist anders."), None)
            store.db.execute("INSERT INTO chunk_words (chunk_words) VALUES ('delete-all')")
            for chunk, _, words, _ in list(words_of_chunks(store.db, terms_as_written)):
                store.db.execute("INSERT INTO chunk_words (rowid, words) VALUES (?, ?)", [chunk, words])
            assert not search(store, "scientific", None).passages
    finally:
        migrate._migrations = steps
    with closing(Store(home)) as store:
        assert search(store, "scientific", None).passages
        assert search(store, "Kündigung", None).passages
        for row in store.documents.all():
            store.remove_document(row.id)
        store.db.execute("CREATE VIRTUAL TABLE temp.vocabulary USING fts5vocab(main, chunk_words, row)")
        assert store.db.execute("SELECT * FROM temp.vocabulary").fetchall() == []


def test_chinese_is_cut_at_its_sentences_and_clauses_into_as_much_as_is_said_in_english():
    sentence = "员工离职以后，公司每月支付补偿；" * 3 + "“双方同意。”"  # noqa: RUF001
    text = sentence * 40
    found = [text[start:end] for start, end in chunks(text)]
    assert "".join(found) == text
    assert all(len(part) <= MAX_CHUNK // SIGN_LETTERS and part.endswith("。”") for part in found)
    clauses = "员工离职以后，公司每月支付补偿，" * 60  # noqa: RUF001
    parts = [clauses[start:end] for start, end in views(clauses, next(chunks(clauses)))]
    assert all(len(part) <= VIEW // SIGN_LETTERS and part.endswith("，") for part in parts)  # noqa: RUF001
