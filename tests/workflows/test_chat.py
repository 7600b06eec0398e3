"""Chats that are answered: what is read anew, what branches share, what is left when something stops them."""

import json
import signal
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from ask_in_process import said, session, start
from required_extras import needs_llama
from tiny_ggufs import write_tiny_gguf

from localctx.engine.events import Done, Note, Token
from localctx.engine.prompt_wording import ASK
from localctx.errors import ChatError, ChatFull, UsageError
from localctx.shape import PAGE
from localctx.store.store import Store
from localctx.store.transcript import to_markdown
from localctx.workflows.chat.chat_history import history

pytestmark = pytest.mark.process

SMALL = {"max_tokens": 12}


def last(events) -> dict:
    """The report at the end of ``events``, with the notes that came before."""
    events = list(events)
    assert isinstance(events[-1], Done)
    assert events[-1].failed is None
    return events[-1].report.to_json() | {"notes": [e.text for e in events if isinstance(e, Note)]}


def talk(s, document: Path, *questions: str) -> tuple[str, list[dict]]:
    chat = s.workflows.chats.start([str(document)] if document else []).id
    return chat, [last(s.run(s.workflows.chats.ask(chat, q))) for q in questions]


def texts(s, chat: str) -> list[str]:
    return [m.text for m in s.store.chats.messages(chat)]


def pages(home: Path) -> int:
    with closing(Store(home)) as store:
        return store.pages.live()


@pytest.fixture(scope="module")
def readable_model(sharp_model, tmp_path_factory) -> Path:
    """A tiny model that says letters alone, so that its answers are the same tokens when they are read again."""
    import torch
    from safetensors.torch import load_file, save_file

    folder = tmp_path_factory.mktemp("models") / "readable"
    folder.mkdir()
    for file in sharp_model.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    weights = load_file(folder / "model.safetensors")
    tokenizer = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    letters = [i for c, i in tokenizer.items() if c in "abcdefghijklmnopqrstuvwxyz"]
    head = weights["lm_head.weight"]
    silent = torch.tensor([i for i in range(len(head)) if i not in letters])
    weights["lm_head.weight"] = head.index_fill(0, silent, 0.0)  # logit 0: some letter is likelier
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder


@pytest.fixture(scope="module")
def models(tiny_model, tmp_path_factory) -> dict[str, Path]:
    """A tiny model for each engine."""
    return {"torch": tiny_model, "llama.cpp": write_tiny_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf", "llama")}


# What is read


def test_a_turn_reads_only_its_question_also_after_a_restart(home, document, readable_model):
    with session(home, readable_model, max_tokens=90) as s:
        chat, (first, second) = talk(s, document, "How long is river 7?", "And 8?")
    with session(home, readable_model, max_tokens=90) as s:
        third = last(s.run(s.workflows.chats.ask(chat, "And 9?")))
    assert first["tokens"]["reused"] == 0
    for report, question in ((second, "And 8?"), (third, "And 9?")):
        turn = len(f"{question}</s>\n<s>assistant\n") - 5  # a control token is one
        assert report["tokens"]["prefilled"] == turn
        assert report["tokens"]["reused"] >= 0.98 * report["tokens"]["prompt"] - 2
    assert third["tokens"]["prompt"] > first["tokens"]["prompt"] + 180


def test_an_answer_that_reads_otherwise_again_costs_only_its_own_reading(home, document, sharp_model):
    """Bytes that are no characters are other tokens as text."""
    with session(home, sharp_model, **SMALL) as s:
        chat, _ = talk(s, document, "How long is river 7?")
    with session(home, sharp_model, **SMALL) as s:
        second = last(s.run(s.workflows.chats.ask(chat, "And 8?")))
    assert second["tokens"]["prefilled"] <= len("And 8?") + 20


@pytest.mark.parametrize("model", ["readable_model", "sharp_model"])
def test_a_resumed_chat_answers_as_a_fresh_one_over_the_same_history(home, tmp_path, document, model, request):
    folder, questions = request.getfixturevalue(model), ["How long is river 7?", "And 8?", "Which is the longest?"]
    with session(home, folder, **SMALL) as s:
        chat, _ = talk(s, document, *questions[:2])
    with session(home, folder, **SMALL) as s:
        resumed = last(s.run(s.workflows.chats.ask(chat, questions[2])))
        messages = s.store.chats.messages(chat)
    with session(tmp_path / "fresh", folder, **SMALL) as s:
        fresh = s.workflows.chats.start([str(document)]).id
        parent = None
        for m in messages[:4]:
            parent = s.store.chats.append(fresh, parent, m.role, m.text).id
        anew = last(s.run(s.workflows.chats.ask(fresh, questions[2])))
    assert anew["tokens"]["reused"] == 0
    assert resumed["tokens"]["reused"] > 700
    assert resumed["tokens"]["prompt"] == anew["tokens"]["prompt"]
    assert resumed["answer"] == anew["answer"]


def test_a_chat_begins_where_a_prepared_document_ends(home, document, tiny_model):
    with session(home, tiny_model, **SMALL) as s:
        last(s.prepare(str(document)))
        _, (first,) = talk(s, document, "How long?")
    assert first["tokens"]["prefilled"] < 50 + len(ASK)


def test_a_chat_of_the_same_question_is_told_apart_by_its_document(home, document, tiny_model):
    with session(home, tiny_model, **SMALL) as s:
        chats = [talk(s, about, "How long?")[0] for about in (document, document, None, None)]
        titles = [s.store.chats.get(chat).title for chat in chats]
    assert titles == ["How long?", "rivers.txt: How long?", "How long?", "How long?"]


def test_a_chat_without_documents(home, tiny_model):
    with session(home, tiny_model, **SMALL) as s:
        chat, reports = talk(s, None, "Who are you?" * 20, "Why?")
        assert s.store.chats.get(chat).title == ("Who are you?" * 20)[:60]
    assert reports[1]["tokens"]["reused"] > 240
    assert reports[1]["mode"] == "full"


def test_documents_that_do_not_fit_are_answered_from_passages(home, tmp_path, tiny_model):
    long = tmp_path / "long.md"
    long.write_text("".join(f"# River {i}\n\nRiver {i} is {i * 37} km long.\n\n" for i in range(150)))
    with session(home, tiny_model, **SMALL) as s:
        chat, reports = talk(s, long, "How long is river 7?", "How long is river 70?")
        assert [r["mode"] for r in reports] == ["retrieve", "retrieve"]
        assert len(texts(s, chat)) == 4
        kept = s.store.pages.live()
        s.store.remove_chat(chat)
        assert 0 < s.store.pages.live() < kept, "passages are kept for other questions"


def test_a_question_to_the_same_passages_reuses_what_was_said_about_them(home, document, tiny_model):
    with session(home, tiny_model, mode="retrieve", max_tokens=12) as s:
        _, reports = talk(s, document, *["How long is river 7?"] * 3)
    assert len({r["passages"][0]["start"] for r in reports}) == 1
    for earlier, later in pairwise(reports):
        assert later["tokens"]["reused"] > earlier["tokens"]["prompt"]


# Branches


def test_another_answer_and_another_question_share_what_is_before_them(home, document, readable_model):
    with session(home, readable_model, max_tokens=70, seed=1) as s:
        chat, _ = talk(s, document, "How long is river 7?", "And 8?")
        before = s.store.pages.live()
        again = last(s.run(s.workflows.chats.regenerate(chat, temperature=5)))
        edited = last(s.run(s.workflows.chats.edit(chat, "And 9?")))
        shown = texts(s, chat)
        assert shown[2] == "And 9?"
        leaves = s.store.chats.branches(chat)
        assert len(leaves) == 3
        for report in (again, edited):
            assert report["tokens"]["prefilled"] <= PAGE + 20
        assert s.store.pages.live() < 2 * before, "each branch has pages of its own for all of it"
        oldest = s.store.chats.select(leaves[-1])
        on = last(s.run(s.workflows.chats.ask(chat, "Then?")))
        assert texts(s, chat)[-3] == oldest.text
        assert on["tokens"]["reused"] >= 0.98 * on["tokens"]["prompt"] - 10, "an older branch goes on where it was"


def test_an_earlier_question_is_edited_with_what_was_said_before_it(home, document, tiny_model):
    with session(home, tiny_model, **SMALL) as s:
        chat, _ = talk(s, document, "How long is river 7?", "And 8?")
        first = s.store.chats.messages(chat)[0]
        last(s.run(s.workflows.chats.edit(chat, "How long is river 9?", first.id)))
        assert texts(s, chat)[::2] == ["How long is river 9?"]
        assert len(s.store.chats.branches(chat)) == 2


def test_settings_change_and_only_what_they_concern_is_loaded_again(home, document, tiny_model):
    with session(home, tiny_model, **SMALL) as s:
        chat, _ = talk(s, document, "How long?")
        model = s.model
        s.change(replace(s.settings, max_tokens=3))
        assert last(s.run(s.workflows.chats.ask(chat, "And 8?")))["tokens"]["generated"] <= 3
        assert s.model is model
        s.change(replace(s.settings, threads=2))
        assert s.model is not model


def test_what_would_be_the_same_is_not_computed_and_a_seed_counts_on(home, document, tiny_model):
    with session(home, tiny_model, seed=3, **SMALL) as s:
        chat, _ = talk(s, document, "How long?")
        with pytest.raises(UsageError, match="would be the same"):
            last(s.run(s.workflows.chats.regenerate(chat)))
        for _ in range(2):
            last(s.run(s.workflows.chats.regenerate(chat, temperature=2)))
        answers = {m.text for m in s.store.chats.tree(chat) if m.role == "assistant"}
        assert len(answers) == 3
        empty = s.workflows.chats.start([]).id
        with pytest.raises(ChatError, match="nothing was asked"):
            last(s.run(s.workflows.chats.regenerate(empty)))


@pytest.mark.parametrize("engine", ["torch", pytest.param("llama.cpp", marks=needs_llama)])
def test_a_removed_chat_leaves_its_documents_and_what_was_read_of_them(home, document, models, engine):
    with session(home, models[engine], engine=engine, **SMALL) as s:
        last(s.prepare(str(document)))
        prepared = last(s.stream("How long?", [str(document)]))["tokens"]["reused"]
        alone = s.store.pages.live()
        s.store.remove_document(s.store.documents.all()[0].id)
        assert pages(home) == 0
        chat, _ = talk(s, document, "How long?", "And 8?")
        last(s.run(s.workflows.chats.regenerate(chat, temperature=2)))
        assert s.store.remove_chat(chat) > 0
        assert len(s.store.documents.all()) == 1
        assert 0 < s.store.pages.live() <= alone, "nothing that was said is left, and all that was read"
        again = last(s.stream("How long?", [str(document)]))["tokens"]["reused"]
        assert again > prepared - 2 * PAGE, "but for the words around a question, which llama.cpp keeps too"
        s.store.remove_document(s.store.documents.all()[0].id)
    assert pages(home) == 0


@pytest.mark.parametrize("engine", ["torch", pytest.param("llama.cpp", marks=needs_llama)])
def test_documents_first_read_in_the_middle_of_a_chat_outlive_it(home, document, models, engine):
    with session(home, models[engine], engine=engine, **SMALL) as s:
        chat, _ = talk(s, None, "How are you?")
        s.workflows.chats.add_documents(chat, [str(document)])
        last(s.run(s.workflows.chats.ask(chat, "How long?")))
        s.store.remove_chat(chat)
        tokens = last(s.stream("How long?", [str(document)]))["tokens"]
        assert tokens["prompt"] - tokens["reused"] < 2 * PAGE


def test_a_document_added_is_read_with_the_rest_and_one_removed_is_told(home, tmp_path, document, tiny_model):
    other = tmp_path / "lakes.txt"
    other.write_text("Lakes are deep.\n" * 9)
    with session(home, tiny_model, **SMALL) as s:
        chat, (first,) = talk(s, document, "How long?")
        s.workflows.chats.add_documents(chat, [str(other), str(other)])
        second = last(s.run(s.workflows.chats.ask(chat, "How deep?")))
        assert second["tokens"]["prompt"] > first["tokens"]["prompt"] + 140
        s.store.remove_document(s.store.chats.get(chat).documents[0].id)
        third = last(s.run(s.workflows.chats.ask(chat, "And now?")))
        assert third["tokens"]["prompt"] < first["tokens"]["prompt"]
        assert any("rivers.txt was removed" in note for note in third["notes"])
        s.workflows.chats.add_documents(chat, [str(document)])
        about = s.store.chats.get(chat).documents
        assert [(d.name, d.removed) for d in about] == [("rivers.txt", False), ("lakes.txt", False)]


def test_a_chat_about_an_older_version_stays_about_it(home, document, tiny_model):
    with session(home, tiny_model, **SMALL) as s:
        chat, _ = talk(s, document, "How long?")
        document.write_text("Quite another text.\n" * 20)
        last(s.prepare(str(document)))
        assert last(s.run(s.workflows.chats.ask(chat, "And 8?")))["tokens"]["reused"] > 700
        assert s.store.documents.find("rivers.txt").chars == 400, "the newest is still the newest"


# What stops it


def test_a_cancelled_answer_stays_as_far_as_it_came(home, document, readable_model):
    with session(home, readable_model, max_tokens=200) as s:
        chat = s.workflows.chats.start([str(document)]).id
        for n, event in enumerate(events := s.run(s.workflows.chats.ask(chat, "How long?"))):
            if isinstance(event, Token) and n > 60:
                s.cancel()
                break
        report = last(events)
        question, answer = s.store.chats.messages(chat)
        assert (answer.stopped, answer.id) == ("cancelled", report["message"])
        assert 0 < len(answer.text) < 200
        assert answer.text.strip() == report["answer"]
        assert "Answer (stopped)" in to_markdown(s.store.chats.get(chat), [question, answer])
        following = last(s.run(s.workflows.chats.ask(chat, "And 8?")))
        assert following["tokens"]["reused"] >= 12 * PAGE
        assert history(s.store.chats.messages(chat))[0] == ("How long?", answer.text)


@pytest.mark.parametrize("engine", ["torch", "llama.cpp"])
def test_a_cut_answer_is_continued_where_it_ended(home, document, readable_model, models, engine):
    model = readable_model if engine == "torch" else models[engine]
    with session(home, model, max_tokens=70) as s:
        chat, (first,) = talk(s, document, "How long is river 7?")
        assert first["stopped"] == "length"
    with session(home, model, max_tokens=80) as s:  # a restart later
        events = list(s.run(s.workflows.chats.continue_answer(chat)))
        more, answer = last(events), s.store.chats.messages(chat)[-1]
        told = "".join(event.text for event in events if isinstance(event, Token))
        assert len(s.store.chats.tree(chat)) == 2
    assert (more["message"], answer.stopped) == (first["message"], "length")
    assert answer.text.strip() == more["answer"]
    assert answer.text.endswith(told)
    assert more["answer"].startswith(first["answer"])
    assert more["tokens"]["generated"] == 80
    if engine == "torch":  # what the tiny GGUF says is no text that is read again as the same tokens
        assert more["tokens"]["prefilled"] <= PAGE
    with session(home, model, **SMALL) as s:
        following = last(s.run(s.workflows.chats.ask(chat, "And 8?")))
    assert following["tokens"]["prompt"] > first["tokens"]["prompt"] + (140 if engine == "torch" else 0)


def test_a_stopped_answer_is_continued_too_and_a_complete_one_is_not(home, document, readable_model):
    with session(home, readable_model, max_tokens=200) as s:
        chat = s.workflows.chats.start([str(document)]).id
        with pytest.raises(ChatError, match="nothing was asked"):
            last(s.run(s.workflows.chats.continue_answer(chat)))
        for n, event in enumerate(events := s.run(s.workflows.chats.ask(chat, "How long?"))):
            if isinstance(event, Token) and n > 60:
                s.cancel()
                break
        before = last(events)["answer"]
        assert last(s.run(s.workflows.chats.continue_answer(chat)))["answer"].startswith(before)
        answer = s.store.chats.messages(chat)[-1]
        s.store.chats.extend(answer.id, answer.text, answer.citations, answer.stats, "eos")
        with pytest.raises(ChatError, match="is complete"):
            last(s.run(s.workflows.chats.continue_answer(chat)))
        assert s.store.chats.messages(chat)[1].text == answer.text


def test_a_continued_answer_that_is_stopped_at_once_stays(home, document, readable_model):
    with session(home, readable_model, **SMALL) as s:
        chat, _ = talk(s, document, "How long?")
        before = s.store.chats.messages(chat)
        events = s.run(s.workflows.chats.continue_answer(chat))
        next(events)
        s.cancel()
        last(events)
        assert s.store.chats.messages(chat) == before


def test_a_question_cancelled_before_it_was_answered_waits(home, document, tiny_model):
    with session(home, tiny_model, **SMALL) as s:
        chat = s.workflows.chats.start([str(document)]).id
        events = s.run(s.workflows.chats.ask(chat, "How long?"))
        next(events)
        s.cancel()
        assert last(events)["message"] is None
        assert texts(s, chat) == ["How long?"]
        last(s.run(s.workflows.chats.ask(chat, "And 8?")))
        assert texts(s, chat)[:2] == ["How long?", "And 8?"], "what was never answered stays"
        assert len(texts(s, chat)) == 3
        messages = s.store.chats.messages(chat)
        assert history(messages) == [("And 8?", messages[-1].text)], "but it is not history"


def ask_and_wait(say, home, model, chat: str) -> None:
    """Say each token of an answer."""
    with session(home, model, max_tokens=4000) as s:
        for event in s.run(s.workflows.chats.ask(chat, "And 8?")):
            if isinstance(event, Token):
                say(event.text)


def test_killed_in_an_answer_only_that_answer_is_lost(home, document, readable_model):
    with session(home, readable_model, **SMALL) as s:
        chat, _ = talk(s, document, "How long is river 7?")
        before = texts(s, chat)
    process, connection = start(ask_and_wait, home, readable_model, chat)
    connection.recv()
    process.kill()
    said(connection)
    process.join()
    assert process.exitcode == -signal.SIGKILL
    with session(home, readable_model, **SMALL) as s:
        assert texts(s, chat) == [*before, "And 8?"]
        report = last(s.run(s.workflows.chats.regenerate(chat)))
        assert report["tokens"]["reused"] > 0.96 * report["tokens"]["prompt"]
        assert texts(s, chat)[:2] == before
        assert s.store.health()["damaged_pages"] == 0


# A full chat


@pytest.fixture
def full(home, tmp_path, tiny_model):
    """A session and a chat whose next question does not fit."""
    document = tmp_path / "long.txt"
    document.write_text("".join(f"River {i} is {i * 37} km long.\n" for i in range(130)))  # about 3,600 tokens
    with session(home, tiny_model, **SMALL) as s:
        chat = s.workflows.chats.start([str(document)]).id
        asked = s.store.chats.append(chat, None, "user", "Tell me. " * 30).id
        s.store.chats.append(chat, asked, "assistant", "They are long. " * 30)
        yield s, chat


def test_a_full_chat_is_told_with_the_ways_on_and_the_question_waits(full):
    s, chat = full
    with pytest.raises(ChatFull, match=r"this chat is full.* reads at most 4,096") as e:
        last(s.run(s.workflows.chats.ask(chat, "And 8?")))
    assert all(way in e.value.remedy for way in ("sink-window", "summarize", "new"))
    assert texts(s, chat)[-1] == "And 8?"


def test_a_full_chat_goes_on_seeing_its_end(full):
    s, chat = full
    s.store.chats.set(chat, {"keep": "sink-window:1024"})
    first, second = (last(s.run(s.workflows.chats.ask(chat, q))) for q in ("And 8?", "And 9?"))
    assert second["kv"]["keeper"] == "sink-window"
    assert sum(e["stop"] - e["start"] for e in second["kv"]["evicted"]) > 2000
    assert second["tokens"]["prompt"] > max(4096, first["tokens"]["prompt"])


def test_a_chat_that_forgets_goes_on_from_what_it_had_kept(home, tmp_path, tiny_model):
    document = tmp_path / "rivers.txt"
    document.write_text("".join(f"River {i} is {i * 37} km long.\n" for i in range(100)))
    with session(home, tiny_model, **SMALL) as s:
        chat, (first,) = talk(s, document, "How long?")
        s.store.chats.set(chat, {"keep": "sink-window:1024"})
        kept = s.store.pages.live()
        second = last(s.run(s.workflows.chats.ask(chat, "And 8?")))
        assert second["tokens"]["reused"] >= first["tokens"]["prompt"] - PAGE
        assert second["kv"]["evicted"]
        assert s.store.pages.live() == kept, "pages after something was dropped are not kept"


def test_a_full_chat_goes_on_with_a_summary(full):
    s, chat = full
    events = list(s.run(s.workflows.chats.summarize(chat)))
    assert any("a summary takes the place" in e.text for e in events if isinstance(e, Note))
    summary = s.store.chats.messages(chat)[-1]
    assert summary.role == "summary"
    assert history(s.store.chats.messages(chat)) == [("Summarize what was said so far.", summary.text)]
    last(s.run(s.workflows.chats.ask(chat, "And 8?")))
    assert len(texts(s, chat)) == 5
    assert "## Summary of what was said before" in to_markdown(s.store.chats.get(chat), s.store.chats.messages(chat))


@pytest.mark.parametrize("way", ["sink-window", "summarize", "new"])
def test_a_full_chat_answers_the_question_that_waits_in_any_way(full, way):
    s, chat = full
    with pytest.raises(ChatFull):
        last(s.run(s.workflows.chats.ask(chat, "And 8?")))
    on = last(s.run(s.workflows.chats.make_room(chat, way)))["chat"]
    assert texts(s, on)[-2] == "And 8?"
    assert (on != chat) == (way == "new")
    assert s.store.chats.get(on).documents == s.store.chats.get(chat).documents


def test_a_history_longer_than_the_window_is_summarized_from_its_end_and_told(home, tiny_model):
    with session(home, tiny_model, **SMALL) as s:
        chat, parent = s.workflows.chats.start([]).id, None
        for i in range(8):
            for role in ("user", "assistant"):
                parent = s.store.chats.append(chat, parent, role, f"{i} " * 200).id
        notes = [e.text for e in s.run(s.workflows.chats.summarize(chat)) if isinstance(e, Note)]
    assert notes[0] == "the oldest 4 of 8 answers are left out of the summary"


def test_a_new_chat_is_about_the_same_documents(full):
    s, chat = full
    new = s.workflows.chats.restart(chat)
    assert new.documents == s.store.chats.get(chat).documents
    last(s.run(s.workflows.chats.ask(new.id, "And 8?")))


def test_an_answer_that_cannot_be_stored_is_told(home, document, tiny_model):
    with session(home, tiny_model, **SMALL) as s:
        chat = s.workflows.chats.start([str(document)]).id
        for event in (events := s.run(s.workflows.chats.ask(chat, "How long?"))):
            if isinstance(event, Token):
                s.store.db.execute("CREATE TRIGGER no BEFORE INSERT ON messages BEGIN SELECT RAISE(FAIL, 'no'); END")
                break
        *_, done = events
        assert "was changed by another program" in done.failed
        assert done.report.to_json()["answer"]
