"""The report of a run: the machine, medians as JSON, tables and a picture."""

import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from localctx.bench import MEASUREMENTS
from localctx.bench.measure import Bench
from localctx.budget import measure_ram
from localctx.kernels.llvm.processor import INSTRUCTIONS, WIDEST
from localctx.models.quantized.weight_formats import precision_name
from localctx.system import processors
from localctx.version import __version__

LIBRARIES = ("torch", "transformers", "numba", "numpy", "llama-cpp-python", "hqq", "optimum-quanto")


def report(bench: Bench, stopped: bool = False) -> dict[str, Any]:
    """Returns the report that ``localctx bench --json`` prints.

    ``process_peak`` is the memory of the whole process with all engines, sized for the longest context. ``day`` is the
    date of the earlier run in which the prefill of a saved state was timed.
    """
    rows = {what: bench.samples.rows(what) for what in MEASUREMENTS}
    for row in rows["prefill"]:
        del row["kv"]  # part of the engine's name
    for row in rows["memory"]:
        del row["spread"]
    content = {"machine": machine(bench), "versions": versions(bench.engines.model.name), **rows}
    return {**content, "stopped": True} if stopped else content


def machine(bench: Bench) -> dict[str, Any]:
    """Returns a description of the machine. ``noise`` is the spread of the seconds that the same matrix product takes.
    ``window`` is the context length that the model was trained for.
    """
    model = bench.engines.model
    return {
        "cpu": cpu_name(),
        "cores": processors(),
        "memory": measure_ram().total,
        "system": f"{platform.system()} {platform.release()}",
        "device": torch.cuda.get_device_name(model.device) if model.device.type == "cuda" else "cpu",
        "precision": _precision(bench),
        "vectors": f"{WIDEST} float32 at once ({INSTRUCTIONS})",
        "threads": bench.engines.threads,
        "noise": bench.noise.spread,
        "window": model.trained,
    }


def versions(model: str) -> dict[str, str]:
    """Returns the model's name and the versions of localctx, Python and the installed libraries."""
    found = {"model": model, "localctx": __version__, "python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def speed_rows(rows: Sequence[dict[str, Any]], heading: str, number: str) -> list[dict[str, str]]:
    """Returns the rows of a table, one for each engine. A row has the engine's name under ``heading``, and the median
    and spread of ``number`` at each context.
    """
    contexts = [f"{n:,}" for n in sorted({row["context"] for row in rows})]
    lines = dict[str, dict[str, str]]()
    for row in (row for row in rows if number in row):
        engine = f"{row['engine']} {row.get('kv', '')}".rstrip()
        line = lines.setdefault(engine, {heading: engine, **dict.fromkeys(contexts, "")})
        line[f"{row['context']:,}"] = _cell(row, number) + (f" of {row['day']}" if "day" in row else "")
    return list(lines.values())


def draw_speed(rows: Sequence[dict[str, Any]], path: Path, title: str) -> None:
    """Write a PNG with a line per engine: milliseconds per token over context. Raises OSError."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    FigureCanvasAgg(figure)  # draws without a window system
    axes = figure.subplots()
    for engine in dict.fromkeys((row["engine"], row["kv"]) for row in rows):
        own = [row for row in rows if (row["engine"], row["kv"]) == engine]
        style = "-" if engine[0].startswith("localctx") else "--"
        points = [row["context"] for row in own], [row["ms_per_token"] for row in own]
        axes.plot(*points, style, marker="o", label=" ".join(engine))
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("{x:g}")
    contexts = sorted({row["context"] for row in rows})
    axes.set_xticks(contexts, [f"{n:,}" for n in contexts])
    axes.set_xlabel("tokens of context")
    axes.set_ylabel("milliseconds per token")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.suptitle(title)
    figure.savefig(path, dpi=120, format="png")


def _cell(row: dict[str, Any], number: str) -> str:
    return f"{row[number]:,.1f}" + ("" if row["spread"] is None else f" ({row['spread']:.0%})")


def _precision(bench: Bench) -> str:
    if bench.engines.model.engine == "llama.cpp":
        return "weights as quantized"
    model = bench.engines.paged_model
    chunks = getattr(model, "precision", model.dtype)  # a native decoder may use another precision for prompt chunks
    reading = f"; prompts in {precision_name(chunks)}" if chunks != model.dtype else ""
    skips = f"; {bench.engines.settings.reading}" if model.prefill_loss else ""
    return precision_name(model.dtype, bench.engines.settings.weights) + reading + skips


def cpu_name() -> str:
    """Returns the processor's name, or its architecture if the system does not give a name."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
