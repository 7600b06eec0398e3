"""Plots the size of the KV cache by context length, with this machine's memory limits, as an SVG and a table."""

from collections.abc import Sequence
from math import ceil, floor, log2
from typing import Any

from localctx.errors import format_bytes
from localctx.ui.render import escape

WIDTH, HEIGHT = 720, 380
LEFT, RIGHT, TOP, BOTTOM = 72, 110, 30, 46
MIN_TOKENS = 1024  # tokens at the left edge
LABEL_HEIGHT = 14  # pixels between two labels


class Plane:
    """Two logarithmic axes: tokens to the right, bytes upwards. The ranges are (lowest, highest)."""

    def __init__(self, tokens: tuple[float, float], nbytes: tuple[float, float]) -> None:
        self.tokens, self.nbytes = tokens, nbytes

    def x(self, tokens: float) -> float:
        """Returns the number of pixels from the left edge for a number of tokens."""
        low, high = map(log2, self.tokens)
        return LEFT + (WIDTH - LEFT - RIGHT) * (log2(tokens) - low) / (high - low)

    def y(self, nbytes: float) -> float:
        """Returns the number of pixels from the top edge for a number of bytes."""
        low, high = map(log2, self.nbytes)
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (log2(nbytes) - low) / (high - low)


def kv_bytes(report: dict[str, Any], codec: str, tokens: float) -> float:
    """Returns the size in bytes of the KV of ``tokens`` tokens in ``codec``, from a report of ``plan_memory``."""
    entry = report["codecs"][codec]
    return entry["bytes"] - (report["context"] - tokens) * entry["later_bytes_per_token"]


def plot(report: dict[str, Any]) -> str:
    """Returns the plot as SVG with a text description."""
    codecs = list({report["codecs"][c]["bytes_per_token"]: c for c in reversed(report["codecs"])}.values())[::-1]
    limits = _limits(report)
    plane = _plane(report, codecs, limits)
    window = report["window"] or report["context"]
    description = f"Bytes of KV by length of context for {', '.join(codecs)}, with the limits of this computer"
    parts = [
        *_grid(plane),
        *_lines(plane, report, codecs),
        *(_level(plane, name, nbytes) for name, nbytes in limits),
        _edge(plane, f"window {window:,}", window),
        *(_edge(plane, f"stretched {w['context']:,}", w["context"]) for w in report["longer"]),
    ]
    label = f'role="img" aria-label="{escape(description)}"'
    svg = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" {label}>{"".join(parts)}</svg>'
    return f'<div class="lc-plot" tabindex="0">{svg}</div>'


def table(report: dict[str, Any]) -> str:
    """Returns a table of codecs: bytes per token, size of the reported context, and the longest context that fits."""
    head = ("precision", "bytes per token", f"{report['context']:,} tokens", "longest context in memory")
    rows = [
        (
            c,
            f"{entry['bytes_per_token']:,}",
            format_bytes(entry["bytes"]),
            f"{report['fits'][c]:,} tokens" if report["fits"][c] else "none",
        )
        for c, entry in report["codecs"].items()
    ]
    cells = "".join(
        f'<tr class="{"lc-now" if row[0] == report["kv"]["codec"] else ""}"><th scope="row">{escape(row[0])}</th>'
        f"{''.join(f'<td>{escape(cell)}</td>' for cell in row[1:])}</tr>"
        for row in rows
    )
    top = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    drawn = f'<table class="lc-table"><thead><tr>{top}</tr></thead><tbody>{cells}</tbody></table>'
    return f'<div class="lc-wide" tabindex="0">{drawn}</div>'


def _limits(report: dict[str, Any]) -> list[tuple[str, float]]:
    """Returns names and bytes of the KV limits: the device, then with RAM added, then with disk added."""
    levels, total = list[tuple[str, float]](), 0.0
    for tier, name in (("device", f"memory ({report['device']})"), ("host", "and RAM"), ("disk", "and disk")):
        if nbytes := report["limits"][tier] or 0:
            total += nbytes
            levels.append((f"{name}: {format_bytes(total)}", total))
    return levels


def _plane(report: dict[str, Any], codecs: Sequence[str], limits: Sequence[tuple[str, float]]) -> Plane:
    max_context = max([report["context"], report["window"] or 0, *report["fits"].values(), 16 * MIN_TOKENS])
    right = 2.0 ** ceil(log2(max_context * 1.05))
    heights = [kv_bytes(report, c, n) for c in codecs for n in (MIN_TOKENS, right)] + [nbytes for _, nbytes in limits]
    return Plane((MIN_TOKENS, right), (2.0 ** floor(log2(min(heights))), 2.0 ** ceil(log2(max(heights) * 1.05))))


def _grid(plane: Plane) -> list[str]:
    """Returns labelled grid lines at powers of two, at most about ten in each direction."""
    parts = [
        f'<rect class="lc-frame" x="{LEFT}" y="{TOP}" width="{WIDTH - LEFT - RIGHT}" height="{HEIGHT - TOP - BOTTOM}"/>'
    ]
    for tokens in _powers(plane.tokens, 7):
        x, name = plane.x(tokens), f"{tokens // 1024:,}K" if tokens < 1 << 20 else f"{tokens >> 20:,}M"
        parts.append(f'<path class="lc-grid" d="M{x:.1f} {TOP}V{HEIGHT - BOTTOM}"/>')
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{name}</text>')
    for nbytes in _powers(plane.nbytes, 8):
        y = plane.y(nbytes)
        parts.append(f'<path class="lc-grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(
            f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{format_bytes(nbytes).replace(".0", "")}</text>'
        )
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 8}" text-anchor="middle">tokens of context</text>')
    return parts


def _powers(span: tuple[float, float], max_count: int) -> list[int]:
    low, high = (round(log2(edge)) for edge in span)
    return [1 << n for n in range(low, high + 1, max(1, ceil((high - low) / max_count)))]


def _level(plane: Plane, name: str, nbytes: float) -> str:
    y = plane.y(nbytes)
    return (
        f'<path class="lc-limit" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>'
        f'<text class="lc-limit" x="{LEFT + 6}" y="{y - 5:.1f}">{escape(name)}</text>'
    )


def _edge(plane: Plane, name: str, tokens: float) -> str:
    x = plane.x(max(tokens, MIN_TOKENS))
    down = HEIGHT - BOTTOM - 6
    return (
        f'<path class="lc-window" d="M{x:.1f} {TOP}V{HEIGHT - BOTTOM}"/>'
        f'<text class="lc-window" transform="translate({x - 4:.1f} {down}) rotate(-90)">{escape(name)}</text>'
    )


def _lines(plane: Plane, report: dict[str, Any], codecs: Sequence[str]) -> list[str]:
    """Returns a line for each codec with its name at the end. Names do not overlap."""
    parts, above = list[str](), TOP - float(LABEL_HEIGHT)
    for codec in sorted(codecs, key=lambda c: -report["codecs"][c]["bytes_per_token"]):
        steps = [plane.tokens[0] * 2**n for n in range(round(log2(plane.tokens[1] / plane.tokens[0])) + 1)]
        points = " ".join(f"{plane.x(n):.1f},{plane.y(kv_bytes(report, codec, n)):.1f}" for n in steps)
        end = plane.y(kv_bytes(report, codec, steps[-1]))
        above = max(end, above + LABEL_HEIGHT)
        now = " lc-now" if codec == report["kv"]["codec"] else ""
        parts.append(f'<polyline class="lc-line{now}" points="{points}"/>')
        parts.append(f'<text class="lc-line{now}" x="{WIDTH - RIGHT + 8}" y="{above + 4:.1f}">{escape(codec)}</text>')
    return parts
