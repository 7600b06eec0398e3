"""The settings page: one file for window and command, kept whole; what is typed is judged as flags are; deletion."""

import threading
import time
import tomllib
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localctx.engine.events import Progress
from localctx.errors import Cancelled, UsageError
from localctx.settings import Settings, load_settings, save_settings

pytestmark = pytest.mark.slow

TAB = SimpleNamespace(session_hash="tab")
WRITTEN = """# what I like
seed = 7   # my number
kv = "int4"

# slow, but sure
max_tokens = 64
"""


def values(settings_page, **typed) -> list:
    now = settings_page._window.settings
    return [typed.get(name, getattr(now, name)) for name in settings_page.fields]


def test_comments_order_and_other_lines_survive(home):
    home.mkdir()
    (home / "settings.toml").write_text(WRITTEN)
    save_settings(home, {"kv": "k8v4", "temperature": 0.5, "max_tokens": None})
    text = (home / "settings.toml").read_text()
    assert text.startswith('# what I like\nseed = 7   # my number\nkv = "k8v4"\n')
    assert "# slow, but sure" in text
    assert tomllib.loads(text) == {"seed": 7, "kv": "k8v4", "temperature": 0.5}
    assert load_settings().kv == "k8v4"


def test_the_file_is_its_owners_and_a_link_to_it_stays(home, tmp_path):
    save_settings(home, {"top_k": 3})
    assert (home / "settings.toml").stat().st_mode & 0o777 == 0o600
    (home / "settings.toml").rename(tmp_path / "elsewhere.toml")
    (home / "settings.toml").symlink_to(tmp_path / "elsewhere.toml")
    save_settings(home, {"top_k": 4})
    assert (home / "settings.toml").is_symlink()
    assert tomllib.loads((tmp_path / "elsewhere.toml").read_text()) == {"top_k": 4}
    assert [path.name for path in home.iterdir()] == ["settings.toml"], "nothing half-written is left"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"temperature": 11}, "temperature"),
        ({"kv": "int9"}, "int9"),
        ({"memory": "plenty"}, "plenty"),
        ({"appearance": "pink"}, "pink"),
        ({"max_tokens": "many"}, "max_tokens"),
        ({"max_tokens": float("inf")}, "max_tokens"),
        ({"colour": "red"}, "colour"),
        ({"home": "/"}, "home"),
    ],
)
def test_what_the_command_would_refuse_is_not_written(home, changes, said):
    home.mkdir()
    (home / "settings.toml").write_text(WRITTEN)
    with pytest.raises(UsageError, match=said):
        save_settings(home, changes)
    assert (home / "settings.toml").read_text() == WRITTEN


def test_a_file_that_cannot_be_read_is_left_alone(home):
    home.mkdir()
    (home / "settings.toml").write_text("kv = [")
    with pytest.raises(UsageError, match="cannot be read"):
        save_settings(home, {"kv": "int8"})
    assert (home / "settings.toml").read_text() == "kv = ["


said = st.fixed_dictionaries(
    {},
    optional={
        "temperature": st.floats(0, 10) | st.none(),
        "seed": st.integers(-(2**63), 2**63 - 1) | st.none(),
        "model": st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
        "threads": st.integers(0, 1024),
    },
)


@settings(max_examples=60)
@given(st.lists(said, min_size=1, max_size=3))
def test_what_is_kept_is_what_is_read(tmp_path_factory, all_changes):
    home, wanted = tmp_path_factory.mktemp("home"), {}
    for changes in all_changes:
        save_settings(home, changes)
        wanted |= changes
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("LOCALCTX_MODEL", raising=False)
        found, plain = load_settings(home=home), Settings(home)
    assert {k: getattr(found, k) for k in wanted} == {
        k: getattr(plain, k) if v is None else v for k, v in wanted.items()
    }


def test_the_page_keeps_what_was_changed_and_all_workers_use_it(settings_page, window, home):
    updates = settings_page._save(*values(settings_page, temperature=0.7, seed="12", memory=" 1GiB "))
    assert "3 settings saved" in updates[settings_page.message]
    assert tomllib.loads((home / "settings.toml").read_text()) == {"temperature": 0.7, "seed": 12, "memory": "1GiB"}
    for worker in (window.answer_worker, window.library_worker, window.upkeep_worker):
        assert (worker._settings.temperature, worker._settings.seed) == (0.7, 12)
    assert "Nothing was changed" in settings_page._save(*values(settings_page))[settings_page.message]
    settings_page._save(*values(settings_page, seed=""))
    assert window.settings.seed is None
    assert "seed" not in (home / "settings.toml").read_text()


@pytest.mark.parametrize("typed", [{"temperature": 99}, {"seed": "lucky"}, {"ram": "<b>1</b>"}])
def test_nonsense_is_told_in_words_and_changes_nothing(settings_page, window, home, typed):
    before = window.settings
    updates = settings_page._save(*values(settings_page, **typed))
    assert list(updates) == [settings_page.message]
    assert 'role="alert"' in updates[settings_page.message]
    assert "<b>" not in updates[settings_page.message]
    assert window.settings == before
    assert not (home / "settings.toml").exists()


def test_the_environment_wins_and_the_page_says_so(settings_page, window, monkeypatch, home):
    monkeypatch.setenv("LOCALCTX_TEMPERATURE", "0.5")
    update, before = settings_page._show()[settings_page.fields["temperature"]], window.settings.temperature
    assert update["interactive"] is False
    assert "LOCALCTX_TEMPERATURE" in update["info"]
    settings_page._save(*values(settings_page, temperature=0.9, top_k=5))
    assert tomllib.loads((home / "settings.toml").read_text()) == {"top_k": 5}
    window.save_settings({"temperature": 0.9})
    assert window.settings.temperature == before, "kept for later, when the environment is silent"
    assert tomllib.loads((home / "settings.toml").read_text())["temperature"] == 0.9


def test_what_is_being_typed_stays_when_the_page_is_looked_at_again(settings_page, window):
    shown = settings_page._show()[settings_page.shown]
    assert settings_page._show(shown).keys() == {settings_page.data, settings_page.shown}
    window.save_settings({"top_k": 7})  # in another tab
    assert settings_page._show(shown).keys() == {settings_page.data, settings_page.shown, settings_page.fields["top_k"]}


def test_what_was_changed_on_the_memory_page_of_another_tab_stays(settings_page, window):
    typed = values(settings_page, temperature=0.7)
    window.save_settings({"kv": "k8v4", "keep": "h2o:256"})
    settings_page._save(*typed)
    assert (window.settings.kv, window.settings.keep, window.settings.temperature) == ("k8v4", "h2o:256", 0.7)


def prepare(window, document) -> None:
    def job(session):
        yield from session.prepare(str(document))
        chat = session.workflows.chats.start([str(document)])
        yield from session.run(session.workflows.chats.ask(chat.id, "How long is river 7?"))

    list(window.answer_worker.submit(job))


def test_everything_is_deleted_only_when_it_is_meant(settings_page, window, home, document):
    prepare(window, document)
    *_, last = settings_page._delete("delete", False, TAB)
    assert "nothing was deleted" in last[settings_page.deleted]
    lines = [line for updates in settings_page._verify(TAB) for line in updates.values()]
    assert "No problems found: 1 documents" in lines[-1]
    assert b"River 7 is" in (home / "library.db").read_bytes()
    *_, said, last = settings_page._delete("Delete everything ", False, TAB)
    assert "freed" in said[settings_page.deleted]
    assert last[settings_page.reload] == "reload"
    with window.store() as store:
        assert (store.documents.all(), store.chats.all(), store.pages.nbytes()) == ([], [], 0)
    assert b"River 7 is" not in (home / "library.db").read_bytes()
    assert not [path for path in (home / "pages").iterdir() if path.suffix == ".kv"]
    assert window.answer_worker.last_report() is None
    prepare(window, document)  # the workers go on


def test_a_drained_worker_stops_what_it_does_and_serves_nobody(window):
    going = threading.Event()

    def endless(session):
        while True:
            session.runtime.on_progress(Progress("counting", 0, 1))
            going.set()
            yield time.sleep(0.01)

    def short(session):
        yield "served"

    stream = window.answer_worker.submit(endless)
    assert going.wait(30)
    with window.answer_worker.drained():
        with pytest.raises(Cancelled):
            list(stream)
        later = window.answer_worker.submit(short)
        assert window.answer_worker.queue_position(later) == 1
    assert "served" in list(later)
