"""Model advice: estimates which known models a machine can run and how fast, and recommends the best one."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from localctx.errors import format_bytes
from localctx.machine import Machine, measure_machine
from localctx.models.catalog import CatalogEntry, load_catalog
from localctx.models.decoder_config import NATIVE_FAMILIES
from localctx.models.device_choice import pick_device, pick_dtype
from localctx.models.installed import folder_name, is_complete
from localctx.models.weight_formats import BITS, refuse_weights
from localctx.settings import Settings

MIN_DECODE, MIN_PREFILL = 4, 30  # tokens a second; a slower model is not recommended
ROOM = 1.25  # memory needed, as a multiple of the weights: a quarter is for the KV cache
BANDWIDTH_SHARE = 0.85  # of the measured bandwidth that decoding reaches when it reads the weights
DECODE_OVERHEAD = 0.01  # seconds a token
ARITHMETIC_SHARE = 0.7  # of the measured arithmetic rate that a prefill of some thousand tokens reaches
INT8_BYTES = 1.4  # a parameter; on a CPU, int8 weights take as long as if a token read so many


@dataclass(frozen=True)
class ModelEstimate:
    """The estimate for a known model on a machine with ``weights`` as in the settings: the bytes of ``memory`` it
    needs, and the tokens a second of prefill and decode (0: not known). ``reason`` says, of a recommended model, why it
    is.
    """

    entry: CatalogEntry
    weights: str
    memory: int
    fits: bool
    prefill_per_second: float
    decode_per_second: float
    reason: str = ""

    @property
    def good(self) -> bool:
        """True if it fits, with room for a KV cache, and is fast enough."""
        return self.fits and self.decode_per_second >= MIN_DECODE and self.prefill_per_second >= MIN_PREFILL

    @property
    def name(self) -> str:
        """The value for ``--model``."""
        return self.entry.name

    @property
    def title(self) -> str:
        """The model's name as its makers write it."""
        return self.entry.title

    @property
    def bytes(self) -> int:
        """The approximate size of the download."""
        return self.entry.bytes


@dataclass(frozen=True)
class Advice:
    """The estimates of all known chat models by name, and the ``best`` one: whether it ``is_installed``, and whether it
    ``is_selected`` in the settings.
    """

    machine: Machine
    models: dict[str, ModelEstimate]
    best: ModelEstimate
    is_installed: bool
    is_selected: bool

    def to_json(self) -> dict[str, Any]:
        """Returns the report for ``--json``, in bytes and in bytes, operations and tokens a second."""
        best = self.best
        recommended = {
            "name": best.name,
            "title": best.title,
            "bytes": best.bytes,
            **estimate_to_json(best),
            "reason": best.reason,
            "here": self.is_installed,
            "chosen": self.is_selected,
        }
        return {"machine": asdict(self.machine), "recommended": recommended, "line": self.line()}

    def line(self) -> str:
        """Returns the recommendation in one line, with the commands that get the model."""
        machine, model = describe_machine(self.machine), describe_recommendation(self)
        return f"recommended for this machine ({machine}): {model}. {self._how()}"

    def _how(self) -> str:
        name, more = self.best.name, "" if self.best.weights == "full" else f" --weights {self.best.weights}"
        if self.is_selected and self.is_installed:
            return "It is what answers now"
        get = "" if self.is_installed else f"Get it: localctx models pull {name}; then it"
        return f"{get or 'It'} is used with --model {name}{more}, or for good: localctx models use {name}{more}"


def advise(settings: Settings, *, own_bytes: int = 0, remeasure: bool = False) -> Advice:
    """Returns what this machine can run under ``settings``, without the network. ``own_bytes`` and ``remeasure`` are as
    in ``measure_machine``. Raises ModelError for a device or a precision that does not exist.
    """
    device = pick_device(settings.device)
    precision = pick_dtype(settings.dtype, device)
    refuse_weights(settings.weights, device, precision)
    machine = measure_machine(device, precision, settings.home, own_bytes=own_bytes, remeasure=remeasure)
    known = load_catalog()
    best = recommend(known.values(), machine, settings.weights)
    return Advice(
        machine,
        {e.name: estimate(e, machine, settings.weights) for e in known.values() if e.kind == "chat"},
        best,
        is_complete(settings.models / folder_name(best.name)),
        settings.model == best.name and settings.weights == best.weights,
    )


def recommend(entries: Iterable[CatalogEntry], machine: Machine, weights: str = "full") -> ModelEstimate:
    """Returns the largest chat model that is good on ``machine`` or, if there is none, the first chat model."""
    chats = [estimate(e, machine, weights) for e in entries if e.kind == "chat"]
    by_size = sorted(chats, key=lambda e: e.entry.parameters)
    best = next((e for e in reversed(by_size) if e.good), chats[0])
    larger = [e for e in by_size if e.entry.parameters > best.entry.parameters]
    return replace(best, reason=_reason(best, larger[0] if larger else None))


def estimate(entry: CatalogEntry, machine: Machine, weights: str = "full") -> ModelEstimate:
    """Estimates how ``entry`` runs on ``machine``; with int8 weights where only these make it good on a CPU."""
    small = weights == "full" and (machine.device, machine.precision) == ("cpu", "float32")
    choices = [_estimate(entry, machine, choice) for choice in ([weights, "int8"] if small else [weights])]
    return next((choice for choice in choices if choice.good), choices[0])


def estimate_to_json(e: ModelEstimate | None) -> dict[str, Any]:
    """Returns an estimate for ``--json``; all values are None for a model that is not a known chat model."""
    names = "weights", "memory_bytes", "fits_here", "read_per_second", "answer_per_second"
    values = (
        (e.weights, e.memory, e.fits, round(e.prefill_per_second, 1), round(e.decode_per_second, 1))
        if e
        else (None,) * len(names)
    )
    return dict(zip(names, values, strict=True))


def describe_machine(machine: Machine) -> str:
    """Describes a machine in a few words."""
    rate = f"{machine.rates.bandwidth / 1e9:,.0f} GB/s"
    if machine.device == "cpu":
        return f"{format_bytes(machine.free)} of memory free, no GPU, {rate}"
    return f"{format_bytes(machine.free)} of memory free on {machine.hardware}, {rate}"


def describe_recommendation(advice: Advice) -> str:
    """Describes the recommended model in a few words."""
    best = advice.best
    where = "which is here" if advice.is_installed else f"{format_bytes(best.bytes)} to fetch"
    packed = "" if best.weights == "full" else f" with {best.weights} weights"
    prefill, decode = format_rate(best.prefill_per_second), format_rate(best.decode_per_second)
    speed = f"reads about {prefill} and answers about {decode} tokens a second (estimates)"
    speed = speed if best.decode_per_second else "how fast is not known"  # there was no free memory to measure it
    return f"{best.title}{packed}, {where}, {speed}"


def describe_estimate(e: ModelEstimate, machine: Machine) -> str:
    """Describes in a few words how a model runs on ``machine``."""
    if not e.fits:
        return f"needs {format_bytes(e.memory * ROOM)}"
    packed = "" if e.weights == "full" else f" as {e.weights}"
    slow = "" if e.good else ", slow"
    return f"about {format_rate(e.decode_per_second)} tokens/s{packed}{slow}" if machine.rates.bandwidth else "fits"


def format_rate(rate: float) -> str:
    """Returns a rate with two significant digits."""
    return f"{float(f'{rate:.2g}'):,.0f}" if rate >= 10 else f"{rate:.1f}"


def _estimate(entry: CatalogEntry, machine: Machine, weights: str) -> ModelEstimate:
    memory, rates = _memory(entry, machine, weights), machine.rates
    if not all(vars(rates).values()):
        return ModelEstimate(entry, weights, memory, ROOM * memory <= machine.free, 0, 0)
    prefill = ARITHMETIC_SHARE * rates.arithmetic / (2 * entry.parameters)
    seconds = _bytes_read(entry, machine, weights) / (BANDWIDTH_SHARE * rates.bandwidth)
    decode = 1 / (DECODE_OVERHEAD + seconds)
    return ModelEstimate(entry, weights, memory, ROOM * memory <= machine.free, prefill, decode)


def _memory(entry: CatalogEntry, machine: Machine, weights: str) -> int:
    """Estimates the bytes at the peak of loading, which ``load.loading_bytes`` knows exactly from a model's files: on a
    CPU transformers loads all weights before they are blocked, and NativeDecoder does not.
    """
    loaded = entry.bytes if machine.precision != "float32" else 4 * entry.parameters
    if machine.device == "cpu" and entry.family not in NATIVE_FAMILIES:
        return loaded
    if weights == "full":
        return entry.bytes if machine.device == "cpu" else loaded
    return int(entry.parameters * BITS[weights] / 8 + 0.1 * entry.bytes)  # embeddings are not quantized


def _bytes_read(entry: CatalogEntry, machine: Machine, weights: str) -> float:
    """Returns the bytes of weights that decoding a token reads. A CPU reads 16-bit weights as they are."""
    if weights == "full":
        return entry.parameters * (4 if machine.precision == "float32" and machine.device != "cpu" else 2)
    return entry.parameters * (INT8_BYTES if machine.device == "cpu" else BITS[weights] / 8)


def _reason(best: ModelEstimate, next_larger: ModelEstimate | None) -> str:
    if not best.good:
        return f"no larger known model is expected to fit here and to answer {MIN_DECODE} tokens a second"
    why = f"it is the largest known model that fits and answers at least {MIN_DECODE} tokens a second"
    if not next_larger:
        return why
    title = next_larger.entry.title
    if not next_larger.fits:
        return f"{why}; the next, {title}, needs {format_bytes(next_larger.memory * ROOM)} of memory"
    if next_larger.decode_per_second < MIN_DECODE:
        return f"{why}; the next, {title}, would answer about {format_rate(next_larger.decode_per_second)}"
    return f"{why}; the next, {title}, would read only about {format_rate(next_larger.prefill_per_second)} a second"
