"""Chats: a tree of messages that outlives the process, and pages that go with it."""

import json
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlite_utils import Database
from stored_documents import MODEL, SLOT, TOKENS, add, files, kept, write

from localctx.errors import ChatError
from localctx.shape import PAGE
from localctx.store.chats import Chat, ChatDocument, Chats, Message
from localctx.store.schema import migrate
from localctx.store.store import Store
from localctx.store.transcript import to_json, to_markdown

pytestmark = pytest.mark.slow

CITED = {"document": "d", "name": "a [draft]", "page": 3, "start": 0, "end": 9, "quote": "# so\nit is"}


def talk(chats: Chats, chat: str, *texts: str, parent: int | None = None) -> list[Message]:
    """Question, answer, question, ... after ``parent``."""
    said = []
    for i, text in enumerate(texts):
        said.append(chats.append(chat, parent, ("user", "assistant")[i % 2], text))
        parent = said[-1].id
    return said


def texts(messages: list[Message]) -> list[str]:
    return [m.text for m in messages]


# The tree


def test_a_chat_comes_back_in_another_process_as_it_was(home, store):
    documents = add(store, "a", "b")
    chat = store.chats.create("Two\nletters ", documents, {"model": "tiny", "n": 1})
    talk(store.chats, chat.id, "who?")
    store.chats.append(chat.id, 1, "assistant", "half an ans", [CITED], {"tokens": 3}, stopped="cancelled")
    with closing(Store(home)) as other:
        again = other.chats.find("Two letters")
        assert again.settings == {"model": "tiny", "n": 1}
        assert again.documents == tuple(ChatDocument(d, name, False) for d, name in zip(documents, "ab", strict=True))
        question, answer = other.chats.messages(again.id)
    assert (question.text, question.parent, question.stopped) == ("who?", None, "")
    assert (answer.text, answer.parent, answer.stopped) == ("half an ans", question.id, "cancelled")
    assert (answer.citations, answer.stats) == ([CITED], {"tokens": 3})


def test_an_edit_and_another_answer_are_branches_and_nothing_is_lost(store):
    chat = store.chats.create("t").id
    q1, a1, q2, a2 = talk(store.chats, chat, "q1", "a1", "q2", "a2")
    edited = store.chats.edit(q2, "q2, better")
    assert texts(store.chats.messages(chat)) == ["q1", "a1", "q2, better"]
    other = store.chats.append(chat, q1.id, "assistant", "a1, again", stopped="length")
    assert texts(store.chats.messages(chat)) == ["q1", "a1, again"]
    assert texts(store.chats.branches(chat)) == ["a1, again", "q2, better", "a2"]
    assert texts(store.chats.replies(chat, a1.parent)) == ["a1", "a1, again"]
    assert texts(store.chats.replies(chat, None)) == ["q1"]
    assert store.chats.select(a1) == edited, "the branch through it that was written last"
    assert texts(store.chats.messages(chat)) == ["q1", "a1", "q2, better"]
    assert texts(store.chats.messages(chat, a2.id)) == ["q1", "a1", "q2", "a2"]
    assert texts(store.chats.tree(chat)) == ["q1", "a1", "q2", "a2", "q2, better", "a1, again"]
    assert store.chats.message(other.id).stopped == "length"


def test_a_first_question_can_be_edited_and_a_chat_may_be_empty(store):
    chat = store.chats.create("t").id
    assert store.chats.messages(chat) == store.chats.branches(chat) == []
    (first,) = talk(store.chats, chat, "q")
    (elsewhere,) = talk(store.chats, store.chats.create("other").id, "not this chat's")
    second = store.chats.edit(first, "Q")
    assert store.chats.replies(chat, second.parent) == [first, second]
    assert store.chats.messages(chat) == [second]
    with pytest.raises(AssertionError):
        store.chats.append(chat, elsewhere.id, "user", "q")


def test_a_branch_keeps_its_name_while_it_grows_and_an_edit_has_another(store):
    chat = store.chats.create("t").id
    said = talk(store.chats, chat, *"abcd")
    name = store.chats.branch_of
    assert {name(m.id) for m in said} == {said[0].id}
    edit = store.chats.edit(said[2], "C")
    (answer,) = talk(store.chats, chat, "D", parent=edit.id)
    assert name(edit.id) == name(answer.id) == edit.id
    assert name(said[3].id) == said[0].id, "the older branch kept its name"
    assert name(store.chats.edit(said[0], "A").id) not in {said[0].id, edit.id}


@given(steps=st.lists(st.tuples(st.sampled_from(["append", "edit", "again", "select"]), st.integers(0)), max_size=12))
@settings(deadline=None)
def test_whatever_is_done_branches_are_paths_of_one_tree(steps):
    with closing(Database(memory=True)) as db:
        migrate.apply(db)
        chats = Chats(db)
        chat = chats.create("t").id
        talk(chats, chat, "first")
        for n, (verb, which) in enumerate(steps):
            tree = chats.tree(chat)
            at = tree[which % len(tree)]
            if verb == "append":
                talk(chats, chat, f"{n}", parent=at.id)
            elif verb == "select":
                chats.select(at)
                assert at in chats.messages(chat)
            else:
                new = chats.edit(at, f"{n}") if verb == "edit" else chats.append(chat, at.parent, at.role, f"{n}")
                assert chats.messages(chat)[-1] == new
        tree, leaves = chats.tree(chat), chats.branches(chat)
        assert chats.get(chat).leaf in {m.id for m in leaves}
        paths = [chats.messages(chat, leaf.id) for leaf in leaves]
        assert {m.id for path in paths for m in path} == {m.id for m in tree}
        for path in paths:
            assert [m.parent for m in path] == [None, *(m.id for m in path[:-1])]
        assert len({chats.branch_of(leaf.id) for leaf in leaves}) == len(leaves), "two branches would share a cache"


# The list


def test_a_chat_is_looked_up_by_its_whole_id(store):
    chat = store.chats.create("Terns")
    assert store.chats.stored(chat.id) == store.chats.get(chat.id) == chat
    assert store.chats.stored(chat.id[:6]) is None
    store.remove_chat(chat.id)
    assert store.chats.stored(chat.id) is None
    with pytest.raises(ChatError, match="deleted"):
        store.chats.get(chat.id)


def test_chats_are_listed_found_and_renamed(store):
    one, two = (store.chats.create("Same").id for _ in range(2))
    talk(store.chats, one, "q")
    assert [c.id for c in store.chats.all()] == [one, two], "the last used first"
    with pytest.raises(ChatError, match="names 2 chats") as e:
        store.chats.find("Same")
    assert one in e.value.remedy
    store.chats.rename(one, "  ")
    assert store.chats.find(one[:6]).title == "New chat"
    store.chats.rename(one, "Mine")
    assert store.chats.find("Mine").id == one
    for unknown in ("nobody", "", one[:3]):
        with pytest.raises(ChatError, match="no chat"):
            store.chats.find(unknown)


# Documents and pages


def keep_for(store: Store, documents: list[str], tokens: list[int], chat: str, branch: int) -> str:
    named = {"model": "m", "codec": "int8", "keeper": "full", "tokens": len(tokens)}
    cache = store.caches.open(MODEL, documents, **named, chat=chat, branch=branch)
    with closing(store.pages.writer(MODEL, tokens, SLOT, cache)) as writer:
        write(writer, 0, len(tokens) // PAGE)
        writer.commit(len(tokens) // PAGE)
    return cache


def test_a_removed_document_leaves_its_name_and_takes_its_pages(store):
    a, b = add(store, "a", "b")
    chat = store.chats.create("t", [a, b]).id
    talk(store.chats, chat, "q")
    keep_for(store, [a, b], TOKENS, chat, 1)
    store.remove_document(a)
    again = store.chats.get(chat)
    assert again.documents == (ChatDocument(a, "a", True), ChatDocument(b, "b", False))
    assert "a (removed" in to_markdown(again, store.chats.messages(chat))
    assert kept(store, TOKENS) == 0, "pages that say what it said are still there"
    store.remove_chat(chat)
    assert [d.id for d in store.documents.all()] == [b]


def test_a_removed_chat_takes_the_pages_that_nothing_else_holds(store):
    documents, longer = add(store, "a"), TOKENS + TOKENS
    chat, other = (store.chats.create("t", documents).id for _ in range(2))
    first = keep_for(store, documents, TOKENS, chat, 1)
    assert keep_for(store, documents, longer, chat, 1) == first, "a branch that grew is the same cache"
    assert keep_for(store, documents, TOKENS[: 3 * PAGE], chat, 2) != first
    keep_for(store, documents, TOKENS[: 2 * PAGE], other, 3)
    assert kept(store, longer) == 10
    store.remove_chat(chat)
    assert kept(store, longer) == 2
    assert [c.chat for c in store.caches.of_document(documents[0])] == [other]
    assert store.remove_chat(other) == 5 * SLOT
    assert not files(store)
    assert store.chats.all() == []


# Export


def message(text: str, role: str = "assistant", citations: list | None = None, stopped: str = "eos") -> Message:
    return Message(1, "c", None, role, text, citations or [], {}, stopped, 0.0)


CHAT = Chat("c", "Rivers", (ChatDocument("d", "a.md", False), ChatDocument("e", "b_c.md", True)), {}, 1, 0.0, 0.0)


def test_markdown_has_documents_turns_and_footnotes():
    said = [message("How long?", "user"), message("37 km.\nOr so.", citations=[CITED], stopped="cancelled")]
    assert to_markdown(CHAT, said).splitlines() == [
        "# Rivers",
        "",
        "- a.md",
        r"- b\_c.md (removed from the library)",
        "",
        "## Question",
        "",
        "> How long?",
        "",
        "## Answer (stopped)",
        "",
        "> 37 km.",
        "> Or so.",
        "",
        "[^1]",
        "",
        r'[^1]: a \[draft\], page 3: "\# so it is"',
    ]


HOSTILE = [
    "# Heading",
    "```\nnever closed",
    "<!-- hidden",
    "---",
    "[^1]: another note",
    "> [x]: https://e.org",
    "a\r# b",
]


@given(st.one_of(st.sampled_from(HOSTILE), st.text()), st.one_of(st.sampled_from(HOSTILE), st.text()))
def test_nothing_said_or_read_leaves_its_place(text, name):
    cited = [{**CITED, "name": name, "quote": text, "page": None, "heading": name}]
    chat = Chat("c", name, (ChatDocument("d", name, False),), {}, 1, 0.0, 0.0)
    lines = to_markdown(chat, [message(text, "user"), message(text, citations=cited)]).splitlines()
    ours = [line for line in lines if line and not line.startswith(">")]
    begins = ["# ", "- ", "## Question", "## Answer", "[^1]", "[^1]: "]
    assert len(ours) == len(begins)
    assert all(line.startswith(b.rstrip()) for line, b in zip(ours, begins, strict=True))
    assert not any(line.lstrip("> ").startswith("[^1]:") for line in lines if line.startswith(">"))


def test_json_says_everything_and_when():
    said = to_json(CHAT, [message("37", citations=[CITED])])
    assert json.loads(json.dumps(said)).keys() == said.keys()
    assert (said["format"], said["version"], said["created"]) == ("localctx chat", 1, "1970-01-01T00:00:00+00:00")
    assert said["messages"][0]["citations"] == [CITED]
    assert said["documents"][1] == {"id": "e", "name": "b_c.md", "removed": True}
