"""Keeps a history of benchmark runs: a line for each run in a file of the data folder, so that users can compare
runs.
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

FILE = "bench-history.jsonl"
SPEEDS = {"decode": "ms_per_token", "prefill": "tokens_per_second"}
"""The measurements that are drawn over time. Each has the name of the number that is drawn."""


class History(NamedTuple):
    """The content of a history file: its ``runs``, oldest first, each a report with its ``time``, and the number of
    ``damaged`` lines.
    """

    runs: list[dict[str, Any]]
    damaged: int

    def of(self, model: str, cpu: str) -> list[dict[str, Any]]:
        """Returns the runs with ``model`` on a processor named ``cpu``. Only these are comparable."""
        return [run for run in self.runs if (run["versions"]["model"], run["machine"]["cpu"]) == (model, cpu)]


def append_run(home: Path, report: dict[str, Any]) -> None:
    """Append ``report``, with the current time, to the history in ``home``, in one write. Raises OSError."""
    path = home / FILE
    home.mkdir(parents=True, exist_ok=True)
    line = json.dumps({"time": datetime.now().astimezone().isoformat(timespec="seconds"), **report})
    with path.open("a+b") as file:
        if end := file.seek(0, 2):
            file.seek(end - 1)
            line = line if file.read(1) == b"\n" else f"\n{line}"  # the previous line was cut off
        file.write(f"{line}\n".encode())


def read_history(home: Path) -> History:
    """Returns the history in ``home``, which is empty if there is no file. Raises OSError."""
    path = home / FILE
    lines = path.read_bytes().splitlines() if path.exists() else []
    runs = [run for run in map(_parsed, lines) if run]
    return History(sorted(runs, key=_time), len(lines) - len(runs))


def history_rows(runs: Sequence[dict[str, Any]], what: str, heading: str) -> list[dict[str, str]]:
    """Returns the rows of a table: one for each run of each engine, oldest run first. A row has the engine's name under
    ``heading``, and the medians of the measurement ``what`` at each context.
    """
    contexts = sorted({row["context"] for run in runs for row in run[what]})
    lines = dict[tuple[str, int], dict[str, str]]()
    for number, run in enumerate(runs):
        for row in run[what]:
            engine, when = _label(run, row), _time(run).strftime("%Y-%m-%d %H:%M")
            blank = {heading: engine, "WHEN": when, **{f"{n:,}": "" for n in contexts}}
            line = lines.setdefault((engine, number), blank)
            line[f"{row['context']:,}"] = f"{row[SPEEDS[what]]:,.1f}"
    order = {engine: i for i, (engine, _) in reversed([*enumerate(lines)])}
    return [lines[key] for key in sorted(lines, key=lambda key: (order[key[0]], key[1]))]


def draw_history(runs: Sequence[dict[str, Any]], path: Path, title: str) -> None:
    """Write a PNG of medians over time: a row of panels per SPEEDS entry, a panel per context, a line per engine.
    Raises OSError.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    there = [what for what in SPEEDS if any(run[what] for run in runs)]
    contexts = sorted({row["context"] for run in runs for what in there for row in run[what]})
    figure = Figure(figsize=(2 + 3 * len(contexts), 1 + 3 * len(there)), layout="constrained")
    FigureCanvasAgg(figure)  # draws without a window system
    panels = figure.subplots(len(there), len(contexts), squeeze=False)
    for what, line in zip(there, panels, strict=True):
        for context, panel in zip(contexts, line, strict=True):
            _draw(panel, runs, what, context)
        line[0].set_ylabel({"decode": "decode, ms a token", "prefill": "prefill, tokens a second"}[what])
    handles = {label: h for panel in panels.flat for h, label in zip(*panel.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", fontsize=8)
    figure.suptitle(title)
    figure.savefig(path, dpi=120, format="png")


def _draw(panel: Any, runs: Sequence[dict[str, Any]], what: str, context: int) -> None:
    engines = sorted({_label(run, row) for run in runs for speed in SPEEDS for row in run[speed]})
    points = dict[str, list[tuple[datetime, float]]]()
    for run in runs:
        for row in run[what]:
            if row["context"] == context:
                points.setdefault(_label(run, row), []).append((_time(run), row[SPEEDS[what]]))
    for engine, own in sorted(points.items()):
        style = "-" if engine.startswith("localctx") else "--"
        panel.plot(*zip(*own, strict=True), style, marker="o", label=engine, color=f"C{engines.index(engine)}")
    panel.set_title(f"{context:,} tokens", fontsize=9)
    panel.set_ylim(bottom=0)
    panel.tick_params(axis="x", rotation=30, labelsize=7)
    panel.grid(alpha=0.3)


def _label(run: dict[str, Any], row: dict[str, Any]) -> str:
    """Returns an engine's name. For localctx the name includes the run's precision, unless it already names the
    weights.
    """
    name = f"{row['engine']} {row.get('kv', '')}".rstrip()
    own = name.startswith("localctx") and "weights-" not in name
    return f"{name}, {run['machine']['precision']}" if own else name


def _time(run: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(run["time"]).astimezone()


def _parsed(line: bytes) -> dict[str, Any] | None:
    """Returns the run in a line, or None if a value that tables and pictures need is missing or damaged."""
    with suppress(ValueError, KeyError, TypeError, AttributeError):
        run = json.loads(line)
        _time(run)
        texts = [run["versions"]["model"], run["machine"]["cpu"], run["machine"]["precision"]]
        texts += [row["engine"] for what in SPEEDS for row in run[what]]
        numbers = [row[number] for what, number in SPEEDS.items() for row in run[what]]
        contexts = [row["context"] for what in SPEEDS for row in run[what]]
        good = all(isinstance(text, str) for text in texts) and all(isinstance(n, int | float) for n in numbers)
        return run if good and all(isinstance(n, int) for n in contexts) else None
    return None
