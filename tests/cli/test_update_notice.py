"""After an update the first command says once, in a line, which documents stay prepared, which do not, and why."""

import json
from contextlib import closing

import pytest
from stored_caches import shelve
from stored_documents import add

from localctx.store.store import Store
from localctx.update_notice import FILE, current_formats, take_update_notice

pytestmark = pytest.mark.slow


@pytest.fixture
def kept(home):
    """Two prepared documents, in int8, and one that was not read."""
    with closing(Store(home)) as store:
        for n, name in enumerate(("one", "two")):
            shelve(store, name, n, 0)
        add(store, "unread")
    assert take_update_notice(home) == "", "what was used by nobody knows which version says nothing"
    return home


def was(home, **changes) -> None:
    """Let the data folder have been used last by something else."""
    (home / FILE).write_text(json.dumps({**current_formats(), **changes}))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"localctx": "0.0.1"}, "2 documents stay prepared. (This line is shown once.)"),
        ({"layout": 1}, "2 are read again when asked, because the pages' format changed. (This line is shown once.)"),
        ({"codecs": {"int8": 7}}, "2 are read again when asked, because the format of int8 changed. ("),
        ({"arithmetic": 0}, "2 are read again when asked, because models are computed in another way. ("),
        (
            {"libraries": {"transformers": "4.0"}},
            "2 documents stay prepared; of these, documents of models that transformers computes are read again, "
            "because transformers is now",
        ),
        ({"libraries": {"llama.cpp": "0.0.1"}}, "2 documents stay prepared. ("),
    ],
)
def test_a_line_says_once_what_stays_and_what_does_not(kept, run, changes, said):
    was(kept, **{"localctx": "0.0.1", **changes})
    first = run("library", "list", "--json")
    assert json.loads(first.stdout)
    assert first.stderr.startswith("Updated from 0.0.1 to ")
    assert said in first.stderr
    assert first.stderr.count("\n") == 1
    assert run("library", "list", "--json").stderr == ""


def test_documents_whose_codec_did_not_change_stay(kept, run):
    with closing(Store(kept)) as store:
        store.db.execute("UPDATE caches SET codec = 'int4' WHERE id = (SELECT min(id) FROM caches)")
    was(kept, codecs={**current_formats()["codecs"], "int4": 9})
    said = run("library", "list").stderr
    assert said.startswith(
        "Libraries changed: 1 document stays prepared; 1 is read again when asked, because the format"
    )


def test_snapshots_of_llama_cpp_depend_on_its_version_alone(kept, run):
    with closing(Store(kept)) as store:
        store.db.execute("UPDATE pages SET tokens = x''")
    was(kept, layout=1, libraries={"llama.cpp": "0.0.1"})
    assert "2 are read again when asked, because llama.cpp is now" in run("library", "list").stderr


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"localctx": "0"}', "[" * 100_000, "\x00"])
def test_a_damaged_note_says_nothing_and_is_written_anew(kept, text):
    (kept / FILE).write_text(text)
    assert take_update_notice(kept) == ""
    assert json.loads((kept / FILE).read_text()) == current_formats()


def test_nothing_is_said_without_data_or_with_quiet_and_a_damaged_database_ends_no_command(run, kept):
    was(kept, localctx="0.0.1")
    assert run("library", "verify", "-q").stderr == ""
    (kept / "library.db").write_bytes(b"no database" * 1000)
    assert "is damaged" in run("library", "list").stderr
    (kept / "library.db").unlink()
    (kept / FILE).unlink()
    assert take_update_notice(kept) == ""
    assert not (kept / FILE).exists()
