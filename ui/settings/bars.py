"""Renders memory bars, and the page map of an answer (where its KV pages are), as HTML."""

from collections import Counter
from collections.abc import Sequence
from math import ceil, sqrt
from typing import Any, NamedTuple

from localctx.engine.events import WHERE
from localctx.errors import format_bytes
from localctx.shape import PAGE, SINK_PAGES
from localctx.ui.render import escape

MAX_CELLS = 1000
HEAT_LEVELS = 4


class BarPart(NamedTuple):
    """A part of a bar: its CSS class (``lc-<kind>``), its name, and its size in bytes."""

    kind: str
    name: str
    nbytes: int


def bar(title: str, parts: Sequence[BarPart], note: str = "") -> str:
    """Returns a bar that shows all ``parts``, with a legend of their sizes."""
    parts = [part._replace(nbytes=max(0, part.nbytes)) for part in parts]
    total = sum(part.nbytes for part in parts) or 1
    pieces = "".join(f'<i class="lc-{p.kind}" style="width:{100 * p.nbytes / total:.2f}%"></i>' for p in parts)
    legend = "".join(
        f'<li><i class="lc-{p.kind}"></i>{escape(p.name)} <b>{format_bytes(p.nbytes)}</b></li>' for p in parts
    )
    below = f"<small>{escape(note)}</small>" if note else ""
    return (
        f'<section class="lc-bar"><h3>{escape(title)} <small>{format_bytes(total)}</small></h3>'
        f'<div class="lc-track" aria-hidden="true">{pieces}</div><ul class="lc-legend">{legend}</ul>{below}</section>'
    )


def page_cells(report: dict[str, Any], title: str) -> str:
    """Returns the page map of an answer: a summary in words, a cell for each group of KV pages, and a legend.

    ``report`` is the report of the answer as JSON.
    """
    page_map = report["kv"]["map"]
    where, reused = page_map["where"], page_map["reused"]
    mass = [*page_map["looks"], *[0.0] * len(where)][: len(where)]
    mass[:SINK_PAGES] = [0.0] * len(mass[:SINK_PAGES])  # sinks always get much attention, whatever their text is
    group = max(1, ceil(len(where) / MAX_CELLS))
    starts = range(0, len(where), group)
    max_mass = max((sum(mass[i : i + group]) for i in starts), default=0.0)  # 0 if attention was not recorded
    cells = "".join(_cell(where, mass, reused, i, group, max_mass) for i in starts)
    text = summary(where, mass, reused, title)
    if report["kv"].get("engine") == "llama.cpp":
        text += " What the answer attended to is not known: llama.cpp does not tell it."
    drawn = f'<div class="lc-cells" role="img" aria-label="{escape(text)}">{cells}</div>'
    return f"<p>{escape(text)}</p>{drawn}{_legend(group, attended=bool(max_mass))}"


def summary(where: str, mass: Sequence[float], reused: int, title: str) -> str:
    """Returns the page map as text.

    ``where`` has one letter for each page, which names the page's tier. ``mass`` has the attention mass of each page.
    The first ``reused`` pages were kept from before.
    """
    counts = Counter(where)
    tiers = {"d": "on the device", "h": "in RAM beside it", "s": "on disk", "p": "kept in part", "x": "dropped"}
    parts = [f"{counts[letter]:,} {name}" for letter, name in tiers.items() if counts[letter]]
    text = f"{title}: {len(where):,} blocks of {PAGE} tokens, {', '.join(parts) or 'all still open'}. "
    text += f"{reused:,} were kept from before, {len(where) - reused:,} read or written now."
    if mass and max(mass):
        best = max(range(len(mass)), key=mass.__getitem__)
        text += f" Apart from the first block, the answer attended most to tokens {_tokens(best, best + 1)}."
    return text


def _tokens(first: int, stop: int) -> str:
    return f"{first * PAGE:,} to {stop * PAGE - 1:,}"


def _cell(where: str, mass: Sequence[float], reused: int, first: int, group: int, max_mass: float) -> str:
    stop = min(first + group, len(where))
    letter = Counter(where[first:stop]).most_common(1)[0][0]
    kept, share = first < reused, sum(mass[first:stop])
    heat = ceil(HEAT_LEVELS * sqrt(share / max_mass)) if max_mass else 0
    origin = "kept from before" if kept else "read now"
    attention = f", {share:.1%} of the attention" if max_mass else ""
    title = f"tokens {_tokens(first, stop)}: {WHERE[letter]}, {origin}{attention}"
    kinds = f"lc-at-{letter}{' lc-kept' if kept else ''}"
    return f'<i class="{kinds}" title="{title}">{_heat(heat)}</i>'


def _heat(level: int) -> str:
    return f'<b class="lc-heat{level}"></b>' if level else ""


def _legend(group: int, *, attended: bool) -> str:
    keys = [
        *(("lc-at-d", "device"), ("lc-at-h", "RAM beside it"), ("lc-at-s", "disk"), ("lc-at-p", "kept in part")),
        *(("lc-at-x", "dropped"), ("lc-at-o", "still open"), ("lc-at-d lc-kept", "kept from before (framed)")),
    ]
    items = "".join(f'<li><i class="{kind}"></i>{name}</li>' for kind, name in keys)
    if attended:
        items += f'<li><i class="lc-at-none">{_heat(HEAT_LEVELS)}</i>attention of the answer (larger: more)</li>'
    each = f"One cell is {group:,} blocks." if group > 1 else f"One cell is a block of {PAGE} tokens."
    return f'<ul class="lc-legend lc-cells">{items}</ul><small>{each}</small>'
