"""``bench --history``: shows the runs on this machine over time, as a table and a picture."""

from pathlib import Path
from typing import TYPE_CHECKING

from localctx.cli.printing import print_text
from localctx.errors import UsageError

if TYPE_CHECKING:
    from localctx.cli.terminal import Terminal
    from localctx.settings import Settings


def show_history(settings: "Settings", terminal: "Terminal", path: Path | None, as_json: bool) -> None:
    """Print the runs with the settings' model on this processor, and draw them into the file ``path``.

    If ``path`` is None, the picture is a file in the data folder. Raises UsageError if there are no runs, and OSError.
    """
    from localctx.bench.history import draw_history, history_rows, read_history
    from localctx.bench.report import cpu_name
    from localctx.cli.terminal import print_json, table

    history, path = read_history(settings.home), path or settings.home / "bench-history.png"
    if history.damaged:
        terminal.say(f"{history.damaged} lines of the history are damaged and left out")
    runs = history.of(settings.model, cpu_name())
    speeds = [run for run in runs if run["decode"] or run["prefill"]]
    if not speeds:
        raise UsageError(f"no run with {settings.model} on this processor is recorded", "run: localctx bench")
    draw_history(speeds, path, f"{Path(settings.model).name} on {cpu_name()}")
    if as_json:
        print_json({"picture": str(path), "runs": runs})
        return
    tables = (("decode", "DECODE, ms/token"), ("prefill", "PREFILL, tokens/s"))
    found = [table(history_rows(runs, what, heading)) for what, heading in tables]
    print_text("\n\n".join(filter(None, found)))
    others = len(history.runs) - len(runs)
    terminal.say(f"plot written to {path}" + (f"; {others} runs of other models or processors" if others else ""))
