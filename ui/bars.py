"""Bars and cells: what memory holds, and the page map, as HTML of our own."""

from collections import Counter
from collections.abc import Sequence
from math import ceil, sqrt
from typing import Any, NamedTuple

from localctx.engine.events import WHERE
from localctx.errors import format_bytes
from localctx.shape import PAGE, SINKS
from localctx.ui.render import escape

MOST_CELLS = 1000
LEVELS = 4  # of heat


class BarPart(NamedTuple):
    """A part of a bar: its class (``lc-<kind>``), its name, its bytes."""

    kind: str
    name: str
    nbytes: int


def bar(title: str, parts: Sequence[BarPart], note: str = "") -> str:
    """A bar of all ``parts``, with a legend that tells their sizes."""
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
    """The page map of an answer: a sentence that sums it up, cells, and what they mean."""
    known = report["kv"]["map"]
    where, reused = known["where"], known["reused"]
    looks = [*known["looks"], *[0.0] * len(where)][: len(where)]
    looks[:SINKS] = [0.0] * len(looks[:SINKS])  # looked at whatever they say
    together = max(1, ceil(len(where) / MOST_CELLS))
    groups = range(0, len(where), together)
    most = max((sum(looks[i : i + together]) for i in groups), default=0.0)
    cells = "".join(_cell(where, looks, reused, i, together, most) for i in groups)
    said = summary(where, looks, reused, title)
    drawn = f'<div class="lc-cells" role="img" aria-label="{escape(said)}">{cells}</div>'
    return f"<p>{escape(said)}</p>{drawn}{_legend(together)}"


def summary(where: str, looks: Sequence[float], reused: int, title: str) -> str:
    """The map in words."""
    counts = Counter(where)
    places = {"d": "on the device", "h": "in RAM beside it", "s": "on disk", "p": "kept in part", "x": "dropped"}
    parts = [f"{counts[letter]:,} {name}" for letter, name in places.items() if counts[letter]]
    said = f"{title}: {len(where):,} pages of {PAGE} tokens, {', '.join(parts) or 'all still open'}. "
    said += f"{reused:,} were kept from before, {len(where) - reused:,} read or written now."
    if looks and max(looks):
        best = max(range(len(looks)), key=looks.__getitem__)
        said += (
            f" Beside the first page the answer looked most at tokens {best * PAGE:,} to {best * PAGE + PAGE - 1:,}."
        )
    return said


def _cell(where: str, looks: Sequence[float], reused: int, first: int, together: int, most: float) -> str:
    stop = min(first + together, len(where))
    letter = Counter(where[first:stop]).most_common(1)[0][0]
    kept, share = first < reused, sum(looks[first:stop])
    heat = ceil(LEVELS * sqrt(share / most)) if most else 0
    how = "kept from before" if kept else "read now"
    title = f"tokens {first * PAGE:,} to {stop * PAGE - 1:,}: {WHERE[letter]}, {how}, {share:.1%} of the looks"
    kinds = f"lc-at-{letter}{' lc-kept' if kept else ''}"
    return f'<i class="{kinds}" title="{title}">{_heat(heat)}</i>'


def _heat(level: int) -> str:
    return f'<b class="lc-heat{level}"></b>' if level else ""


def _legend(together: int) -> str:
    keys = [
        *(("lc-at-d", "device"), ("lc-at-h", "RAM beside it"), ("lc-at-s", "disk"), ("lc-at-p", "kept in part")),
        *(("lc-at-x", "dropped"), ("lc-at-o", "still open"), ("lc-at-d lc-kept", "kept from before (framed)")),
    ]
    items = "".join(f'<li><i class="{kind}"></i>{name}</li>' for kind, name in keys)
    items += f'<li><i class="lc-at-none">{_heat(LEVELS)}</i>looked at by the answer (larger: more)</li>'
    each = f"One cell is {together:,} pages." if together > 1 else f"One cell is a page of {PAGE} tokens."
    return f'<ul class="lc-legend lc-cells">{items}</ul><small>{each}</small>'
