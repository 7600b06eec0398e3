"""Languages: told where they are certain, and only those that the model was not made for."""

from contextlib import closing
from dataclasses import replace

import pytest
from ask_in_process import session

from localctx.engine.events import Note
from localctx.library.wording import language
from localctx.library.wording.identify_language import language_of
from localctx.library.wording.language import language_warnings
from localctx.models.catalog import load_catalog
from localctx.settings import Settings
from localctx.store.documents import DocumentRow
from localctx.store.store import Store

GERMAN = (
    "Der Mietvertrag beginnt am ersten Mai und läuft auf unbestimmte Zeit. Die Miete beträgt 600 Euro im Monat "
    "und ist im Voraus zu zahlen. Der Vermieter haftet nicht für Schäden, die der Mieter selbst verursacht hat.\n"
)
CHINESE = "租赁合同自五月一日起生效。合同期限不定。每月租金为六百欧元。租金须提前支付。房东不承担任何责任。\n" * 3
ENGLISH = "The lease begins on the first of May and runs for an indefinite time. The rent is paid in advance.\n"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (GERMAN, "de"),
        (CHINESE, "zh"),
        (ENGLISH, "en"),
        ("El contrato empieza el primero de mayo y la renta se paga por adelantado cada mes del año.", "es"),
        ("x = 1\ny = f(x)\n" * 20, None),
        ("1,2,3\n4,5,6\n" * 20, None),
        ("Hallo", None),
        ("", None),
    ],
)
def test_languages(text, code):
    assert language_of(text) == code


def held(name: str, text: str):
    row = DocumentRow(id=name, name=name, path="-", encoding="utf-8", bytes=1, chars=1, added=0.0, used=0.0)
    return row, text, []


def test_a_warning_names_the_document_the_language_and_the_model(tmp_path):
    documents = [held("vertrag.txt", GERMAN), held("noch.txt", GERMAN), held("lease.txt", ENGLISH)]
    settings = Settings(tmp_path, model="smollm2-135m-instruct")
    (line,) = language_warnings(settings, documents)
    assert line.startswith("vertrag.txt is in German, which smollm2-135m-instruct was neither made for nor measured")


def test_a_language_that_a_model_was_made_for_needs_no_warning(tmp_path, monkeypatch):
    catalog = load_catalog()
    entry = replace(catalog["smollm2-135m-instruct"], languages=frozenset(("en", "de")))
    monkeypatch.setattr(language, "load_catalog", lambda: {**catalog, entry.name: entry})
    documents = [held("vertrag.txt", GERMAN), held("合同.txt", CHINESE)]
    (line,) = language_warnings(Settings(tmp_path, model=entry.name), documents)
    assert line.startswith("合同.txt is in Chinese")


def test_where_documents_were_searched_an_english_embedder_is_told_once_with_the_remedy(tmp_path):
    documents = [held("vertrag.txt", GERMAN), held("noch.txt", GERMAN), held("lease.txt", ENGLISH)]
    settings = Settings(tmp_path, model="qwen3-0.6b")
    (line,) = language_warnings(settings, documents, searched=True)
    assert line.startswith("vertrag.txt is in German, which all-minilm-l6-v2 does not know")
    assert line.endswith("--embedder multilingual-e5-small")
    settings = replace(settings, embedder="multilingual-e5-small")
    assert list(language_warnings(settings, documents, searched=True)) == []


def test_nothing_is_claimed_of_models_whose_languages_are_not_known(tmp_path):
    assert list(language_warnings(Settings(tmp_path, model="qwen3-0.6b"), [held("vertrag.txt", GERMAN)])) == []


@pytest.mark.slow
def test_chinese_words_are_found_in_the_index(home, tiny_model, tmp_path):
    """A run of signs would be one word to the index, and no question would have that."""
    file = tmp_path / "contract.txt"
    file.write_text("天气很好。今天没有风。\n\n" * 30 + "每月租金为六百欧元。\n\n" + "我们去了湖边。\n\n" * 30)
    with session(home, tiny_model, mode="retrieve", max_tokens=2) as s:
        *events, done = s.stream("租金是多少欧元?", [str(file)])
    assert any("租金" in passage["text"] for passage in done.report.passages)
    assert not [e for e in events if isinstance(e, Note) and "was not made for" in e.text]
    with closing(Store(home)) as store:
        assert store.index.by_words("租金", 3)
