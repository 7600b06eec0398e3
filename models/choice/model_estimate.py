"""Estimates how a model runs on a machine: memory, prefill speed and decode speed."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from localctx.errors import format_bytes
from localctx.machine import Machine, Rates
from localctx.models.architecture.decoder_config import NATIVE_FAMILIES
from localctx.models.catalog import CatalogEntry
from localctx.models.memory_fit import MemoryFit, MemoryNeed
from localctx.models.quantized.weight_formats import BITS

MIN_DECODE, MIN_PREFILL = 4, 30  # tokens per second; a slower model is not recommended
ROOM = 4  # without computed sizes in the catalogue, a quarter of the weights' bytes is reserved for KV
LEAST_CONTEXT = 4096  # tokens of KV in int8 for which a model must leave room on a GPU
BANDWIDTH_SHARE = 0.85  # share of the measured bandwidth that decoding reaches while reading weights
DECODE_OVERHEAD = 0.01  # seconds per token
ARITHMETIC_SHARE = 0.7  # share of the measured arithmetic rate that a prefill of a few thousand tokens reaches
MOST_OFF = 2  # greatest factor between a rate and its estimate; a busy machine or a short text gives others
LLAMA_SHARE = 0.3  # ARITHMETIC_SHARE of llama.cpp, which dequantizes weights while multiplying
ROUNDED_BYTES = {"int8": 1.4, "int4": 0.9}  # effective bytes read per parameter and token on a CPU


@dataclass(frozen=True)
class MeasuredSpeed:
    """The measured speeds of a model on this machine, in prefill and in decoding, in tokens per second; 0 if not
    measured.
    """

    prefill: float = 0.0
    decode: float = 0.0


@dataclass(frozen=True)
class ModelEstimate:
    """Estimates how a known model runs on a machine, with its weights in the format ``weights``: full, int8, int4 or
    nf4. ``fit`` says whether there is enough free memory. Speeds are in tokens per second (0: unknown). ``measured`` is
    True if both speeds were measured on this machine. ``reason`` says why the model is recommended.
    """

    entry: CatalogEntry
    weights: str
    fit: MemoryFit
    prefill_per_second: float
    decode_per_second: float
    measured: bool = False
    reason: str = ""

    @property
    def memory(self) -> int:
        """The size of the weights in bytes."""
        return int(self.fit.need.weights)

    @property
    def needed(self) -> int:
        """The number of bytes of memory that must be free."""
        return int(self.fit.need.total)

    @property
    def fits(self) -> bool:
        """True if the needed memory is free."""
        return self.fit.fits

    @property
    def good(self) -> bool:
        """True if the model fits and is fast enough, in prefill and in decoding."""
        return self.fits and self.decode_per_second >= MIN_DECODE and self.prefill_per_second >= MIN_PREFILL

    @property
    def name(self) -> str:
        """The name of the model, which is the value for ``--model``."""
        return self.entry.name

    @property
    def title(self) -> str:
        """The model's name as its makers write it."""
        return self.entry.title

    @property
    def bytes(self) -> int:
        """The approximate size of the download in bytes."""
        return self.entry.bytes


def correct(machine: Machine, known: Mapping[str, CatalogEntry], measured: Mapping[str, MeasuredSpeed]) -> Machine:
    """Returns ``machine`` with its bandwidth and arithmetic rate derived from the measured speeds of one model: the
    largest ``known`` model in ``measured``. The speeds of other models are estimated from these rates.
    """
    ran = [known[name] for name in measured if name in known]
    if not (ran and all(vars(machine.rates).values())):
        return machine
    entry = max(ran, key=lambda e: e.used_parameters)
    speed, rates = measured[entry.name], machine.rates
    arithmetic = speed.prefill * 2 * entry.used_parameters / ARITHMETIC_SHARE
    seconds = 1 / speed.decode - DECODE_OVERHEAD if speed.decode else 0
    bandwidth = _bytes_read(entry, machine, "full") / BANDWIDTH_SHARE / seconds if seconds > 0 else 0
    return replace(machine, rates=Rates(_near(bandwidth, rates.bandwidth), _near(arithmetic, rates.arithmetic)))


def with_speed(e: ModelEstimate, speed: MeasuredSpeed | None) -> ModelEstimate:
    """Returns the estimate with measured speeds in place of estimated ones."""
    if not speed:
        return e
    prefill, decode = speed.prefill or e.prefill_per_second, speed.decode or e.decode_per_second
    measured = bool(speed.prefill and speed.decode)
    return replace(e, prefill_per_second=prefill, decode_per_second=decode, measured=measured)


def usefulness(e: ModelEstimate | None) -> tuple[int, float]:
    """Returns a sort key for estimates: good models first (largest first), then models that fit (fastest first), then
    models that do not fit (smallest first), then models of unknown size (None).
    """
    if not e:
        return 3, 0
    if not e.fits:
        return 2, e.needed
    return (0, -e.entry.comparable_parameters) if e.good else (1, -e.decode_per_second)


def estimate(entry: CatalogEntry, machine: Machine, weights: str = "full") -> ModelEstimate:
    """Estimate how the model ``entry`` runs on ``machine`` with its weights in the format ``weights``. If the model is
    too slow or too large in that format, and good or small enough with fewer bits, the estimate is for fewer bits.
    """
    names = [weights, *_fewer_bits(machine)] if weights == "full" else [weights]
    choices = [_estimate(entry, machine, name) for name in names]
    fitting = [choice for choice in choices if choice.fits] or [min(choices, key=lambda e: e.needed)]
    return next((choice for choice in choices if choice.good), fitting[0])


def estimate_packed(entry: CatalogEntry, machine: Machine) -> ModelEstimate:
    """Estimate how llama.cpp runs the GGUF file of ``entry``, of ``entry.bytes`` bytes, on ``machine``. The weights
    stay quantized as in the file.
    """
    need = MemoryNeed(entry.bytes, kv=entry.bytes // ROOM)
    return _with_rates(entry, machine, "full", need, 2 * entry.parameters / LLAMA_SHARE, entry.bytes)


def estimate_to_json(e: ModelEstimate | None) -> dict[str, Any]:
    """Returns an estimate as JSON for ``--json``: ``weights``, ``memory_bytes``, ``needed_bytes``, ``fits_here``, and
    the prefill and decode speeds ``read_per_second`` and ``answer_per_second`` in tokens. All values are None for a
    model that is not a known chat model.
    """
    names = "weights", "memory_bytes", "needed_bytes", "fits_here", "read_per_second", "answer_per_second"
    values = (
        (e.weights, e.memory, e.needed, e.fits, round(e.prefill_per_second, 1), round(e.decode_per_second, 1))
        if e
        else (None,) * len(names)
    )
    return dict(zip(names, values, strict=True))


def describe_estimate(e: ModelEstimate, machine: Machine) -> str:
    """Returns a short description of how a model runs on ``machine``."""
    if not e.fits:
        return "too large"
    slow = "" if e.good else ", slow"
    return f"about {format_rate(e.decode_per_second)} tokens/s{slow}" if machine.rates.bandwidth else "fits"


def describe_memory(e: ModelEstimate) -> str:
    """Returns the memory that a model needs and its weight format, such as ``6.9 GiB, nf4``."""
    return format_bytes(e.needed) + ("" if e.weights == "full" else f", {e.weights}")


def format_rate(rate: float) -> str:
    """Returns a rate with two significant digits."""
    return f"{float(f'{rate:.2g}'):,.0f}" if rate >= 10 else f"{rate:.1f}"


def _near(rate: float, expected: float) -> float:
    """Returns ``rate`` limited to within MOST_OFF times of ``expected``, or ``expected`` if it is 0."""
    return min(max(rate, expected / MOST_OFF), expected * MOST_OFF) if rate else expected


def _fewer_bits(machine: Machine) -> list[str]:
    """Returns the weight formats with fewer bits that ``machine`` supports."""
    if machine.device != "cpu":
        return ["nf4"]
    return ["int8"] if machine.precision == "float32" else []


def _estimate(entry: CatalogEntry, machine: Machine, weights: str) -> ModelEstimate:
    memory = _memory(entry, machine, weights)
    if machine.device == "cpu" or not entry.kv:
        need = MemoryNeed(memory, kv=memory // ROOM)
    else:
        need = MemoryNeed(memory, entry.working, LEAST_CONTEXT * entry.kv)
    operations = 2 * entry.used_parameters / ARITHMETIC_SHARE
    return _with_rates(entry, machine, weights, need, operations, _bytes_read(entry, machine, weights))


def _with_rates(
    entry: CatalogEntry, machine: Machine, weights: str, need: MemoryNeed, operations: float, nbytes: float
) -> ModelEstimate:
    """Returns the estimate for a model that needs ``operations`` operations to prefill a token, and reads ``nbytes``
    bytes to decode one.
    """
    fit, rates = need.fit_device(machine.free), machine.rates
    if not all(vars(rates).values()):
        return ModelEstimate(entry, weights, fit, 0, 0)
    decode = 1 / (DECODE_OVERHEAD + nbytes / (BANDWIDTH_SHARE * rates.bandwidth))
    return ModelEstimate(entry, weights, fit, rates.arithmetic / operations, decode)


def _memory(entry: CatalogEntry, machine: Machine, weights: str) -> int:
    """Estimate the peak bytes while the model is loaded; ``load.loading_bytes`` computes them exactly from a model's
    files. On a CPU, transformers loads all weights before they are stored in blocks. NativeDecoder does not.
    """
    loaded = entry.bytes if machine.precision != "float32" else 4 * entry.parameters
    if machine.device == "cpu" and entry.family not in NATIVE_FAMILIES:
        return loaded
    if weights == "full":
        return entry.bytes if machine.device == "cpu" else loaded
    if weights == "nf4" and entry.nf4:
        return entry.nf4
    return int(entry.parameters * BITS[weights] / 8 + 0.1 * entry.bytes)  # embeddings are not quantized


def _bytes_read(entry: CatalogEntry, machine: Machine, weights: str) -> float:
    """Returns the bytes of weights that are read to decode a token. On a CPU, 16-bit weights are read as they are,
    without a float32 copy.
    """
    if weights == "full":
        return entry.used_parameters * (4 if machine.precision == "float32" and machine.device != "cpu" else 2)
    return entry.used_parameters * (ROUNDED_BYTES[weights] if machine.device == "cpu" else BITS[weights] / 8)
