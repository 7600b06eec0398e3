"""The speeds at which models ran here are kept, by the model's name, and say which documents are ready for it."""

import pytest
from browser import save_saying_model

from localctx.engine.model_speeds import measured_speeds
from localctx.session import Session
from localctx.settings import load_settings
from localctx.store.store import Store

pytestmark = pytest.mark.slow


@pytest.fixture
def asked(home, tmp_path, document) -> str:
    """The name of a model that has read a document and answered a question about it."""
    model = save_saying_model(tmp_path / "model", ["one ", "two ", "three "])
    document.write_text(document.read_text() * 2)
    settings = load_settings(model=str(model), embedder="none", max_tokens=32, threads=1)
    with Session(settings) as session:
        session.ask("How long is river 7?", [str(document)])
    return str(model)


def test_reading_and_answering_are_measured(home, asked):
    store = Store(home)
    speeds = measured_speeds(store)
    store.close()
    assert speeds.keys() == {asked}
    assert speeds[asked].prefill > 0
    assert speeds[asked].decode > 0


def test_what_a_model_has_read_is_ready_for_it_and_for_no_other(store, asked):
    (row,) = store.documents.all()
    assert store.caches.prepared_documents(asked) == {row.id: row.chars}
    assert store.caches.prepared_documents("another") == {}
    for cache in store.caches.of_document(row.id):
        store.caches.drop_pages(cache.id)
    assert store.caches.prepared_documents(asked) == {}
