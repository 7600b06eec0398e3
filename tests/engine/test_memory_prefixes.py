"""Prompts word for word share pages in memory: to the bit what reading them again gives, within a budget."""

from dataclasses import replace

import promises
import pytest
from ask_in_process import session
from family_models import save_family
from hybrid_models import save_hybrid_model
from required_extras import needs_llama
from tiny_ggufs import write_tiny_gguf

from localctx.engine.events import Done, Planned
from localctx.engine.persistence.memory_prefixes import pass_ends
from localctx.kv.retained_pages import RetainedPages
from localctx.session import Session
from localctx.shape import PAGE
from localctx.workflows.reply import ReplyRequest

pytestmark = pytest.mark.slow

TURNS = ["River 3 is long. " * 20, "It is 111 km long.", "And river 7? " * 9, "It is 259 km.", "Which is longest?"]
STOP = 257


def messages(turns: int) -> list[dict[str, str]]:
    return [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(TURNS[:turns])]


def reply(s: Session, turns: int, **more) -> tuple[promises.Logits, Planned, Done]:
    """The logits of a reply, and how it was planned."""
    asked = ReplyRequest(s.settings, messages(turns), **more)
    logits, events = promises.recorded(s, s.workflows.reply(asked))
    (plan,) = (event for event in events if isinstance(event, Planned))
    assert isinstance(events[-1], Done)
    return logits, plan, events[-1]


def forget(s: Session) -> None:
    s.runtime.pools.retained.shrink_to(0)


@pytest.fixture(scope="module", params=["sharp", "sliding", "recurrent"])
def model(request, tmp_path_factory, sharp_model):
    folder = tmp_path_factory.mktemp("shared") / "model"
    if request.param == "sliding":
        return save_family(folder, "gemma3n")
    return sharp_model if request.param == "sharp" else save_hybrid_model(folder, "qwen3_5_text")


@pytest.mark.parametrize("how", [{"dtype": "f32", "kv": "int4"}, {"dtype": "bf16", "kv": "int8"}])
def test_a_chat_reads_only_what_is_new_and_to_the_bit_what_reading_all_gives(home, model, how):
    with session(home, model, max_tokens=6, chunk=128, draft=0, **how) as s:
        _, first, _ = reply(s, 1)
        assert first.reused == 0
        again = [reply(s, turns) for turns in (1, 3, 5)]
        ends = [
            pass_ends(s.model.tokenizer.encode_chat(messages(n)), s.model.tokenizer.stop_ids, 128) for n in (1, 3, 5)
        ]
        assert [plan.reused for _, plan, _ in again] == [ends[0][-1], ends[0][-1], ends[1][-1]]
        assert again[2][1].reused > again[2][1].tokens // 2
        for (warm, _, _), turns in zip(again, (1, 3, 5), strict=True):
            forget(s)
            cold, plan, _ = reply(s, turns)
            assert plan.reused == 0
            assert promises.difference(cold, warm)[0] == 0


def test_pages_are_found_by_the_passes_they_were_computed_in(home, sharp_model):
    with session(home, sharp_model, max_tokens=2, chunk=128) as s:
        reply(s, 1)
        s.change(replace(s.settings, chunk=256))
        assert reply(s, 1)[1].reused == 0
        s.change(replace(s.settings, chunk=128))
        assert reply(s, 1)[1].reused > 0
        s.change(replace(s.settings, prompts="off"))
        assert reply(s, 1)[1].reused == 0


def test_ends_of_passes_depend_on_what_comes_before_alone():
    tokens = ([1] * 100 + [STOP]) * 6
    ends = pass_ends(tokens, {STOP}, 128)
    assert ends == [64, 192, 256, 384, 448, 576]
    for length in range(1, len(tokens)):
        cut = pass_ends(tokens[:length], {STOP}, 128)
        assert cut == [end for end in cut if end in ends or end > length - PAGE]
    assert pass_ends([1] * 500, {STOP}, 100) == []
    assert pass_ends([1] * 500, {STOP}, 128) == [128, 256, 384]


def test_the_budget_holds_and_what_is_not_used_goes_first(home, sharp_model):
    with session(home, sharp_model, max_tokens=2, kv="f32") as s:
        page = s.runtime.paged_model.shape.page_bytes("f32")
        s.change(replace(s.settings, prompts=str(4 * page)))
        reply(s, 1)
        retained = s.runtime.pools.retained
        assert (len(retained), retained.nbytes) == (4, 4 * page)
        _, plan, _ = reply(s, 1)
        assert plan.reused == 4 * PAGE, "the beginning was given up before what follows it"
        assert retained.nbytes == 4 * page


def test_pages_give_way_before_anything_else_when_memory_is_needed(home, sharp_model):
    with session(home, sharp_model, max_tokens=2, kv="f32") as s:
        page = s.runtime.paged_model.shape.page_bytes("f32")
        s.change(replace(s.settings, memory=str(8 * page), disk="0"))
        reply(s, 1)
        held = len(s.runtime.pools.retained)
        assert 0 < held <= 8
        other = ReplyRequest(s.settings, [{"role": "user", "content": "Lakes are deep. " * 24}])
        *_, done = s.run(s.workflows.reply(other))
        assert isinstance(done, Done)
        assert done.report.kv.pages["disk"] == 0
        assert done.report.tokens.prefilled == done.report.tokens.prompt
        assert reply(s, 1)[0].keys(), "what was given up is read again"


@needs_llama
@pytest.mark.parametrize("family", ["llama", "granitehybrid"])
def test_llama_keeps_the_prompt_that_it_read_last(home, tmp_path, family):
    gguf = write_tiny_gguf(tmp_path / "tiny.gguf", family)
    with session(home, gguf, max_tokens=4, engine="llama.cpp") as s:
        assert told(s, 1) == 0
        again, longer = told(s, 1), told(s, 3)
        assert again == len(s.model.tokenizer.encode_chat(messages(1))) - 1
        cuttable = family == "llama"
        assert longer == (again // PAGE * PAGE if cuttable else 0)
        s.change(replace(s.settings, prompts="off"))
        assert told(s, 3) == 0


def told(s: Session, turns: int) -> int:
    """The tokens that a reply found."""
    (plan,) = (e for e in s.run(s.workflows.reply(ReplyRequest(s.settings, messages(turns)))) if isinstance(e, Planned))
    return plan.reused


def test_nothing_of_a_pool_stays_without_pages(home, sharp_model):
    with session(home, sharp_model, max_tokens=2) as s:
        reply(s, 1)
        assert s.runtime.pools.nbytes["device"] == s.runtime.pools.retained.nbytes > 0
        forget(s)
        assert s.runtime.pools.nbytes.get("device", 0) == 0
        assert isinstance(s.runtime.pools.retained, RetainedPages)
