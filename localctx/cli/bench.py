"""``bench``: how fast is it here, beside llama.cpp and transformers?"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from localctx.cli.common import (
    MACHINE,
    as_json_option,
    machine_options,
    numbers,
    quiet_option,
    settings_of,
    text_of,
    words,
)
from localctx.errors import Cancelled, DocumentError, UsageError, format_bytes

if TYPE_CHECKING:
    from localctx.bench.measure import Bench
    from localctx.cli.terminal import Terminal
    from localctx.models.base import Model
    from localctx.settings import Settings

_BEAT = 10  # seconds between lines where nobody watches
_GRACE = 0.5  # seconds the work has to end by itself


@click.command()
@click.argument("file", required=False)
@click.option("--what", metavar="WORDS", help="Some of decode,prefill,reopen,spill,memory (all).")
@click.option("--context", metavar="N,N", help="Tokens of context (512,2048,4096,8192).")
@click.option(
    "--engines",
    metavar="WORDS",
    help="Some of localctx,llama.cpp,transformers (those installed), or one way of a peer: llama.cpp:f16.",
)
@click.option("--kv", "codecs", default="int8", metavar="CODECS", help="Ours with each of these codecs (int8).")
@click.option(
    "--keep", "keeps", default="select:2048", metavar="KEEPERS", help="And with these (select:2048); or none."
)
@click.option("--repeat", type=click.IntRange(1, 1000), default=5, metavar="N", help="Rounds (5).")
@click.option(
    "--gguf", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="PATH", help="llama.cpp's file."
)
@click.option("--forget", is_flag=True, help="Only delete what earlier runs kept: peers' readings, and the GGUF made.")
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), metavar="PATH", help="A picture of decoding.")
@as_json_option
@quiet_option
@machine_options
def bench(file: str | None, forget: bool, plot: Path | None, as_json: bool, quiet: bool, **how: Any) -> None:
    """Measure speed and memory on the text of FILE (none: localctx's own pages), beside peers that are installed.

    All engines have the same weights and the same text. They read it once, as far as the longest context; at each they
    stop and decode in turns, round after round: a slow minute of the machine is everybody's. Medians are told, and how
    far rounds differ: (max - min) / median. reopen and spill are ours alone.

    llama.cpp (pip install llama-cpp-python) wants a GGUF of the model; of a plain Llama it is made once. What it reads
    for more than 30 s is kept in the data folder for later runs, 8 GiB at most; --forget deletes that. Ctrl-C ends it
    and prints what was measured.

    \b
    localctx bench --what decode,prefill --context 4096,16384
    localctx bench novel.txt --kv int8,k8v4 --plot speed.png
    localctx bench --what decode --engines localctx,llama.cpp:flash-f16
    """
    asked = _asked(how)
    if forget:
        _forget(settings_of({}))
        return
    text, settings = text_of(file), settings_of({name: how[name] for name in MACHINE})
    from localctx.cli.terminal import Terminal

    terminal = Terminal(as_json, quiet)
    worker = _Worker(lambda worker: _open(worker, asked, settings, text, terminal))
    with terminal.cleared():
        stopped = worker.wait()
    if done := worker.bench:
        _print(done, as_json, stopped)
        _plot(done, terminal, plot)
    if stopped:
        raise Cancelled


def _forget(settings: "Settings") -> None:
    from localctx.bench.peer_state import SavedPeerStates

    print(f"deleted {format_bytes(SavedPeerStates(settings.home / 'bench').delete_all())}")


class _Worker:
    """Measures in a thread of its own: while a library computes for seconds, only the main one hears Ctrl-C."""

    def __init__(self, open_bench: "Callable[[_Worker], Bench]") -> None:
        self.stop = threading.Event()
        self.bench: Bench | None = None
        self._open, self._error = open_bench, list[BaseException]()
        self._ended = threading.Event()  # joining a thread is over once it was interrupted

    def wait(self) -> bool:
        """Work to the end, or to Ctrl-C: whether it was that. Raises what the work raised."""
        try:
            threading.Thread(target=self._work, daemon=True).start()
            self._ended.wait()
        except KeyboardInterrupt:
            self.stop.set()
            self._ended.wait(_GRACE)
            return True
        for error in self._error:
            raise error
        return False

    def _work(self) -> None:
        try:
            from localctx.bench.run_bench import run

            self.bench = self._open(self)
            run(self.bench)
        except BaseException as e:
            self._error.append(e)
        finally:
            self._ended.set()


@dataclass(frozen=True)
class _Asked:
    """What is to be measured, as the flags say it."""

    what: list[str]
    contexts: list[int]
    engines: list[str]
    codecs: list[str]
    keeps: list[str]
    repeat: int
    gguf: Path | None


def _asked(how: dict[str, Any]) -> _Asked:
    """The flags, checked before anything heavy is imported. Raises UsageError."""
    from localctx.bench import CONTEXTS, ENGINES, MEASUREMENTS, PEER_VARIANTS
    from localctx.kv.keepers import make_keeper
    from localctx.shape import FORMATS

    keeps = [] if how["keeps"] == "none" else how["keeps"].split(",")
    for keep in keeps:
        if make_keeper(keep, 0).name != "select":
            raise UsageError(f"--keep {keep} is not measured", "use select with a budget, as select:2048, or none")
    return _Asked(
        words("--what", how["what"] or ",".join(MEASUREMENTS), MEASUREMENTS),
        numbers("--context", how["context"]) or list(CONTEXTS),
        words("--engines", how["engines"] or ",".join(ENGINES), (*ENGINES, *PEER_VARIANTS)),
        words("--kv", how["codecs"], list(FORMATS)),
        keeps,
        how["repeat"],
        how["gguf"],
    )


def _open(worker: _Worker, asked: _Asked, settings: "Settings", text: str, terminal: "Terminal") -> "Bench":
    """Load the model, and make ready what measures. Raises UserError."""
    import torch

    from localctx.bench.engines import Engines
    from localctx.bench.measure import Bench, extra_tokens
    from localctx.bench.peer_state import SavedPeerStates
    from localctx.engine.model_loader import ModelLoader
    from localctx.models.local_model import LocalModel

    model, _ = ModelLoader().load(settings, terminal.show)
    assert isinstance(model, LocalModel)
    tokens = _tokens(model, text, max(asked.contexts) + extra_tokens(asked.repeat))
    if past := _past(asked.contexts, model):
        terminal.say(past)
    threads = settings.threads or torch.get_num_threads()
    chosen = asked.engines, asked.codecs, asked.keeps, asked.gguf
    engines = Engines(model, settings, *chosen, threads, terminal.say, worker.stop.is_set)
    saved = SavedPeerStates(settings.home / "bench", terminal.say)
    return Bench(engines, tokens, asked.what, asked.contexts, asked.repeat, _progress(terminal), saved=saved)


def _past(contexts: Sequence[int], model: "Model") -> str:
    """What is to be said of contexts that are longer than the model's window; empty where none is."""
    if not (past := sorted(n for n in contexts if n > model.trained)):
        return ""
    told = " and ".join(f"{n:,}" for n in past)
    trained = f"{model.trained:,} that {model.name} was trained on"
    return f"{told} tokens are past the {trained}: times are true, answers would not be"


def _tokens(model: "Model", text: str, wanted: int) -> list[int]:
    """``wanted`` tokens of the text, which begins anew where it ends."""
    found = model.tokenizer.encode(text[: 32 * wanted])
    if not found:
        raise DocumentError("there is no text to measure on", "name a text file")
    return list(islice(cycle(found), wanted))


def _progress(terminal: "Terminal") -> Callable[[str, float | None], None]:
    """Tells what is measured: at a terminal at once, elsewhere now and then."""
    from localctx.engine.events import Progress

    told = -_BEAT * 1.0

    def hear(text: str, left: float | None) -> None:
        nonlocal told
        text += "" if left is None else f", about {_time(left)} left"
        if terminal.watched:
            terminal.show(Progress(text, 0, 0))
        elif time.monotonic() - told >= _BEAT:
            told = time.monotonic()
            terminal.say(text)

    return hear


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def _print(bench: "Bench", as_json: bool, stopped: bool) -> None:
    from localctx.bench.report import report
    from localctx.cli.terminal import print_json

    said = report(bench, stopped)
    if as_json:
        print_json(said)
        return
    of, versions = said["machine"], ", ".join(f"{name} {v}" for name, v in said["versions"].items())
    noise = "" if of["noise"] is None else f"; the same matrix product differs by {of['noise']:.0%} between rounds"
    print(f"{of['cpu']}, {of['cores']} cores, {format_bytes(of['memory'])}; ", end="")
    print(f"{of['threads']} threads, {of['precision']}{noise}")
    print(versions)
    for table in _tables(said):
        print(f"\n{table}")
    print("", *_notes(bench, said), sep="\n")


def _notes(bench: "Bench", said: dict[str, Any]) -> list[str]:
    """What is to be known of the tables."""
    earlier = any("day" in row for row in said["prefill"])
    notes = {
        "medians; in brackets how far the rounds differ: (max - min) / median": said["decode"] or said["prefill"],
        "with a day: read in an earlier run, and kept since": earlier,
        "disk: 7/8 of the pages are there, none in the system's page cache; cached: in that": said["spill"],
        _past(bench.contexts, bench.engines.model): True,
    }
    return [note for note, applies in notes.items() if note and applies]


def _tables(said: dict[str, Any]) -> list[str]:
    from localctx.bench.report import speed_rows
    from localctx.cli.terminal import table

    tables = [
        table(speed_rows(said["decode"], "DECODE, ms/token", "ms_per_token")),
        table(speed_rows(said["prefill"], "PREFILL, tokens/s", "tokens_per_second")),
    ]
    for what in ("reopen", "spill", "memory"):
        rows = [{what.upper(): row["engine"], **{k: v for k, v in row.items() if k != "engine"}} for row in said[what]]
        tables.append(table(rows))
    return [text for text in tables if text]


def _plot(bench: "Bench", terminal: "Terminal", path: Path | None) -> None:
    from localctx.bench.report import draw_speed

    rows = bench.samples.rows("decode")
    if path and rows:
        draw_speed(rows, path, f"decode: {Path(bench.engines.model.name).name}")
        terminal.say(f"drawn in {path}")
