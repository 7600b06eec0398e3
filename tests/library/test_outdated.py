"""Stored answers and summaries that rest on text which a newer version of their document changed."""

import json
from contextlib import closing

import pytest
from newer_versions import answer_in_chat, change, cite

from localctx.library.add import add_document
from localctx.library.compare.outdated import outdated_texts
from localctx.store.store import Store

RENT, PETS, NOTICE = "The rent is EUR 1,200.", "Pets are allowed.", "Notice is given three months ahead."
CHANGES = {"1,200": "1,300", "three": "two"}


@pytest.fixture
def lease(tmp_path):
    file = tmp_path / "lease.txt"
    file.write_text(f"{RENT}\n\n{PETS}\n\n{NOTICE}\n")
    return file


def test_only_what_rests_on_changed_clauses_is_outdated(store, lease):
    first = add_document(store, str(lease)).id
    rent, pets = (answer_in_chat(store, first, f"{q}?", quote) for q, quote in (("Rent", RENT), ("Pets", PETS)))
    told = {"question": "Notice?", "answer": "three months", "citations": [cite(store, first, NOTICE)]}
    store.results.put(first, "a" * 8, {"summary": None, "answers": [told], "citations": []})
    store.results.put(first, "b" * 8, {"summary": "Pets.", "answers": [], "citations": [cite(store, first, PETS)]})
    store.results.put(first, "correction/rent", {"shown": "1,200"})
    assert list(outdated_texts(store)) == [], "there is one version"
    change(lease, CHANGES)
    newest = add_document(store, str(lease))
    assert newest.status == "new version"
    chat, cell = outdated_texts(store)
    assert (chat.kind, chat.question, chat.message, chat.lines) == ("chat", "Rent?", rent.id, ["1,200 -> 1,300"])
    assert (cell.kind, cell.question, cell.text, cell.lines) == ("answer", "Notice?", "three months", ["three -> two"])
    assert {chat.document, cell.document} == {first}
    assert {chat.newest, cell.newest} == {newest.id}
    assert json.loads(json.dumps(chat.to_json()))["lines"] == chat.lines
    assert pets.id not in {text.message for text in outdated_texts(store)}
    assert list(outdated_texts(store, [newest.id])) == [], "the newest version is not outdated"


def test_versions_are_compared_with_the_newest(store, lease):
    """A text that was changed and changed back holds again; a deleted clause is named."""
    first = add_document(store, str(lease)).id
    answer_in_chat(store, first, "Rent?", RENT)
    answer_in_chat(store, first, "Pets?", PETS)
    change(lease, CHANGES)
    add_document(store, str(lease))
    assert len(list(outdated_texts(store))) == 1
    change(lease, {"1,300": "1,200", PETS: ""})
    add_document(store, str(lease))
    (pets,) = outdated_texts(store)
    assert (pets.question, pets.lines) == ("Pets?", [f"deleted: {PETS}"])


def test_the_command_lists_them_and_library_add_counts_them(run, home, lease):
    assert run("library", "add", lease).returncode == 0
    with closing(Store(home)) as store:
        answer_in_chat(store, store.documents.find("lease.txt").id, "What is the rent?", RENT)
    assert "nothing is outdated" in run("library", "outdated").stderr
    change(lease, CHANGES)
    assert "1 stored answer or summary no longer holds" in run("library", "add", lease).stderr
    told = run("library", "outdated", "lease.txt")
    assert told.returncode == 0
    assert "What is the rent? Said.\n  no longer holds: 1,200 -> 1,300" in told.stdout
    (found,) = json.loads(run("library", "outdated", "--json").stdout)["outdated"]
    assert (found["kind"], found["lines"]) == ("chat", ["1,200 -> 1,300"])
    assert run("library", "outdated", "nothing.txt").returncode == 1
