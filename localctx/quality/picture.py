"""Draws which needles each variant found, by depth and text length."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from localctx.quality.gate import QualityResult
from localctx.quality.needles import DEPTHS


def draw_needles(results: Sequence[QualityResult], path: Path, title: str) -> None:
    """Write a PNG with one panel per variant. Found needles are green. Raises OSError."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1.2 + 1.9 * len(results), 3.6), layout="constrained")
    FigureCanvasAgg(figure)  # draws without a window system
    panels = figure.subplots(1, len(results), squeeze=False, sharey=True)[0]
    for panel, result in zip(panels, results, strict=True):
        _panel(panel, result)
    panels[0].set_yticks(range(len(DEPTHS)), [f"{d:.0%}" for d in DEPTHS])
    panels[0].set_ylabel("depth of the needle")
    figure.suptitle(title)
    figure.savefig(path, dpi=120, format="png")


def _panel(panel: Any, result: QualityResult) -> None:
    lengths = list(result.needles)
    cells = [[result.needles[n][i] for n in lengths] for i in range(len(DEPTHS))]
    panel.imshow(cells, cmap="RdYlGn", vmin=0, vmax=1, aspect="auto")
    for row, line in enumerate(cells):
        for column, found in enumerate(line):
            panel.text(column, row, "found" if found else "lost", ha="center", va="center")
    panel.set_xticks(range(len(lengths)), [f"{n:,}" for n in lengths])
    panel.set_xlabel("tokens")
    panel.set_title(result.variant.name, fontsize=9)
