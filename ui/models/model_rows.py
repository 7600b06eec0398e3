"""Describes models in everyday words: their speed and memory needs on this machine, and the cost of switching to
them.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from localctx.errors import format_bytes
from localctx.models.catalog import FALLBACK
from localctx.ui.everyday import WORDS_OF_A_TOKEN
from localctx.ui.render import bar, duration, escape, note
from localctx.ui.running.model_downloads import ModelDownload

if TYPE_CHECKING:  # importing torch takes seconds
    from localctx.machine import Machine
    from localctx.models.choice.model_estimate import ModelEstimate
    from localctx.models.choice.model_list import ListedModel

PAGES = 20  # pages of a typical document, by which reading speeds are described
TOKENS_PER_PAGE = 530  # of 400 words
CHARACTERS_PER_TOKEN = 4.2  # in English prose
_PHASES = {
    "waiting": "Waiting: another localctx downloads",
    "fetching": "Downloading",
    "unpacking": "Unpacking",
    "converting": "Preparing",
    "saving": "Preparing",
    "sealing": "Checking",
}


def speed(e: "ModelEstimate") -> str:
    """Returns a sentence with a model's reading and answering speeds. It says whether they were measured on this
    machine.
    """
    if not (e.prefill_per_second and e.decode_per_second):
        return "How fast it is here is not known"
    reading = duration(max(1, PAGES * TOKENS_PER_PAGE / e.prefill_per_second))
    words = e.decode_per_second * WORDS_OF_A_TOKEN
    answering = f"{words:.0f} words a second" if words >= 1.5 else f"{words * 60:.0f} words a minute"
    source = "measured here" if e.measured else "estimate"
    return f"Reads a {PAGES}-page document in about {reading}, answers about {answering} ({source})"


def fit(e: "ModelEstimate", machine: "Machine") -> str:
    """Returns a line that says whether a model runs on this machine, or how much memory it needs."""
    if not e.fits:
        return f"Needs {format_bytes(e.needed)} of memory; {format_bytes(machine.free)} are free"
    return "Runs here" if e.good or not e.decode_per_second else "Runs here, but slowly"


def runs(m: "ListedModel", machine: "Machine") -> bool:
    """Returns False for a model that cannot be used, or that needs more memory than this machine has in total."""
    return not m.problem and not (m.estimate and m.estimate.needed > machine.total)


def in_order(models: "Sequence[ListedModel]", current: str) -> "list[ListedModel]":
    """Returns the models with the ``current`` one first, then those that are installed, then those to download."""
    return sorted(models, key=lambda m: (m.name != current, m.state != "installed"))


def rows(
    models: "Sequence[ListedModel]", machine: "Machine", current: str, best: str, disk: int, active: Sequence[str]
) -> str:
    """Returns a list of models, each with a button for its next action.

    ``disk`` is the free space for downloads in bytes. ``active`` names the models with an active download.
    """
    items = [_row(m, machine, m.name == current, m.name == best, disk, m.name in active) for m in models]
    return f'<ul class="lc-models">{"".join(items)}</ul>'


def _row(m: "ListedModel", machine: "Machine", current: bool, best: bool, disk: int, active: bool) -> str:
    signs = ["in use"] * current + ["demonstration"] * (m.name == FALLBACK) + ["recommended here"] * best
    signs += ["installed"] * (m.state == "installed" and not current)
    named = escape(m.entry.short_title) + "".join(f' <span class="lc-sign">{sign}</span>' for sign in signs)
    lines = [m.entry.strength, *_facts(m, machine)]
    reason = _reason(m, machine, disk)
    button = "" if current or active or reason else _button(m, best)
    body = "".join(f"<p>{escape(line)}</p>" for line in lines if line)
    body += f'<p class="lc-why">{escape(reason)}</p>' if reason else ""
    kind = " lc-current" if current else ""
    return f'<li class="lc-model{kind}"><div><b>{named}</b>{body}</div>{button}</li>'


def _facts(m: "ListedModel", machine: "Machine") -> list[str]:
    here = m.state == "installed"
    size = f"{format_bytes(m.present or m.entry.bytes)} on disk" if here else f"{_size(m)} to download"
    facts = [fit(m.estimate, machine)] if m.estimate else []
    return [
        *([speed(m.estimate)] if m.estimate and m.estimate.fits else []),
        " · ".join([*facts, size, *([_licence(m)] if m.entry.licence else [])]),
    ]


def _licence(m: "ListedModel") -> str:
    licence = m.entry.licence
    if m.entry.terms:
        return f"licence: {licence}, which is not open source: {m.entry.terms}"
    return licence if licence.lower().startswith("apache") else f"licence: {licence}"


def _size(m: "ListedModel") -> str:
    return format_bytes(max(m.entry.download_bytes - m.present, 0) if m.state == "partial" else m.entry.download_bytes)


def _reason(m: "ListedModel", machine: "Machine", disk: int) -> str:
    """Returns the reason why a model cannot be used or downloaded; "" if it can."""
    if m.problem:
        return f"Cannot be used: {m.problem}"
    if not runs(m, machine):
        return "Too large for this computer"
    if m.state in ("available", "partial") and m.entry.bytes - m.present > disk:
        return f"Not enough disk space: {format_bytes(disk)} are free"
    return ""


def _button(m: "ListedModel", best: bool) -> str:
    verbs = {"installed": "Use", "partial": "Resume download", "damaged": "Download again"}
    action = "use" if m.state == "installed" else "download"
    label = verbs.get(m.state, "Download")
    return (
        f'<button type="button" class="lc-do{" lc-primary" * best}" data-do="{action}" data-model="{escape(m.name)}"'
        f' aria-label="{label} {escape(m.entry.short_title)}">{label}</button>'
    )


def recommendation(best: "ListedModel", current: str) -> str:
    """Returns the recommendation on the card of a first run."""
    if best.name == current:
        return "No larger model is expected to run well on this computer. You can look at all of them."
    return f"For answers you can rely on more, this computer runs {best.entry.short_title}."


# --- A download


def progress(d: ModelDownload) -> str:
    """Returns the progress or the outcome of a download as HTML."""
    match d.state:
        case "done":
            return note(f"{d.title} is downloaded and checked", "done")
        case "failed":
            return note(f"{d.title} was not downloaded. {d.why}", "error")
        case "cancelled":
            return note(f"The download of {d.title} was stopped. What has come is kept, and the next try continues it.")
        case "waiting":
            return note(f"{d.title} waits for the other download")
    return _bar(d)


def _bar(d: ModelDownload) -> str:
    phase = _PHASES.get(d.phase, "Starting the download of")
    if not d.total:
        return note(f"{phase} {d.title} ...")
    parts = [f"{phase} {d.title}: {_figures(d)}"]
    if d.per_second and d.done < d.total:
        parts += [f"{format_bytes(d.per_second)} a second"] if d.phase == "fetching" else []
        parts += [f"about {duration(max(1, (d.total - d.done) / d.per_second))} left"]
    shown = bar(d.done, d.total, escape(f"{phase} {d.title}"))
    return f'<div class="lc-status" role="status">{escape(", ".join(parts))}{shown}</div>'


def _figures(d: ModelDownload) -> str:
    if d.phase in ("fetching", "unpacking"):
        return f"{format_bytes(d.done)} of {format_bytes(d.total)}"
    return f"{d.done:,} of {d.total:,}"


# --- A change of the model


def consequences(before: str, after: "ListedModel", ready: dict[str, int], ready_after: dict[str, int]) -> list[str]:
    """Returns sentences that tell the user which documents must be read again after a switch to another model.

    ``ready`` has the documents that the model ``before`` has read, and ``ready_after`` those that ``after`` has read:
    the number of characters by the document's id. Returns [] if ``ready`` is empty.
    """
    if not ready:
        return []
    title, unread = after.entry.short_title, {k: n for k, n in ready.items() if k not in ready_after}
    one, all_of_them = len(ready) == 1, len(unread) == len(ready)
    stay = f"1 document stays ready for {before}." if one else f"{len(ready):,} documents stay ready for {before}."
    if not unread:
        return [stay, f"{title} has read {'it' if one else 'them'} too."]
    which = "it is" if one else "they are" if all_of_them else f"{len(unread):,} of them need to be"
    time = _time(unread, after)
    return [stay, f"With {title} {which} read once more when you ask about {'it' if one else 'them'}{time}."]


def _time(unread: dict[str, int], after: "ListedModel") -> str:
    rate = after.estimate.prefill_per_second if after.estimate else 0
    if not rate:
        return ""
    seconds = sum(unread.values()) / CHARACTERS_PER_TOKEN / rate
    return f", about {duration(max(1, seconds))}" + " in all" * (len(unread) > 1)
