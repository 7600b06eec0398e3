"""``bench``: measures speed and memory, and compares with llama.cpp and transformers."""

import threading
import time
from collections.abc import Callable, Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from localctx.cli.bench_history import show_history
from localctx.cli.common import (
    MACHINE_FLAGS,
    as_json_option,
    machine_options,
    measuring_text,
    quiet_option,
    settings_from,
)
from localctx.cli.printing import print_line, print_text
from localctx.cli.sections import SectionedCommand, option
from localctx.errors import Cancelled, DocumentError, format_bytes

if TYPE_CHECKING:
    from localctx.bench.measure import Bench
    from localctx.cli.bench_options import BenchOptions
    from localctx.cli.terminal import Terminal
    from localctx.models.base import Model
    from localctx.settings import Settings

_LINE_INTERVAL = 10  # seconds between progress lines if stderr is not a terminal
_GRACE = 0.5  # seconds for the thread to end after Ctrl-C


@click.command(cls=SectionedCommand)
@click.argument("file", required=False)
@click.option("--what", metavar="WORDS", help="Some of decode,prefill,reopen,spill,memory,parallel (all).")
@click.option("--context", metavar="N,N", help="Tokens of context (512,2048,4096,8192).")
@click.option(
    "--engines",
    metavar="WORDS",
    help="Some of localctx,llama.cpp,transformers (those installed), or one variant: llama.cpp:published, "
    "localctx:weights-int8.",
)
@click.option("--kv", "codecs", metavar="CODECS", help="Measure localctx with these codecs (int8; over llama.cpp f16).")
@click.option("--keep", "keeps", metavar="KEEPERS", help="Measured beside full attention (select:2048); full: nothing.")
@option("--repeat", type=click.IntRange(1, 1000), default=5, metavar="N", help="Rounds (5).")
@click.option(
    "--gguf",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="PATH",
    help="The model file for llama.cpp.",
)
@click.option("--forget", is_flag=True, help="Only delete saved states of peers, and the GGUF made for llama.cpp.")
@click.option("--history", is_flag=True, help="Measure nothing: show the runs so far with this model, over time.")
@click.option(
    "--plot", type=click.Path(dir_okay=False, path_type=Path), metavar="PATH", help="Write a plot of decoding here."
)
@machine_options
@as_json_option
@quiet_option
def bench(
    file: str | None, forget: bool, history: bool, plot: Path | None, as_json: bool, quiet: bool, **how: Any
) -> None:
    """Measure speed and memory on the text of FILE (none: localctx's own pages), beside peers that are installed.

    All engines have the same weights and the same text. They read it once, up to the longest context; at each context
    they decode in turns, round after round, so that a slow minute of the machine slows all of them. The report has
    medians, and how far rounds differ: (max - min) / median. Only localctx has reopen and spill. --engine llama.cpp
    with a GGUF measures localctx over llama.cpp, beside llama.cpp alone with the same file.

    llama.cpp (pip install llama-cpp-python) needs a GGUF of the model; for a plain Llama or Qwen it is made once. Its
    state after a prefill of more than 30 s is stored in the data folder for later runs, 8 GiB at most; --forget deletes
    it. Ctrl-C (or kill) ends the command and prints what was measured. Each run is added to bench-history.jsonl in the
    data folder.

    Variants: llama.cpp:published (the GGUF that the model was published as), llama.cpp:weights-q8_0, -q4_1, -q4_k_m
    (made by llama.cpp's quantizer), llama.cpp:f16, :flash-f16, :flash-q8_0 (KV), localctx:weights-int8,
    localctx:sparse (--reading sparse), localctx:weights-int8-sparse, transformers:DynamicCache,
    transformers:QuantizedCache.

    \b
    localctx bench --what decode,prefill --context 4096,16384
    localctx bench novel.txt --kv int8,k8v4 --plot speed.png
    localctx bench --what decode --engines localctx,llama.cpp:flash-f16
    localctx bench --engines localctx,localctx:weights-int8,llama.cpp:published
    localctx bench --engine llama.cpp --model model-q4_k_m.gguf
    localctx bench --history
    """
    from localctx.cli.bench_options import bench_options

    settings = settings_from({name: how[name] for name in MACHINE_FLAGS})
    options = bench_options(settings, how)
    if forget:
        _forget(settings_from({}))
        return
    from localctx.cli.terminal import Terminal, interrupt_on_termination

    terminal = Terminal(as_json, quiet)
    if history:
        show_history(settings, terminal, plot, as_json)
        return
    text = measuring_text(file)
    worker = _BenchThread(lambda worker: _open(worker, options, settings, text, terminal))
    with interrupt_on_termination():
        with terminal.cleared():
            stopped = worker.wait()
        if done := worker.bench:
            from localctx.bench.report import report

            result = report(done, stopped)
            _print(done, result, as_json)
            _record(settings, result, terminal)
            _plot(done, terminal, plot)
    if stopped:
        raise Cancelled


def _forget(settings: "Settings") -> None:
    from localctx.bench.peer_state import SavedPeerStates

    print_line(f"deleted {format_bytes(SavedPeerStates(settings.home / 'bench').delete_all())}")


class _BenchThread:
    """Measures in its own thread, so that the main thread gets Ctrl-C while a library computes for seconds."""

    def __init__(self, open_bench: "Callable[[_BenchThread], Bench]") -> None:
        self.stop = threading.Event()
        self.bench: Bench | None = None
        self._open, self._error = open_bench, list[BaseException]()
        self._ended = threading.Event()  # join() cannot be repeated after an interrupt

    def wait(self) -> bool:
        """Wait for the measurement to end. Returns True if Ctrl-C or ``kill`` stopped it. Raises the thread's error."""
        try:
            threading.Thread(target=self._run, daemon=True).start()
            self._ended.wait()
        except KeyboardInterrupt:
            self.stop.set()
            self._ended.wait(_GRACE)
            return True
        for error in self._error:
            raise error
        return False

    def _run(self) -> None:
        try:
            from localctx.bench.run_bench import run

            self.bench = self._open(self)
            run(self.bench)
        except BaseException as e:
            self._error.append(e)
        finally:
            self._ended.set()


def _open(
    worker: _BenchThread, options: "BenchOptions", settings: "Settings", text: str, terminal: "Terminal"
) -> "Bench":
    """Load the model and set up the engines. Raises UserError."""
    import torch

    from localctx.bench.engines import Engines
    from localctx.bench.measure import Bench, extra_tokens
    from localctx.bench.peer_state import SavedPeerStates
    from localctx.engine.model_loader import ModelLoader

    model, _ = ModelLoader().load(settings, terminal.show)
    tokens = _tokens(model, text, max(options.contexts) + extra_tokens(options.repeat))
    if past := _past(options.contexts, model):
        terminal.say(past)
    threads = settings.threads or torch.get_num_threads()
    chosen = options.engines, options.codecs, options.keeps, options.gguf
    engines = Engines(model, settings, *chosen, threads, terminal.say, worker.stop.is_set, terminal.show)
    saved = SavedPeerStates(settings.home / "bench", terminal.say)
    return Bench(engines, tokens, options.what, options.contexts, options.repeat, _progress(terminal), saved=saved)


def _past(contexts: Sequence[int], model: "Model") -> str:
    """Returns a note about contexts longer than the model's window, or ""."""
    if not (past := sorted(n for n in contexts if n > model.trained)):
        return ""
    lengths = " and ".join(f"{n:,}" for n in past)
    trained = f"{model.trained:,} that {model.name} was trained on"
    return f"{lengths} tokens are past the {trained}: times are valid, answers would not be"


def _tokens(model: "Model", text: str, count: int) -> list[int]:
    """Returns ``count`` tokens of the text, repeated if it is too short."""
    encoded = model.tokenizer.encode(text[: 32 * count])
    if not encoded:
        raise DocumentError("there is no text to measure on", "name a text file")
    return list(islice(cycle(encoded), count))


def _progress(terminal: "Terminal") -> Callable[[str, float | None], None]:
    """Returns a callback that shows the current measurement: at once on a terminal, else every _LINE_INTERVAL."""
    from localctx.engine.events import Progress

    printed = -_LINE_INTERVAL * 1.0

    def show(text: str, left: float | None) -> None:
        nonlocal printed
        text += "" if left is None else f", about {_time(left)} left"
        if terminal.interactive:
            terminal.show(Progress(text, 0, 0))
        elif time.monotonic() - printed >= _LINE_INTERVAL:
            printed = time.monotonic()
            terminal.say(text)

    return show


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def _record(settings: "Settings", result: dict[str, Any], terminal: "Terminal") -> None:
    """Add the run to the history, unless nothing was measured."""
    from localctx.bench import MEASUREMENTS
    from localctx.bench.history import FILE, append_run

    if not any(result[what] for what in MEASUREMENTS):
        return
    try:
        append_run(settings.home, result)
    except OSError as e:
        terminal.say(f"this run is not in the history ({settings.home / FILE}: {e.strerror or e})")


def _print(bench: "Bench", result: dict[str, Any], as_json: bool) -> None:
    from localctx.cli.terminal import print_json

    if as_json:
        print_json(result)
        return
    machine, versions = result["machine"], ", ".join(f"{name} {v}" for name, v in result["versions"].items())
    noise = (
        ""
        if machine["noise"] is None
        else f"; the same matrix product differs by {machine['noise']:.0%} between rounds"
    )
    hardware = f"{machine['cpu']}, {machine['cores']} cores, {format_bytes(machine['memory'])}"
    how = f"{machine['threads']} threads, {machine['precision']}, vectors of {machine['vectors']}"
    print_line(f"{hardware}; {how}{noise}")
    print_line(versions)
    for table in _tables(result):
        print_text(f"\n{table}")
    print_text("\n".join(["", *_notes(bench, result)]))


def _notes(bench: "Bench", result: dict[str, Any]) -> list[str]:
    """Returns notes about the tables."""
    earlier = any("day" in row for row in result["prefill"])
    notes = {
        "medians; in brackets how far the rounds differ: (max - min) / median": result["decode"] or result["prefill"],
        "with a day: prefilled in an earlier run, whose state was stored": earlier,
        "parallel: tokens a second of 8 sequences side by side, and of one alone": result["parallel"],
        "disk: 7/8 of the pages are on disk, not in the system's page cache; cached: in that cache": result["spill"],
        _past(bench.contexts, bench.engines.model): True,
    }
    return [note for note, applies in notes.items() if note and applies]


def _tables(result: dict[str, Any]) -> list[str]:
    from localctx.bench.report import speed_rows
    from localctx.cli.terminal import table

    tables = [
        table(speed_rows(result["decode"], "DECODE, ms/token", "ms_per_token")),
        table(speed_rows(result["prefill"], "PREFILL, tokens/s", "tokens_per_second")),
    ]
    for what in ("reopen", "spill", "memory", "parallel"):
        rows = [
            {what.upper(): row["engine"], **{k: v for k, v in row.items() if k != "engine"}} for row in result[what]
        ]
        tables.append(table(rows))
    return [text for text in tables if text]


def _plot(bench: "Bench", terminal: "Terminal", path: Path | None) -> None:
    from localctx.bench.report import draw_speed

    rows = bench.samples.rows("decode")
    if path and rows:
        draw_speed(rows, path, f"decode: {Path(bench.engines.model.name).name}")
        terminal.say(f"plot written to {path}")
