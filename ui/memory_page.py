"""The memory page: what is held now, where a conversation's pages are, what would fit, how good each codec is."""

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
from localctx.ui.bars import BarPart, bar, page_cells
from localctx.ui.job_events import pictures
from localctx.ui.memory_plot import plot, table
from localctx.ui.window import AppWindow, tab_of

if TYPE_CHECKING:
    from localctx.session import Session

TAB = "Memory"
EVERY = 2  # seconds between two looks at memory
KEEPER_WORDS = {
    "full": "everything is seen",
    "select:1/4": "each query sees the quarter of the pages that promises most; nothing is dropped",
    "sink-window:2048": "the beginning and the last 2,048 tokens; the rest is dropped",
    "h2o:2048": "2,048 tokens: those looked at most so far, and the last",
    "snapkv:2048": "once the question is read, the 2,048 tokens that each head looked at",
}
MEASURED = ["int8", "k8v4", "int4"]  # what is measured unless told

Updates = dict[Any, Any]


class MemoryPage:
    """The page, built inside a gr.Blocks."""

    def __init__(self, window: AppWindow) -> None:
        self._window = window

    def build(self) -> None:
        """Bars, the page map, what to choose, the plan."""
        self.timer = gr.Timer(EVERY, active=False)
        self.shown = gr.State(None)  # the report whose map is drawn
        self.bars = gr.HTML("", elem_id="bars")
        gr.Markdown("### The pages of this conversation")
        self.map = gr.HTML("", elem_id="page-map")
        gr.Markdown("### How it is remembered")
        self.said = gr.HTML("", elem_id="memory-said")
        with gr.Row(equal_height=False):
            with gr.Column(min_width=320):
                self.codec = gr.Radio([], label="Codec: how keys and values are stored", elem_id="codec")
            with gr.Column(min_width=320):
                self.keeper = gr.Dropdown(
                    [],
                    label="Keeper: what is seen",
                    info="one of these, or another budget, as select:1/8 or h2o:4096",
                    allow_custom_value=True,
                    elem_id="keeper",
                )
                self._build_gate()
        gr.Markdown("### What fits")
        self.plan = gr.HTML("", elem_id="what-fits")

    def _build_gate(self) -> None:
        with gr.Accordion("Measure on a document of yours", open=False, elem_id="gate"):
            self.document = gr.Dropdown([], label="Document", elem_id="gate-document")
            self.variants = gr.Dropdown(
                [*FORMATS, *(k for k in KEEPER_WORDS if k != "full")],
                value=MEASURED,
                multiselect=True,
                label="Codecs and keepers",
                elem_id="gate-variants",
            )
            self.tokens = gr.Number(2048, label="Tokens of it", precision=0, minimum=256, elem_id="gate-tokens")
            with gr.Row():
                self.measure = gr.Button("Measure", variant="primary", elem_id="gate-start")
                self.stop = gr.Button("Stop", elem_id="gate-stop")
            self.progress = gr.HTML("", elem_id="gate-progress")

    def wire(self, page: gr.Blocks, tabs: gr.Tabs, chat: gr.Textbox) -> None:
        """Connect what was built with what it does; ``chat`` says which conversation is open."""
        quick: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
        live = [self.bars, self.map, self.shown]
        choices = [self.codec, self.keeper, self.document, self.plan]
        tabs.select(self._turned, None, [self.timer], **quick)
        tabs.select(self._entered, [chat], [*live, *choices], **quick)
        self.timer.tick(self._live, [chat, self.shown], live, **quick)
        changed = [self.said, *choices]
        self.codec.input(partial(self._choose, "kv"), [self.codec], changed, **quick)
        self.keeper.input(partial(self._choose, "keep"), [self.keeper], changed, **quick)
        self.measure.click(
            self._measure,
            [self.document, self.variants, self.tokens],
            [self.progress, *choices],
            concurrency_limit=None,
            **quick,
        )
        self.stop.click(self._stop, None, None, queue=False, api_visibility="private")
        page.unload(self._stop)

    # What is looked at

    def _turned(self, at: gr.SelectData) -> Any:
        return gr.Timer(active=at.value == TAB)

    def _entered(self, chat: str, at: gr.SelectData) -> Iterator[Updates]:
        yield gr.skip()  # what yields nothing empties all that it might have changed
        if at.value == TAB:
            yield self._live(chat, None)
            yield self._choices()
            yield self._plan()

    def _live(self, chat: str, shown: Any) -> Updates:
        """The bars, and the map where there is a newer one."""
        updates: Updates = {self.bars: self._bars()}
        report = self._window.desk.report(chat)
        mark = (report["chat"], report["message"]) if report else ("", None)
        if mark != shown:
            updates |= {self.map: self._map(report, chat), self.shown: mark}
        return updates

    def _map(self, report: dict[str, Any] | None, chat: str) -> str:
        if report is None:
            return render.note("Ask something: the pages of the answer's memory are drawn here.")
        whose = "The last answer here" if report["chat"] == chat else "The last answer of another chat"
        return page_cells(report, whose)

    def _bars(self) -> str:
        use, process, ram = self._window.desk.in_use, measure_process().now, measure_ram()
        on_gpu = use.device.startswith("cuda")
        kv, beside = use.kv.get("device", 0), use.kv.get("host", 0)
        model = 0 if on_gpu else use.weights
        ours = beside + (0 if on_gpu else kv)
        parts = [
            BarPart("weights", "weights", model),
            BarPart("kv", "KV in use", ours),
            BarPart("process", "localctx besides", process - model - ours),
            BarPart("others", "other processes", ram.total - ram.free - process),
            BarPart("free", "free", ram.free),
        ]
        drawn = [bar("RAM", parts, self._note())]
        if on_gpu:
            device = measure_device(use.device)
            rest = device.total - device.free - use.weights - kv
            parts = [BarPart("weights", "weights", use.weights), BarPart("kv", "KV in use", kv)]
            parts += [BarPart("others", "all else", rest), BarPart("free", "free", device.free)]
            drawn.append(bar(f"Device {use.device}", parts))
        return f'<div class="lc-bars">{"".join(drawn)}{self._disk()}</div>'

    def _note(self) -> str:
        """What the bar of RAM does not show of the conversation."""
        kv, last = self._window.desk.in_use.kv, self._window.desk.report()
        lies = [(kv.get("kept", 0), "of KV read where it lies in kept pages"), (kv.get("disk", 0), "spilled to disk")]
        said = [f"{format_bytes(n)} {what}" for n, what in lies if n]
        if last and not said:
            said = [f"the last answer took {format_bytes(sum(last['kv']['bytes'].values()))} of KV beside kept pages"]
        return ", ".join(said)

    def _disk(self) -> str:
        home, disk = self._window.settings.home, measure_disk(self._window.settings.home)
        with self._window.store() as store:
            kept = store.pages.nbytes()
        budget = measure_store_budget(home, kept, self._window.settings.caps["disk"])
        more = min(max(0, budget - kept), disk.free)
        parts = [
            BarPart("stored", "kept pages", kept),
            BarPart("budget", "still for kept pages", more),
            BarPart("free", "free besides", disk.free - more),
            BarPart("others", "other files", disk.total - disk.free - kept),
        ]
        return bar("Disk", parts, f"kept pages may take {format_bytes(budget)}")

    # What is chosen

    def _choices(self) -> Updates:
        """Codecs and keepers with what was measured of them, and the documents there are."""
        s, over, verdicts = self._window.settings, overrides(), self._verdicts()
        codecs = [("auto: the smallest that passed, int8 until measured", "auto")]
        codecs += [(f"{c}: {_quality(verdicts.get(c))}", c) for c in FORMATS]
        keepers = [(f"{k}: {words}{_beside(verdicts, k)}", k) for k, words in KEEPER_WORDS.items()]
        return {
            self.codec: gr.update(choices=codecs, value=s.kv, interactive="kv" not in over),
            self.keeper: gr.update(choices=keepers, value=s.keep, interactive="keep" not in over),
            self.document: gr.update(choices=self._window.documents()),
        }

    def _plan(self) -> Updates:
        from localctx.engine.capacity import capacity  # torch: seconds, and the page comes first

        verdicts = self._verdicts()
        try:
            report = capacity(
                self._window.settings, passed=lambda codec: verdicts.get(codec, {}).get("passed")
            ).to_json()
        except UserError as e:
            return {self.plan: render.note(str(e), "error")}
        return {self.plan: plot(report) + table(report)}

    def _verdicts(self) -> dict[str, dict[str, Any]]:
        with self._window.store() as store:
            return store.verdicts.of_model(self._window.settings.model)

    def _choose(self, name: str, value: str) -> Iterator[Updates]:
        try:
            self._window.choose({name: value})
            said = render.note("kept; it counts from the next question on", "done")
        except UserError as e:
            said = render.note(str(e), "error")
        yield {self.said: said} | self._choices()
        yield self._plan()

    # What is measured

    def _measure(self, document: str | None, chosen: list[str], tokens: int, request: gr.Request) -> Iterator[Updates]:
        if not document:
            yield {self.progress: render.note("choose a document to measure on", "error")}
            return
        turn = self._window.ask(tab_of(request, "gate"), self._gate(document, chosen, tokens))
        for line in pictures(turn):
            yield {self.progress: line}
        yield self._choices()

    def _gate(self, document: str, chosen: list[str], tokens: int) -> SessionJob:
        """The work of measuring what is ``chosen`` on a document's first ``tokens``; each result is kept at once."""
        from localctx.quality.gate import QualityGate, first_tokens, store_result
        from localctx.quality.variants import make_setup, make_variants

        codecs = [c for c in chosen if c in FORMATS]
        keeps = [k for k in chosen if k.partition(":")[0] in KEEPERS]

        def job(session: "Session") -> Generator[Any, None, None]:
            model, start = session.model, time.monotonic()
            taken = first_tokens(model, session.store.documents.text(document), tokens)
            on = make_setup(model, session.settings, len(taken))
            gate = QualityGate(on, taken, [len(taken) - 1], on_progress=session.runtime.on_progress)
            for result in gate.run(make_variants(codecs, keeps)):
                store_result(session.store, model, session.settings.model, result, len(gate.tokens))
                yield Note(f"{result.variant.name}: {'passed' if result.passed else 'not good enough'}")
            yield Note(f"measured on {len(gate.tokens):,} tokens in {time.monotonic() - start:.0f} s")

        return job

    def _stop(self, request: gr.Request) -> None:
        self._window.stop(tab_of(request, "gate"))


def _quality(measured: dict[str, Any] | None) -> str:
    """What was measured, in a line."""
    if not measured:
        return "not measured on this machine"
    marks = [mark for found in measured["needles"].values() for mark in found.values()]
    verdict = "passed" if measured["passed"] else "not good enough"
    return (
        f"{verdict} (KL {measured['kl_mean']:.2g}, top-1 {measured['top1']:.1%}, needles {sum(marks)} of {len(marks)}, "
        f"{measured['tokens']:,} tokens)"
    )


def _beside(verdicts: dict[str, dict[str, Any]], keep: str) -> str:
    """What was measured of a keeper, in whichever codec it was last."""
    found = [(m["measured"], name, m) for name, m in verdicts.items() if name.endswith(f" {keep}")]
    if keep == "full":
        return ""
    if not found:
        return "; not measured on this machine"
    _, name, measured = max(found, key=lambda each: each[0])
    return f"; in {name.split()[0]} {_quality(measured)}"
