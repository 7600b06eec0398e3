"""What the engine reports, in the words of the window."""

import pytest

from localctx.engine.events import PREPARING, Planned, Progress
from localctx.errors import OutOfKVMemory, TooLong
from localctx.ui import render
from localctx.ui.everyday import in_everyday_words, phase_name, words
from localctx.ui.job_events import error_text

TECHNICAL = ("token", "KV", "codec", "keeper", "prefill", "--")


@pytest.mark.parametrize(
    "text",
    [
        "the documents and the question are about 12,000 tokens, and smollm2 reads at most 8,192 tokens; ask a shorter "
        "part, choose a model with a longer window (localctx models list), or see only the end of them with "
        "--keep sink-window",
        "9 tokens take 3.1 GiB of KV; close other programs, raise --memory, --ram or --disk, or ask a shorter part",
        "llama.cpp has no int4 KV for this model; use --engine torch or a smaller --kv (int8, int4)",
        "this may ask about the whole, but only the best passages are read: --mode everywhere asks each of 9 passages",
        "select kept about 4,096 of the tokens at a time; prefill goes on with this keeper and codec",
    ],
)
def test_no_technical_word_is_left(text):
    said = in_everyday_words(text)
    assert not [word for word in TECHNICAL if word in said], said


def test_amounts_and_settings_are_named_as_the_window_names_them():
    assert words(8192) == "about 6,100 words"
    assert words(3) == "about 10 words"
    assert in_everyday_words("about 8,192 tokens") == "about 6,100 words"
    assert "in Settings" in in_everyday_words("raise --disk")
    assert in_everyday_words("use --mode everywhere").endswith("Every passage, one by one” in Settings")
    assert "tokens" not in error_text(TooLong("it has 9,000 tokens", "see localctx plan"))
    assert "KV" not in error_text(OutOfKVMemory({"device": 1 << 30}, 1 << 20))


def test_phases_are_named_by_what_is_done_and_files_without_their_folders():
    assert phase_name("pages of /home/ann/uploads/1f/lease.pdf") == "Reading lease.pdf"
    assert phase_name("/home/ann/uploads/1f/lease.pdf") == "Reading lease.pdf"
    assert phase_name("embedding 3 documents") == phase_name("indexing")
    assert phase_name("something new") == "Something new"
    assert phase_name(PREPARING) == "Preparing for this processor, once: about two minutes"


def test_a_progress_bar_says_how_much_is_done_and_starts_empty():
    shown = render.progress_bar(Progress("reading", 0, 3594, 0, 700, 5.1))
    assert "Reading: 0 %, about 5 s left" in shown
    assert 'value="0"' in shown
    assert "61.0 MiB of 122.1 MiB" in render.progress_bar(Progress("downloading x", 64_000_000, 128_000_000))
    assert "Comparing passages: 2 of 8" in render.progress_bar(Progress("ranking passages", 2, 8))
    assert "99 %" in render.progress_bar(Progress("reading", 9999, 10_000))


def test_a_plan_and_the_cost_of_an_answer_fold_their_figures():
    plan = Planned("full", "the documents fit", 3594, 0, 1 << 20, 48.2, 256, 8192, "int8", "full", {})
    shown, folded = render.plan_line(plan).split("<details>")
    assert "Reading the full document (about 48 s)" in shown
    assert "3,594 tokens" in folded
    stats = {"tokens": {"prompt": 1876, "reused": 1865, "generated": 3}, "seconds": {"first_token": 0.93}}
    first, ended, figures = render.answer_details({**stats, "stopped": "length"})
    assert first == "Started after 1 s, 99 % already read"
    assert "length limit" in ended
    assert "1,865 of 1,876 tokens" in figures
