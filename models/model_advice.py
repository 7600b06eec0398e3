"""Advice: which known model a machine can run, how fast it would be there, and which is best. All are estimates."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from localctx.errors import format_bytes
from localctx.machine import Machine, measure_machine
from localctx.models.catalog import CatalogEntry, load_catalog
from localctx.models.decoder_config import PLAIN
from localctx.models.device_choice import pick_device, pick_dtype
from localctx.models.installed import folder_name, is_whole
from localctx.models.weight_formats import BITS, refuse_weights
from localctx.settings import Settings

ANSWERS, READS = 4, 30  # tokens a second: below them nobody likes to wait
ROOM = 1.25  # of the weights: a quarter as much again is for the cache
STREAMED = 0.85  # of the rate at which memory is read is what reading weights for a token comes to
OWN = 0.01  # seconds a token costs beside its weights
REACHED = 0.7  # of the rate of a large product is what reading a document of some thousand tokens comes to
INT8 = 1.4  # bytes a parameter: at 8 bits a processor takes as long as if it read so many


@dataclass(frozen=True)
class Estimate:
    """What a known model would be on a machine, with ``weights`` as in the settings: bytes of ``memory`` it takes, and
    how many tokens a second it ``reads`` and ``answers``.
    """

    entry: CatalogEntry
    weights: str
    memory: int
    fits: bool
    reads: float
    answers: float

    @property
    def good(self) -> bool:
        """Whether it fits, with room for a cache, and is fast enough to work with."""
        return self.fits and self.answers >= ANSWERS and self.reads >= READS


@dataclass(frozen=True)
class Recommendation(Estimate):
    """The estimate of the best model, and in one sentence the ``reason`` why it is that."""

    reason: str

    @property
    def name(self) -> str:
        """As ``--model`` takes it."""
        return self.entry.name

    @property
    def title(self) -> str:
        """As its makers call it."""
        return self.entry.title

    @property
    def bytes(self) -> int:
        """What is to be fetched, about."""
        return self.entry.bytes


@dataclass(frozen=True)
class Advice:
    """What a machine can run: each known model's estimate by its name, and the ``best``, which may be ``here`` already,
    and ``chosen`` in the settings.
    """

    machine: Machine
    models: dict[str, Estimate]
    best: Recommendation
    here: bool
    chosen: bool

    def to_json(self) -> dict[str, Any]:
        """For programs; bytes, and a second's bytes, operations and tokens."""
        best = self.best
        recommended = {
            "name": best.name,
            "title": best.title,
            "bytes": best.bytes,
            **to_json(best),
            "reason": best.reason,
            "here": self.here,
            "chosen": self.chosen,
        }
        return {"machine": asdict(self.machine), "recommended": recommended, "line": self.line()}

    def line(self) -> str:
        """All of it in one line, with the commands that get the model."""
        return f"recommended for this machine ({of_machine(self.machine)}): {of_model(self)}. {self._how()}"

    def _how(self) -> str:
        name, more = self.best.name, "" if self.best.weights == "full" else f" --weights {self.best.weights}"
        if self.chosen and self.here:
            return "It is what answers now"
        get = "" if self.here else f"Get it: localctx models pull {name}; then it"
        return f"{get or 'It'} is used with --model {name}{more}, or for good: localctx models use {name}{more}"


def advise(settings: Settings, *, own_bytes: int = 0, remeasure: bool = False) -> Advice:
    """What this machine can run under ``settings``; nothing is fetched or asked of anyone. ``own_bytes`` bytes of
    memory and ``remeasure`` as in ``machine.measure_machine``. Raises ModelError for a device or a precision that is
    not there.
    """
    device = pick_device(settings.device)
    precision = pick_dtype(settings.dtype, device)
    refuse_weights(settings.weights, device, precision)
    machine, known = (
        measure_machine(device, precision, settings.home, own_bytes=own_bytes, remeasure=remeasure),
        load_catalog(),
    )
    best = recommend(known.values(), machine, settings.weights)
    return Advice(
        machine,
        {e.name: estimate(e, machine, settings.weights) for e in known.values() if e.kind == "chat"},
        best,
        is_whole(settings.models / folder_name(best.name)),
        settings.model == best.name and settings.weights == best.weights,
    )


def recommend(entries: Iterable[CatalogEntry], machine: Machine, weights: str = "full") -> Recommendation:
    """Of the chat models among ``entries`` the largest that is good on ``machine``; the first of them where none is."""
    chats = [estimate(e, machine, weights) for e in entries if e.kind == "chat"]
    by_size = sorted(chats, key=lambda e: e.entry.parameters)
    best = next((e for e in reversed(by_size) if e.good), chats[0])
    larger = [e for e in by_size if e.entry.parameters > best.entry.parameters]
    return Recommendation(**vars(best), reason=_reason(best, larger[0] if larger else None))


def estimate(entry: CatalogEntry, machine: Machine, weights: str = "full") -> Estimate:
    """What ``entry`` would be on ``machine``. Where its weights are too many as they came, and a processor could have
    them as int8, it is told so.
    """
    small = weights == "full" and (machine.device, machine.precision) == ("cpu", "float32")
    ways = [_estimate(entry, machine, way) for way in ([weights, "int8"] if small else [weights])]
    return next((way for way in ways if way.good), ways[0])


def to_json(e: Estimate | None) -> dict[str, Any]:
    """For programs: bytes, and tokens a second to a tenth; None of what is not a known chat model."""
    names = "weights", "memory_bytes", "fits_here", "read_per_second", "answer_per_second"
    values = (e.weights, e.memory, e.fits, round(e.reads, 1), round(e.answers, 1)) if e else (None,) * len(names)
    return dict(zip(names, values, strict=True))


def of_machine(machine: Machine) -> str:
    """A machine in a few words."""
    rate = f"{machine.rates.bandwidth / 1e9:,.0f} GB/s"
    if machine.device == "cpu":
        return f"{format_bytes(machine.free)} of memory free, no GPU, {rate}"
    return f"{format_bytes(machine.free)} of memory free on {machine.hardware}, {rate}"


def of_model(advice: Advice) -> str:
    """The recommended model in a few words."""
    best = advice.best
    where = "which is here" if advice.here else f"{format_bytes(best.bytes)} to fetch"
    packed = "" if best.weights == "full" else f" with {best.weights} weights"
    speed = f"reads about {about(best.reads)} and answers about {about(best.answers)} tokens a second (estimates)"
    speed = speed if best.answers else "how fast is not known"  # there was no memory to measure with
    return f"{best.title}{packed}, {where}, {speed}"


def of_estimate(e: Estimate, machine: Machine) -> str:
    """What a model would be on ``machine``, in a few words."""
    if not e.fits:
        return f"needs {format_bytes(e.memory * ROOM)}"
    packed = "" if e.weights == "full" else f" as {e.weights}"
    slow = "" if e.good else ", slow"
    return f"about {about(e.answers)} tokens/s{packed}{slow}" if machine.rates.bandwidth else "fits"


def about(rate: float) -> str:
    """A rate to two digits: more of them an estimate has not."""
    return f"{float(f'{rate:.2g}'):,.0f}" if rate >= 10 else f"{rate:.1f}"


def _estimate(entry: CatalogEntry, machine: Machine, weights: str) -> Estimate:
    memory, rates = _memory(entry, machine, weights), machine.rates
    if not all(vars(rates).values()):
        return Estimate(entry, weights, memory, ROOM * memory <= machine.free, 0, 0)
    reads = REACHED * rates.arithmetic / (2 * entry.parameters)
    answers = 1 / (OWN + _read(entry, machine, weights) / (STREAMED * rates.bandwidth))
    return Estimate(entry, weights, memory, ROOM * memory <= machine.free, reads, answers)


def _memory(entry: CatalogEntry, machine: Machine, weights: str) -> int:
    """Bytes at the peak of loading, as ``load.loading_bytes`` finds them of files: a processor has all weights whole
    before any is in blocks, but for those of plain decoders.
    """
    whole = entry.bytes if machine.precision != "float32" else 4 * entry.parameters
    if machine.device == "cpu" and entry.family not in PLAIN:
        return whole
    if weights == "full":
        return entry.bytes if machine.device == "cpu" else whole
    return int(entry.parameters * BITS[weights] / 8 + 0.1 * entry.bytes)  # embeddings stay as they are


def _read(entry: CatalogEntry, machine: Machine, weights: str) -> float:
    """Bytes of weights that one more token reads. On a processor 16 bits are enough for those that come so."""
    if weights == "full":
        return entry.parameters * (4 if machine.precision == "float32" and machine.device != "cpu" else 2)
    return entry.parameters * (INT8 if machine.device == "cpu" else BITS[weights] / 8)


def _reason(best: Estimate, next_larger: Estimate | None) -> str:
    if not best.good:
        return f"no larger known model is expected to fit here and to answer {ANSWERS} tokens a second"
    why = f"it is the largest known model that fits and answers at least {ANSWERS} tokens a second"
    if not next_larger:
        return why
    title = next_larger.entry.title
    if not next_larger.fits:
        return f"{why}; the next, {title}, needs {format_bytes(next_larger.memory * ROOM)} of memory"
    if next_larger.answers < ANSWERS:
        return f"{why}; the next, {title}, would answer about {about(next_larger.answers)}"
    return f"{why}; the next, {title}, would read only about {about(next_larger.reads)} a second"
