"""Snapshots beside the pages of a sequence: where a prefix ends, whose they are, and when they go."""

from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from kept_rows import damage, rows
from stored_documents import MODEL, SLOT, TOKENS, add, open_cache, segments, write

from localctx.shape import PAGE, KVShape, LayerShape, StateShape
from localctx.store.caches import cache_id

pytestmark = pytest.mark.slow

SHAPE = KVShape((), states=(StateShape(0, "convolution", 0, (2500,), 16),))
WINDOWS = KVShape((LayerShape(1, 8, 8), LayerShape(1, 8, 8, "sliding", 100)))
SNAPSHOT = np.arange(5000, dtype=np.uint8)


def keep_with_states(store, documents, tokens, at, **chat) -> str:
    """Keep the pages of ``tokens``, with states after the pages at these positions."""
    cache = open_cache(store, documents, tokens) if not chat else _chat_cache(store, documents, tokens, **chat)
    with closing(store.pages.writer(MODEL, tokens, SLOT, cache, kinds=["states"])) as writer:
        pages = -(-len(tokens) // PAGE)
        write(writer, 0, pages)
        for position in at:
            writer.write_snapshot("states", position, SNAPSHOT)
        writer.commit(pages)
    return cache


def _chat_cache(store, documents, tokens, chat):
    how = {"model": "m", "codec": "int8", "keeper": "full", "tokens": len(tokens)}
    return store.caches.open(MODEL, documents, chat=chat, branch=1, **how)


def found(store, tokens) -> tuple[int, bool]:
    """The pages of the longest prefix that ends with states, and whether there are any."""
    match = store.pages.longest_prefix(MODEL, tokens, shape=SHAPE)
    return len(match.payloads) + (match.tail is not None), match.states is not None


def test_a_prefix_ends_with_the_last_page_that_has_states(store):
    keep_with_states(store, add(store, "a"), TOKENS, [1, 3])
    assert found(store, TOKENS) == (4, True)
    assert found(store, TOKENS[: 3 * PAGE]) == (2, True)
    assert found(store, TOKENS[:PAGE]) == (0, False)
    assert len(store.pages.longest_prefix(MODEL, TOKENS).payloads) == 5, "pages without states are asked for alone"
    match = store.pages.longest_prefix(MODEL, TOKENS, shape=SHAPE)
    assert np.array_equal(match.states, SNAPSHOT)


def test_states_after_an_open_page_belong_to_it(store):
    tokens = TOKENS[: 2 * PAGE + 9]
    keep_with_states(store, add(store, "a"), tokens, [1, 2])
    assert found(store, tokens) == (3, True)
    assert found(store, [*tokens, 7]) == (2, True)


def test_states_that_were_stored_by_another_document_are_this_ones_too(store):
    a, b = add(store, "a", "b")
    keep_with_states(store, [a], TOKENS, [1])
    keep_with_states(store, [b], TOKENS, [])
    store.remove_document(a)
    assert found(store, TOKENS) == (2, True)
    store.remove_document(b)
    assert found(store, TOKENS) == (0, False)
    assert not segments(store)


def test_what_a_chat_shares_of_its_documents_has_their_states(store):
    (document,) = add(store, "a")
    chat = store.chats.create("", [document], {}).id
    cache = keep_with_states(store, [document], TOKENS, [1, 3], chat=chat)
    store.caches.share(cache, cache_id(MODEL, [document]), 3 * PAGE, 3)
    store.remove_chat(chat)
    assert found(store, TOKENS) == (2, True)
    assert len(store.pages.longest_prefix(MODEL, TOKENS).payloads) == 3


def test_a_shorter_sequence_gives_up_the_states_of_the_longer_one(store):
    documents = add(store, "a")
    keep_with_states(store, documents, TOKENS, [1, 4])
    keep_with_states(store, documents, TOKENS[: 2 * PAGE], [])
    store.pages.forget_unused()
    assert found(store, TOKENS) == (2, True)


def test_states_may_be_written_after_their_page_was_committed(store):
    cache = open_cache(store, add(store, "a"), TOKENS)
    with closing(store.pages.writer(MODEL, TOKENS, SLOT, cache, kinds=["states"])) as writer:
        write(writer, 0, 5)
        writer.commit(5)
        writer.write_snapshot("states", 2, SNAPSHOT)
        writer.commit(5)
    store.pages.forget_unused()
    assert found(store, TOKENS) == (3, True)


def test_states_go_with_the_page_that_another_takes_the_place_of(store):
    documents = add(store, "a")
    cache = keep_with_states(store, documents, TOKENS, [1, 4])
    other = [*TOKENS[: 4 * PAGE], *range(7, 7 + PAGE)]
    keep_with_states(store, documents, other, [])
    store.pages.forget_unused()
    assert found(store, TOKENS) == (2, True)
    assert store.pages.has_snapshots(cache)


@pytest.mark.parametrize("pages", [2, 5])
def test_snapshots_are_no_pages_in_lists_and_count_in_bytes(store, pages):
    documents = add(store, "a")
    keep_with_states(store, documents, TOKENS[: pages * PAGE], range(pages))
    (listed,) = store.caches.of_document(documents[0])
    assert (listed.pages, listed.kept, listed.bytes) == (pages, pages * PAGE, pages * (160 + len(SNAPSHOT)))
    assert store.caches.usage(documents[0]) == (pages, pages * PAGE, pages * (160 + len(SNAPSHOT)))


# What sliding layers see


def keep_with_windows(store, at) -> str:
    """Keep the pages of ``TOKENS``, with the parts of sliding layers of the pages at these positions."""
    cache = open_cache(store, add(store, "a"), TOKENS)
    with closing(store.pages.writer(MODEL, TOKENS, SLOT, cache, kinds=WINDOWS.snapshots)) as writer:
        write(writer, 0, 5)
        for position in at:
            writer.write_snapshot("sliding", position, SNAPSHOT + position)
        writer.commit(5)
    return cache


def windows(store, tokens=TOKENS) -> tuple[int, list[int]]:
    """The pages of the longest prefix after which sliding layers can go on, and those of which they have a part."""
    match = store.pages.longest_prefix(MODEL, tokens, shape=WINDOWS)
    assert all(np.array_equal(part, SNAPSHOT + i) for i, part in match.windows.items())
    return len(match.payloads), sorted(match.windows)


@pytest.mark.parametrize(
    ("at", "length", "expected"),
    [
        ([3, 4], 5 * PAGE, (5, [3, 4])),
        ([2, 4], 5 * PAGE, (0, [])),
        ([0, 1, 4], 5 * PAGE, (2, [0, 1])),
        ([0, 1, 2, 3, 4], 4 * PAGE + 9, (4, [2, 3])),
        ([0], 5 * PAGE, (1, [0])),
        ([], 5 * PAGE, (0, [])),
    ],
)
def test_a_prefix_ends_with_the_last_page_whose_window_is_there(store, at, length, expected):
    """Of 100 tokens, which lie in two pages."""
    keep_with_windows(store, at)
    assert windows(store, TOKENS[:length]) == expected


def test_a_damaged_part_of_a_window_is_a_miss_and_given_up(store):
    keep_with_windows(store, [0, 1, 3, 4])
    damage(store.home, rows(store.home)[1][-1:])
    match = store.pages.longest_prefix(MODEL, TOKENS, shape=WINDOWS)
    assert (len(match.payloads), sorted(match.windows)) == (2, [0, 1])
    assert "fails its checksum" in match.fault
    assert store.pages.longest_prefix(MODEL, TOKENS, shape=WINDOWS).fault is None


def test_what_lies_behind_a_damaged_page_is_looked_at_once(store):
    keep_with_windows(store, [0, 1, 3, 4])
    damage(store.home, [row for some in rows(store.home) for row in some])
    assert windows(store) == (0, [])
    assert rows(store.home) == ([], [])


def test_states_and_windows_of_a_page_are_two_entries(store):
    shape, documents = replace(WINDOWS, states=SHAPE.states), add(store, "a")
    cache = open_cache(store, documents, TOKENS)
    with closing(store.pages.writer(MODEL, TOKENS, SLOT, cache, kinds=shape.snapshots)) as writer:
        write(writer, 0, 5)
        for position in (2, 3):
            writer.write_snapshot("sliding", position, SNAPSHOT)
            writer.write_snapshot("states", position, SNAPSHOT)
        writer.write_snapshot("sliding", 4, SNAPSHOT)
        writer.commit(5)
    store.pages.forget_unused()
    match = store.pages.longest_prefix(MODEL, TOKENS, shape=shape)
    assert (len(match.payloads), sorted(match.windows), match.states is None) == (4, [2, 3], False)
    store.remove_document(documents[0])
    assert not segments(store)


def test_windows_that_another_cache_stored_meanwhile_stay_without_it(store):
    """Their pages were entered already when another process wrote the windows."""
    documents = [add(store, name) for name in "ab"]
    ours, others = (open_cache(store, of, TOKENS) for of in documents)
    with closing(store.pages.writer(MODEL, TOKENS, SLOT, ours, kinds=WINDOWS.snapshots)) as writer:
        write(writer, 0, 5)
        writer.commit(5)
        with closing(store.pages.writer(MODEL, TOKENS, SLOT, others, kinds=WINDOWS.snapshots)) as other:
            for position in (3, 4):
                other.write_snapshot("sliding", position, SNAPSHOT + position)
            other.commit(5)
        assert all(writer.take_snapshot("sliding", position) for position in (3, 4))
        assert not writer.take_snapshot("sliding", 2)
        writer.commit(5)
    store.remove_document(documents[1][0])
    store.pages.forget_unused()
    assert windows(store) == (5, [3, 4])
