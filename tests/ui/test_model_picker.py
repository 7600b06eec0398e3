"""The model picker: what this machine runs, in everyday words; downloads that outlive the tab; changing the model."""

import re
import shutil
import threading
import tomllib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from browser import save_saying_model
from fake_sources import Hub, running_hub, silent
from stored_documents import add
from window_checks import barriers

from localctx import machine as machines
from localctx.budget import Measured
from localctx.engine.events import Progress
from localctx.machine import Rates
from localctx.models import catalog
from localctx.models.catalog import FALLBACK, CatalogEntry, HubSource, load_catalog
from localctx.models.choice import model_advice, model_list
from localctx.models.hub import download, resolve
from localctx.models.hub.installed import install
from localctx.settings import load_settings, save_settings
from localctx.store.store import Store

pytestmark = pytest.mark.slow

ENTRY = CatalogEntry(
    "tiny",
    "Tiny 1B Instruct",
    "MIT",
    context=512,
    bytes=600_000,
    parameters=1_000_000_000,
    fits=0,
    sources=(HubSource("org/tiny"),),
    family="llama",
    strength="Says a few words.",
)


@pytest.fixture(scope="module")
def saying(tmp_path_factory) -> Path:
    """A model that can be loaded, and says a few words."""
    return save_saying_model(tmp_path_factory.mktemp("saying") / "model", ["harbour ", "keeper ", "Ann ", "Marlow "])


@pytest.fixture
def hub(saying, monkeypatch) -> Iterator[Hub]:
    """A hub with the model, padded to more than one part of a download."""
    files = {path.name: path.read_bytes() for path in saying.iterdir()}
    files["vocab.json"] = b"{" + b" " * (1 << 20) + b"}"
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with running_hub(files) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        yield hub


@pytest.fixture
def window(home, saying, hub, monkeypatch):
    """A window as after the first start: the demonstration is installed, nothing is chosen. Its machine is fast, and
    the catalogue has one other model, which the hub has.
    """
    from localctx.ui.window import AppWindow  # before: a module that is first imported now would keep the catalogue

    known = {FALLBACK: load_catalog()[FALLBACK], "tiny": ENTRY}
    for room in (catalog, model_advice, model_list, resolve):
        monkeypatch.setattr(room, "load_catalog", lambda: known)
    monkeypatch.setattr(machines, "measure_rates", lambda *_: Rates(1e12, 1e14))
    monkeypatch.setattr(machines, "measure_device", lambda _: Measured(4 << 30, 8 << 30))
    monkeypatch.delenv("LOCALCTX_MODEL", raising=False)
    install_copy(saying, FALLBACK, home / "models")
    settings = load_settings(home=home, model=FALLBACK, embedder="none", adapter="none", max_tokens=4, threads=1)
    with closing(AppWindow(settings)) as window:
        yield window


def install_copy(model: Path, name: str, models: Path) -> Path:
    def build(work: Path):
        return Path(shutil.copytree(model, work / "copy")), {"kind": "test"}

    return install(name, models, silent, build)


@pytest.fixture
def tabs(chromium, address) -> Iterator[Callable]:
    """A function that opens a tab of a width; nothing may go wrong in any, and no red box of gradio's is shown."""
    with chromium.new_context() as context:
        faults = []

        def tab(width: int = 1280):
            page = context.new_page()
            page.set_viewport_size({"width": width, "height": 900})
            page.on("pageerror", lambda e: faults.append(str(e)))
            page.goto(address)
            page.locator("#model-button").wait_for()
            return page

        yield tab
        faults += [text for page in context.pages for text in page.locator(".toast-body").all_inner_texts()]
    assert faults == []


def said(page, where: str, text: str) -> str:
    """Wait until an element says ``text``; all that it says then."""
    page.locator(where).filter(has_text=re.compile(text)).wait_for()
    return " ".join(page.locator(where).inner_text().split())


def chosen(home: Path) -> dict:
    file = home / "settings.toml"
    return tomllib.loads(file.read_text()) if file.exists() else {}


# In a browser


@pytest.mark.browser
def test_the_first_run_recommends_a_model_and_its_download_outlives_the_tab(tabs, window, hub, home):
    hub.go.clear()
    page = tabs()
    card = said(page, "#model-panel", "SmolLM2 135M is a demonstration: small, quick, often wrong.")
    assert "this computer runs Tiny 1B" in card
    page.get_by_role("button", name="See all models").click()
    page.locator("#model-panel").get_by_text("licence: MIT").first.wait_for()  # shown, not only in the page
    card = said(page, "#model-panel", "Reads a 20-page document")
    assert re.search(r"Reads a 20-page document in about \d+ s, answers about \d+ words a second \(estimate\)", card)
    assert "Runs here · 585.9 KiB to download · licence: MIT" in card
    page.get_by_role("button", name="Download Tiny 1B").click()
    said(page, "#model-progress", "Downloading Tiny 1B")
    page.close()
    page = tabs()
    said(page, "#model-progress", r"Downloading Tiny 1B: .* of ")
    page.reload()
    said(page, "#model-progress", "Downloading Tiny 1B")
    page.get_by_role("button", name="Cancel download").click()
    said(page, "#model-progress", "What has come is kept")
    assert chosen(home) == {}
    hub.go.set()
    page.get_by_role("button", name="Resume download", exact=True).click()
    said(page, "#model-progress", "Tiny 1B is downloaded and checked")
    assert hub.asked.count("vocab.json") == 1
    page.locator("#model-next", has_text="Use Tiny 1B").click()
    said(page, "#model-said", "Tiny 1B is ready")
    assert chosen(home) == {"model": "tiny"}
    assert said(page, "#model-button", "Tiny 1B") == "Tiny 1B ▾"
    page.locator("#model-panel").wait_for(state="hidden")
    page.reload()
    said(page, "#model-button", "Tiny 1B")
    assert page.locator("#model-panel").count() == 0 or page.locator("#model-panel").is_hidden()


@pytest.mark.browser
def test_who_keeps_the_demonstration_is_not_asked_again_and_sees_its_name(tabs, window, home):
    page = tabs()
    said(page, "#model-panel", "recommended here")
    page.get_by_role("button", name="Not now").click()
    page.locator("#model-panel").wait_for(state="hidden")
    assert chosen(home) == {"model": FALLBACK}
    assert "SmolLM2 135M · demonstration" in page.locator("#model-button").inner_text()
    page.reload()
    said(page, "#status", "SmolLM2 135M is ready")
    assert page.locator("#model-panel").is_hidden()


@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 390])
def test_it_is_used_by_keyboard_and_fits_a_narrow_screen(tabs, window, home, width):
    save_settings(home, {"model": FALLBACK})
    page = tabs(width)
    said(page, "#status", "is ready")
    page.locator("#model-button").focus()
    page.keyboard.press("Enter")
    text = said(page, "#model-list", "Tiny 1B")
    assert "SmolLM2 135M in use demonstration" in text
    assert "Tiny 1B recommended here Says a few words." in text
    assert barriers(page, "#model-picker") == {}
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.ariaLabel") == "Download Tiny 1B"
    page.keyboard.press("Escape")
    page.locator("#model-panel").wait_for(state="hidden")
    assert page.evaluate("document.activeElement.id") == "model-button"


@pytest.mark.browser
def test_a_change_says_what_stays_ready_and_waits_for_the_answer_that_is_given(tabs, window, home, saying):
    save_settings(home, {"model": FALLBACK})
    install_copy(saying, "tiny", home / "models")
    prepare(window, home, "The keeper lives in the harbour. " * 40)
    going, done = threading.Event(), threading.Event()
    page = tabs()
    said(page, "#status", "is ready")
    stream = window.answer_worker.submit(holding(going, done))
    reader = threading.Thread(target=lambda: list(stream))
    reader.start()
    assert going.wait(30)
    page.locator("#model-button").click()
    page.get_by_role("button", name="Use Tiny 1B").click()
    text = said(page, "#model-confirm", "stays ready")
    assert "1 document stays ready for SmolLM2 135M" in text
    assert re.search(r"With Tiny 1B it is read once more when you ask about it, about \d+ s\.", text)
    assert "A question that is being answered ends first, with SmolLM2 135M." in text
    page.get_by_role("button", name="Not now").click()
    page.locator("#model-confirm").wait_for(state="hidden")
    assert window.settings.model == FALLBACK
    page.get_by_role("button", name="Use Tiny 1B").click()
    page.get_by_role("button", name="Switch to Tiny 1B").click()
    said(page, "#model-said", "Waiting for the question that is being answered")
    assert window.settings.model == FALLBACK
    done.set()
    reader.join(30)
    said(page, "#model-said", "Tiny 1B is ready")
    assert window.settings.model == "tiny"


@pytest.mark.browser
def test_another_model_is_checked_before_it_is_listed_and_used_only_if_it_loads(tabs, window, home, saying, tmp_path):
    save_settings(home, {"model": FALLBACK})
    whole, broken = (Path(shutil.copytree(saying, tmp_path / name)) for name in ("My model", "Broken"))
    (broken / "model.safetensors").write_bytes((saying / "model.safetensors").read_bytes()[:5000])
    (tmp_path / "Empty").mkdir()
    page = tabs()
    said(page, "#status", "is ready")
    page.locator("#model-button").click()
    field = page.get_by_label("Another model")
    for typed, why in (
        ("smolm2", "there is no model 'smolm2'"),
        ("org/none", "org/none cannot be downloaded: there is no such model"),
        (str(tmp_path / "Empty"), "has no config.json with"),
    ):
        field.fill(typed)
        field.press("Enter")
        assert "owner/name of the Hugging Face hub" in said(page, "#model-said", re.escape(why))
    field.fill("org/tiny")
    field.press("Enter")
    assert "licence: mit" in said(page, "#model-list", "licence: mit")
    for model in (broken, whole):
        field.fill(str(model))
        page.get_by_role("button", name="Check it").click()
        said(page, "#model-list", model.name)
    page.get_by_role("button", name="Use Broken").click()
    said(page, "#model-said", "SmolLM2 135M answers as before")
    assert (window.settings.model, chosen(home)) == (FALLBACK, {"model": FALLBACK})
    page.get_by_role("button", name="Use My model").click()
    said(page, "#model-said", "My model is ready")
    assert chosen(home) == {"model": str(whole)}
    assert "My model" in page.locator("#model-button").inner_text()


def prepare(window, home: Path, text: str) -> None:
    """Have the current model read a document, so that it is ready."""
    with closing(Store(home)) as store:
        document = add(store, text)[0]

    def job(session):
        yield from session.workflows.questions.prepare(document)

    list(window.answer_worker.submit(job))


def holding(going: threading.Event, done: threading.Event):
    """A job that runs until ``done`` is set, or for a minute or so: a test that fails leaves it."""

    def job(session):
        for step in range(5000):
            if step:
                going.set()
            yield Progress("counting", 0, 1)
            if done.wait(0.01):
                return

    return job


# Without a browser


@pytest.fixture
def picker(window):
    """The picker of ``window``, built and not served."""
    import gradio as gr

    from localctx.ui.models.model_picker import ModelPicker

    picker = ModelPicker(window)
    with gr.Blocks():
        picker.build()
    return picker


def test_where_the_environment_names_a_model_a_choice_here_is_refused(picker, window, home, monkeypatch):
    monkeypatch.setenv("LOCALCTX_MODEL", FALLBACK)
    install_copy(home / "models" / FALLBACK, "tiny", home / "models")
    *_, last = picker._switch("tiny", SimpleNamespace(session_hash="tab"))
    assert "LOCALCTX_MODEL is set in the environment" in last[picker.said]
    assert chosen(home) == {}


def test_a_model_of_another_engine_resets_the_engine(picker, window, home, saying):
    install_copy(saying, "tiny", home / "models")
    window.save_settings({"engine": "auto"})
    choice = picker._choice
    tiny = picker._listed("tiny")
    window.change_settings(load_settings(home=home, engine="llama.cpp"))
    assert choice._changes(tiny) == {"model": "tiny", "engine": "auto"}


def test_a_device_that_is_not_there_is_said_in_one_line(picker, window, monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    window.change_settings(load_settings(home=window.settings.home, device="cuda"))
    assert "there is no cuda here" in picker._filled("all")[picker.intro]


def test_a_licence_that_is_not_open_source_is_shown_above_the_button(picker, window, monkeypatch):
    known = {FALLBACK: load_catalog()[FALLBACK], "tiny": replace(ENTRY, licence="Some Licence", terms="not for banks.")}
    for room in (catalog, model_advice, model_list, resolve):
        monkeypatch.setattr(room, "load_catalog", lambda: known)
    html = picker._filled("all")[picker.list]
    told = html.index("licence: Some Licence, which is not open source: not for banks.")
    assert told < html.index('aria-label="Download Tiny 1B"')


def test_the_model_in_use_stands_first_then_what_is_installed(picker, saying, tmp_path):
    other = Path(shutil.copytree(saying, tmp_path / "other"))
    picker._choice.find(str(other))
    html = picker._filled("all")[picker.list]
    places = [html.index(sign) for sign in ("in use", 'data-do="use"', 'data-do="download"')]
    assert places == sorted(places)


def test_markup_in_names_is_shown_as_text(picker, window, saying, tmp_path):
    folder = Path(shutil.copytree(saying, tmp_path / "<b>bold{x}"))
    found = picker._choice.find(str(folder))
    assert found.state == "installed"
    html = picker._filled("all")[picker.list]
    assert "<b>bold" not in html
    assert "&lt;b&gt;bold&#123;x&#125;" in html


def test_an_embedder_is_no_model_to_answer(picker, home, saying, tmp_path):
    embedder = Path(shutil.copytree(saying, tmp_path / "embedder"))
    config = (embedder / "config.json").read_text().replace("LlamaForCausalLM", "BertModel")
    (embedder / "config.json").write_text(config)
    install_copy(embedder, "org--embedder", home / "models")
    install_copy(saying, "org--answers", home / "models")
    names = [m.name for m in picker._choice.models(picker._choice.advice())]
    assert "org--embedder" not in str(names)
    assert any("answers" in name for name in names)


@contextmanager
def disk(monkeypatch, free: int) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setattr("localctx.ui.models.model_picker.measure_disk", lambda _: Measured(free, free))
        yield


def test_a_full_disk_and_a_small_memory_are_told_before_the_download(picker, window, monkeypatch):
    with disk(monkeypatch, 1000):
        html = picker._filled("all")[picker.list]
    assert "Not enough disk space: 1000 B are free" in html
    assert "Download Tiny" not in html
    monkeypatch.setattr(machines, "measure_device", lambda _: Measured(1 << 10, 1 << 12))
    assert "Too large for this computer" in picker._filled("all")[picker.list]


def test_measured_speeds_replace_estimates_and_say_so(picker, window, home):
    window.save_settings({"model": FALLBACK})
    prepare(window, home, "The keeper lives in the harbour. " * 40)
    with window.store() as store:
        (fingerprint,) = {row.fingerprint for d in store.documents.all() for row in store.caches.of_document(d.id)}
        store.caches.note_rate(fingerprint, 1060.0)
        store.caches.note_rate(fingerprint, 40.0, "answer")
    html = picker._filled("all")[picker.list]
    assert "Reads a 20-page document in about 10 s, answers about 30 words a second (measured here)" in html


def test_a_download_that_fails_says_why_and_what_to_do(picker, window, hub, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    picker._start("tiny", "")
    while window.downloads.busy:
        threading.Event().wait(0.05)
    shown = picker.download.show()
    assert "Tiny 1B was not downloaded." in shown[picker.download.progress]
    assert "check the network and try again" in shown[picker.download.progress]
    assert shown[picker.download.next]["value"] == "Try again"
    assert download.folder_bytes(window.settings.models / ".partial") == 0
