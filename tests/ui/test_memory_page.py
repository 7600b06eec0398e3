"""The memory page: the map of an answer's pages, bars and what fits, the quality gate as a job; both pages in a
browser."""

import re
import time
import tomllib
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
from ask_in_process import ask, session
from browser import launched
from clock import seconds_since
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import KEPT

from localctx.engine.events import WHERE, InUse
from localctx.settings import load_settings
from localctx.shape import FORMATS, PAGE
from localctx.ui.settings.bars import MAX_CELLS, BarPart, bar, page_cells, summary
from localctx.ui.settings.capacity_table import table
from localctx.ui.settings.memory_choices import codec_choices, keeper_choices

pytestmark = pytest.mark.slow

TAB = SimpleNamespace(session_hash="tab")


# The map


def test_a_second_question_finds_its_pages_kept_and_on_disk(home, tiny_model, document):
    first = ask(home, tiny_model, document).report.to_json()["kv"]["map"]
    again = ask(home, tiny_model, document).report.to_json()["kv"]["map"]
    assert (first["reused"], first["where"].strip("d")) == (0, "o")
    assert again["reused"] == -(-KEPT // PAGE)
    assert again["where"][: KEPT // PAGE] == "s" * (KEPT // PAGE)
    assert again["where"].lstrip("s").strip("d") == "o"
    assert len(again["looks"]) == 12
    assert sum(again["looks"]) == pytest.approx(1, abs=0.01)


def test_pages_past_a_budget_are_elsewhere(home, tiny_model, document):
    kv = ask(home, tiny_model, document, memory="20000").report.to_json()["kv"]
    assert [kv["map"]["where"].count(letter) for letter in "dhs"] == list(kv["pages"].values())
    assert {"d", "s"} <= set(kv["map"]["where"])


@pytest.mark.parametrize(("keep", "letter"), [("sink-window:256", "x"), ("h2o:256", "x"), ("snapkv:256", "p")])
def test_what_a_keeper_dropped_is_told_apart(home, tiny_model, document, keep, letter):
    kv = ask(home, tiny_model, document, keep=keep).report.to_json()["kv"]
    gone = sum(e["stop"] - e["start"] for e in kv["evicted"]) // PAGE
    assert gone > 3
    assert kv["map"]["where"].count(letter) == gone
    assert kv["map"]["where"][0] == "d", "sinks stay"


@given(
    st.text(st.sampled_from("dhspxo"), min_size=1, max_size=5000),
    st.lists(st.floats(0, 1), max_size=40),
    st.integers(0, 5000),
)
def test_any_map_is_drawn_in_a_thousand_cells_and_a_sentence(where, looks, reused):
    known = {"where": where, "reused": min(reused, len(where)), "looks": looks[: len(where)]}
    drawn = ElementTree.fromstring(f"<p>{page_cells({'kv': {'map': known}}, 'Here')}</p>")
    cells = next(e for e in drawn if e.get("role") == "img")
    assert len(cells) <= MAX_CELLS
    assert len(cells) == -(-len(where) // -(-len(where) // MAX_CELLS))
    assert cells.get("aria-label") == drawn[0].text
    assert f"{len(where):,} blocks" in cells.get("aria-label")


def test_the_sentence_adds_up_and_a_title_is_text():
    said = summary("dsxxo", [0, 0.2, 0, 0, 0], 2, "<b>Here</b>")
    assert "5 blocks of 64 tokens, 1 on the device, 1 on disk, 2 dropped" in said
    assert "2 were kept from before, 3 read or written now" in said
    assert "attended most to tokens 64 to 127" in said
    report = {"kv": {"map": {"where": "d", "reused": 0, "looks": []}}}
    assert "<script>" not in page_cells(report, "<script>alert(1)</script>")
    assert set(WHERE) == set("dhspxo")


def test_a_map_without_attention_tells_none():
    kv = {"engine": "llama.cpp", "map": {"where": "ddo", "reused": 2, "looks": []}}
    drawn = page_cells({"kv": kv}, "Here")
    assert "llama.cpp does not tell" in drawn
    assert "of the attention" not in drawn
    assert "attention of the answer" not in drawn


def test_the_codecs_of_llama_cpp_are_offered_with_one_that_it_lacks():
    names = [name for _, name in codec_choices("llama.cpp", "int2", {})]
    assert names == ["auto", "f32", "f16", "bf16", "int8", "k8v4", "int4", "int2"]
    assert "choose another" in codec_choices("llama.cpp", "int2", {})[-1][0]
    assert [name for _, name in keeper_choices("llama.cpp", {})] == ["full", "sink-window:2048"]
    assert [name for _, name in codec_choices("torch", "auto", {})] == ["auto", *FORMATS]


def test_a_bar_is_as_wide_as_its_parts():
    drawn = bar("RAM", [BarPart("kv", "KV", 300), BarPart("free", "free", 700), BarPart("others", "others", -5)])
    assert re.findall(r"width:([\d.]+)%", drawn) == ["30.00", "70.00", "0.00"]


# What fits


@pytest.fixture
def planned(home, tiny_model):
    from localctx.engine.planning.capacity import plan_memory

    return plan_memory(load_settings(home=home, model=str(tiny_model), memory="64MiB", disk="1GiB")).to_json()


def test_what_fits_names_every_codec_with_its_longest_context(planned):
    shown = table(planned)
    for codec, fits in planned["fits"].items():
        assert f'<th scope="row">{codec}</th>' in shown
        assert f"{fits:,} tokens" in shown


# With a worker


@pytest.fixture
def page(window):
    import gradio as gr

    from localctx.ui.settings.memory_page import MemoryPage

    page = MemoryPage(window)
    with gr.Blocks():
        page.build()
    return page


def enter(window, document: Path) -> str:
    def job(session):
        yield session.workflows.store([str(document)])[0]

    return next(e for e in window.answer_worker.submit(job) if isinstance(e, str))


def test_the_page_shows_what_the_worker_holds_and_the_map_of_the_chat(window, page, document):
    assert "Ask something" in page._live("", None)[page.map]
    seen = []

    def job(session):
        chat = session.workflows.chats.start([str(document)])
        for event in session.run(session.workflows.chats.ask(chat.id, "How long is river 7?")):
            seen.append(dict(session.in_use.kv))
            yield event

    report = list(window.answer_worker.submit(job))[-1].report.to_json()
    assert max(kv.get("device", 0) for kv in seen) > 12 * PAGE
    assert window.answer_worker.in_use.weights > 100_000
    assert not any(window.answer_worker.in_use.kv.values()), "the cache is gone with the answer"
    updates = page._live(report["chat"], None)
    assert "The last answer in this chat: 13 blocks" in updates[page.map]
    assert "Model <b>" in updates[page.bars]
    assert page.map not in page._live(report["chat"], updates[page.map_key]), "it is drawn once"
    assert "in another chat" in page._live("someone else's", None)[page.map]


def test_the_bars_count_the_adapter_that_answers(window, page):
    for adapter in (0, 2 << 20):
        window.answer_worker.in_use = InUse("cpu", 3 << 20, adapter)
        bars = page._bars()
        assert ("Reader <b>2.0 MiB</b>" in bars) == bool(adapter)
        assert "Model <b>3.0 MiB</b>" in bars


def test_the_gate_measures_as_a_job_and_the_choices_tell(window, page, document):
    assert "not measured on this computer" in dict(map(reversed, page._choices()[page.codec]["choices"]))["int8"]
    document = enter(window, document)
    *_, line, choices = page._measure(document, ["int8", "select:1/4"], 256, TAB)
    assert "easured on" in line[page.progress]
    labels = dict(map(reversed, choices[page.codec]["choices"]))
    assert re.fullmatch(
        r"int8: (passed|not good enough) \(KL .*, top-1 .*%, needles \d of 5, 256 tokens\)", labels["int8"]
    )
    assert "not measured" in labels["int4"]
    assert "; in int8 " in dict(map(reversed, choices[page.keeper]["choices"]))["select:1/4"]
    with session(window.settings.home, Path(window.settings.model)) as s:
        assert s.store.quality_results.passed(s.model.fingerprint("int8")) is labels["int8"].startswith("int8: passed")


def test_the_gate_is_stopped_in_the_middle(window, page, document):
    document = enter(window, document)
    lines = page._measure(document, ["int8", "int4", "int2"], 512, TAB)
    next(line for line in lines if "Reading" in line[page.progress])
    page._stop(TAB)
    assert "Stopped" in [line[page.progress] for line in lines if page.progress in line][-1]
    start = time.monotonic()
    enter(window, Path(__file__))
    assert seconds_since(start) < 5, "the worker is free"


def test_a_codec_is_chosen_and_nonsense_is_told(window, page, home):
    updates = next(page._save("kv", "k8v4"))
    assert "Saved" in updates[page.message]
    assert (window.settings.kv, updates[page.codec]["value"]) == ("k8v4", "k8v4")
    assert tomllib.loads((home / "settings.toml").read_text()) == {"kv": "k8v4"}
    assert 'role="alert"' in next(page._save("keep", "most:9"))[page.message]
    assert window.settings.keep == "full"


# In a browser


def test_both_pages_in_a_browser(address, window, home):
    expect = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed").expect
    faults, asked = [], []
    with launched() as chromium:
        page = chromium.new_page(viewport={"width": 1280, "height": 800}, color_scheme="light")
        page.on("pageerror", lambda e: faults.append(str(e)))
        page.on("request", lambda r: asked.append(r.url))
        page.goto(address)
        page.get_by_role("tab", name="Settings").click()
        page.get_by_role("tab", name="Advanced").click()
        expect(page.locator("#what-fits table")).to_be_visible()
        expect(page.locator("#bars .lc-bar")).to_have_count(2)
        page.get_by_label("int4: not measured on this computer", exact=True).check()
        expect(page.locator("#memory-said")).to_contain_text("Saved")
        page.get_by_role("tab", name="General").click()
        page.get_by_label("Dark", exact=True).check()
        expect(page.locator("body")).to_have_class(re.compile(r"\bdark\b"))
        page.get_by_role("tab", name="Advanced").click()
        page.get_by_label("Temperature").fill("99")
        page.get_by_role("button", name="Save").click()
        expect(page.locator("#settings-said [role=alert]")).to_contain_text("not valid")
        page.get_by_label("Temperature").fill("0.5")
        page.get_by_role("button", name="Save").click()
        expect(page.locator("#settings-said")).to_contain_text("2 settings saved")
        page.reload()
        expect(page.locator("body")).to_have_class(re.compile(r"\bdark\b"))
    assert not faults
    assert not [url for url in asked if not url.startswith((address, "data:", "blob:"))]
    assert tomllib.loads((home / "settings.toml").read_text()) == {
        "kv": "int4",
        "temperature": 0.5,
        "appearance": "dark",
    }
