"""Builds the memory page, a part of the settings. It shows the memory in use, the page map of an answer, the choice of
codec and keeper, and the capacity.
"""

import time
from collections.abc import Generator, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import gradio as gr

from localctx.budget import measure_device, measure_disk, measure_process, measure_ram, measure_store_budget
from localctx.engine.events import Note
from localctx.errors import UserError, format_bytes
from localctx.kv.keepers import KEEPERS
from localctx.serving.worker import SessionJob
from localctx.settings import overrides
from localctx.shape import FORMATS
from localctx.ui import render
from localctx.ui.job_events import error_text, progress_lines
from localctx.ui.settings.bars import BarPart, bar, page_cells
from localctx.ui.settings.capacity_table import table
from localctx.ui.settings.memory_choices import KEEPER_INFO, KEEPER_LABELS, codec_choices, engine_of, keeper_choices
from localctx.ui.window import EVENT_OPTIONS, SLOW_EVENT_OPTIONS, AppWindow, Updates, tab_id

if TYPE_CHECKING:
    from localctx.session import Session

OUTER_TAB, TAB = "Settings", "Advanced"  # this page is a part of the settings page
REFRESH_INTERVAL = 2  # seconds between two measurements of memory
DEFAULT_VARIANTS = ["int8", "k8v4", "int4"]  # these are measured unless the user chooses others


class MemoryPage:
    """The memory part of the settings page, built inside a gr.Blocks."""

    def __init__(self, window: AppWindow) -> None:
        self._window = window

    def build(self) -> None:
        """Build the bars, the page map, the choice of codec and keeper, and the capacity table."""
        self.timer = gr.Timer(REFRESH_INTERVAL, active=False)
        self.page = gr.State("")  # the last selected page of the settings
        self.map_key = gr.State(None)  # chat and message of the answer whose page map is shown
        gr.Markdown("### Memory")
        self.bars = gr.HTML("", elem_id="bars")
        gr.Markdown("### This conversation in memory")
        self.map = gr.HTML("", elem_id="page-map")
        gr.Markdown("### Cache settings")
        self.message = gr.HTML("", elem_id="memory-said")
        with gr.Row(equal_height=False):
            with gr.Column(min_width=320):
                # visible from the start, because gradio may lose updates of hidden components
                settings = self._window.settings
                codecs = codec_choices(engine_of(settings), settings.kv, {})
                self.codec = gr.Radio(codecs, value=settings.kv, label="Memory precision", elem_id="codec")
            with gr.Column(min_width=320):
                self.keeper = gr.Dropdown(
                    [],
                    label="Attention limit",
                    allow_custom_value=True,
                    elem_id="keeper",
                )
                self._build_measuring()
        gr.Markdown("### Capacity")
        self.plan = gr.HTML("", elem_id="what-fits")

    def _build_measuring(self) -> None:
        with gr.Accordion("Measure on a document of yours", open=False, elem_id="gate") as self.gate:
            self.document = gr.Dropdown([], label="Document", elem_id="gate-document")
            self.variants = gr.Dropdown(
                [*FORMATS, *(k for k in KEEPER_LABELS if k != "full")],
                value=DEFAULT_VARIANTS,
                multiselect=True,
                label="Precisions and limits",
                elem_id="gate-variants",
            )
            self.tokens = gr.Number(
                2048, label="How many tokens of it", precision=0, minimum=256, elem_id="gate-tokens"
            )
            with gr.Row():
                self.measure = gr.Button("Measure", variant="primary", elem_id="gate-start")
                self.stop = gr.Button("Stop", elem_id="gate-stop")
            self.progress = gr.HTML("", elem_id="gate-progress")

    def wire(self, page: gr.Blocks, tabs: gr.Tabs, inner: gr.Tabs, chat: gr.Textbox) -> None:
        """Connect the components with their event handlers.

        ``chat`` has the id of the open chat. ``inner`` are the pages of the settings, which are one of the ``tabs``.
        """
        live = [self.bars, self.map, self.map_key]
        choices = [self.codec, self.keeper, self.gate, self.document, self.plan]
        inner.select(self._note_page, None, [self.page], **EVENT_OPTIONS)
        for event in (tabs.select, inner.select):
            event(self._set_timer, [self.page], [self.timer], **EVENT_OPTIONS)
            event(self._tab_selected, [chat, self.page], [*live, *choices], **EVENT_OPTIONS)
        self.timer.tick(self._live, [chat, self.map_key], live, **EVENT_OPTIONS)
        changed = [self.message, *choices]
        self.codec.input(partial(self._save, "kv"), [self.codec], changed, **EVENT_OPTIONS)
        self.keeper.input(partial(self._save, "keep"), [self.keeper], changed, **EVENT_OPTIONS)
        self.measure.click(
            self._measure,
            [self.document, self.variants, self.tokens],
            [self.progress, *choices],
            **SLOW_EVENT_OPTIONS,
        )
        self.stop.click(self._stop, None, None, queue=False, api_visibility="private")
        page.unload(self._stop)

    # Showing the page

    def _note_page(self, selected: gr.SelectData) -> str:
        return str(selected.value)

    def _set_timer(self, inner: str, selected: gr.SelectData) -> Any:
        return gr.Timer(active=_is_shown(inner, selected))

    def _tab_selected(self, chat: str, inner: str, selected: gr.SelectData) -> Iterator[Updates]:
        yield gr.skip()  # gradio clears all outputs of a generator that yields nothing
        if _is_shown(inner, selected):
            yield self._live(chat, None)
            yield self._choices()
            yield self._plan()

    def _live(self, chat: str, map_key: Any) -> Updates:
        """Returns updates of the memory bars, and of the page map if there is a newer answer."""
        updates: Updates = {self.bars: self._bars()}
        report = self._window.answer_worker.last_report(chat)
        key = (report["chat"], report["message"]) if report else ("", None)
        if key != map_key:
            updates |= {self.map: self._map(report, chat), self.map_key: key}
        return updates

    def _map(self, report: dict[str, Any] | None, chat: str) -> str:
        if report is None:
            return render.note("Ask something: what the answer holds in memory is shown here, block by block.")
        title = "The last answer in this chat" if report["chat"] == chat else "The last answer in another chat"
        return page_cells(report, title)

    def _bars(self) -> str:
        use, process, ram = self._window.answer_worker.in_use, measure_process().now, measure_ram()
        on_gpu = use.device.startswith("cuda")
        kv, host_kv = use.kv.get("device", 0), use.kv.get("host", 0)
        weights = [BarPart("weights", "Model", use.weights), BarPart("weights", "Reader", use.adapter)]
        weights = weights if use.adapter else weights[:1]
        ram_weights = 0 if on_gpu else use.weights + use.adapter
        ram_kv = host_kv + (0 if on_gpu else kv)
        parts = [
            *([] if on_gpu else weights),
            BarPart("kv", "Cache in use", ram_kv),
            BarPart("process", "localctx (other)", process - ram_weights - ram_kv),
            BarPart("others", "Other programs", ram.total - ram.free - process),
            BarPart("free", "Free", ram.free),
        ]
        drawn = [bar("RAM", parts, self._kv_note())]
        if on_gpu:
            device = measure_device(use.device)
            rest = device.total - device.free - use.weights - use.adapter - kv
            parts = [*weights, BarPart("kv", "Cache in use", kv)]
            parts += [BarPart("others", "Other", rest), BarPart("free", "Free", device.free)]
            drawn.append(bar(f"Device {use.device}", parts))
        return f'<div class="lc-bars">{"".join(drawn)}{self._disk()}</div>'

    def _kv_note(self) -> str:
        """Returns the note below the RAM bar: the size of the KV that is mapped from the store, and of the KV that is
        spilled to disk.

        If there is neither, the note gives the KV size of the last answer.
        """
        kv, last = self._window.answer_worker.in_use.kv, self._window.answer_worker.last_report()
        places = [(kv.get("kept", 0), "of the cache used from disk"), (kv.get("disk", 0), "spilled to disk")]
        parts = [f"{format_bytes(n)} {what}" for n, what in places if n]
        if last and not parts:
            parts = [f"the last answer took {format_bytes(sum(last['kv']['bytes'].values()))} besides what was kept"]
        return ", ".join(parts)

    def _disk(self) -> str:
        home, disk = self._window.settings.home, measure_disk(self._window.settings.home)
        with self._window.store() as store:
            stored = store.disk_bytes()
        budget = measure_store_budget(home, stored, self._window.settings.caps["disk"])
        more = min(max(0, budget - stored), disk.free)
        parts = [
            BarPart("stored", "Cache", stored),
            BarPart("budget", "Cache space left", more),
            BarPart("free", "Free", disk.free - more),
            BarPart("others", "Other files", disk.total - disk.free - stored),
        ]
        return bar("Disk", parts, f"the cache may take {format_bytes(budget)}")

    # Codec and keeper

    def _choices(self) -> Updates:
        """Returns updates of the lists to choose from: the codecs and keepers, with their measured quality, and the
        documents.
        """
        s, over, engine = self._window.settings, overrides(), engine_of(self._window.settings)
        results = self._results()
        return {
            self.codec: gr.update(
                choices=codec_choices(engine, s.kv, results), value=s.kv, interactive="kv" not in over
            ),
            self.keeper: gr.update(
                choices=keeper_choices(engine, results),
                value=s.keep,
                info=KEEPER_INFO[engine],
                interactive="keep" not in over,
            ),
            self.gate: gr.update(visible=engine == "torch"),  # quality can be measured only with the torch engine
            self.document: gr.update(choices=self._window.document_choices()),
        }

    def _plan(self) -> Updates:
        # imported late, because it imports torch, and the page is shown first
        from localctx.engine.planning.capacity import plan_memory

        results = self._results()
        try:
            report = plan_memory(
                self._window.settings, passed=lambda codec: results.get(codec, {}).get("passed")
            ).to_json()
        except UserError as e:
            return {self.plan: render.note(error_text(e), "error")}
        return {self.plan: table(report)}

    def _results(self) -> dict[str, dict[str, Any]]:
        with self._window.store() as store:
            return store.quality_results.of_model(self._window.settings.model)

    def _save(self, name: str, value: str) -> Iterator[Updates]:
        try:
            self._window.save_settings({name: value})
            message = render.note("Saved; used from the next question on", "done")
        except UserError as e:
            message = render.note(error_text(e), "error")
        yield {self.message: message} | self._choices()
        yield self._plan()

    # Measuring

    def _measure(self, document: str | None, chosen: list[str], tokens: int, request: gr.Request) -> Iterator[Updates]:
        if not document:
            yield {self.progress: render.note("Choose a document to measure on", "error")}
            return
        stream = self._window.submit(tab_id(request, "gate"), self._quality_job(document, chosen, tokens))
        for line in progress_lines(stream):
            yield {self.progress: line}
        yield self._choices()

    def _quality_job(self, document: str, chosen: list[str], tokens: int) -> SessionJob:
        """Returns a job that measures ``chosen`` codecs and keepers on a document's first ``tokens``."""
        from localctx.quality.gate import QualityGate, first_tokens, store_result
        from localctx.quality.variants import make_setup, make_variants

        codecs = [c for c in chosen if c in FORMATS]
        keeps = [k for k in chosen if k.partition(":")[0] in KEEPERS]

        def job(session: "Session") -> Generator[Any, None, None]:
            model, start = session.paged_model, time.monotonic()
            taken = first_tokens(model, session.store.documents.text(document), tokens)
            setup = make_setup(model, session.settings, len(taken))
            gate = QualityGate(setup, taken, [len(taken) - 1], on_progress=session.runtime.on_progress)
            for result in gate.run(make_variants(codecs, keeps)):
                store_result(session.store, model, session.settings.model, result, len(gate.tokens))
                yield Note(f"{result.variant.name}: {'passed' if result.passed else 'not good enough'}")
            yield Note(f"Measured on {len(gate.tokens):,} tokens in {time.monotonic() - start:.0f} s")

        return job

    def _stop(self, request: gr.Request) -> None:
        self._window.stop(tab_id(request, "gate"))


def _is_shown(inner: str, selected: gr.SelectData) -> bool:
    """True if this page is visible after a tab was selected. ``inner`` is the last selected page of the settings."""
    return selected.value == TAB or (selected.value == OUTER_TAB and inner == TAB)
