"""Model advice: says which known models a machine can run, and which one is best."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from localctx.errors import format_bytes
from localctx.machine import Machine, measure_machine
from localctx.models.catalog import CatalogEntry, load_catalog
from localctx.models.choice.device_choice import pick_device, pick_dtype
from localctx.models.choice.model_estimate import (
    MIN_DECODE,
    MeasuredSpeed,
    ModelEstimate,
    correct,
    estimate,
    estimate_to_json,
    format_rate,
    with_speed,
)
from localctx.models.hub.installed import folder_name, is_complete
from localctx.models.quantized.weight_formats import refuse_weights
from localctx.settings import Settings


@dataclass(frozen=True)
class Advice:
    """The models that a machine can run, and the recommended one. ``models`` has the estimates of all known chat models
    by name; ``best`` is the estimate of the recommended model. ``is_installed`` says whether the recommended model is
    installed, and ``is_selected`` whether the settings name it. ``machine`` has the rates on which the estimates are
    based, corrected by measured speeds.
    """

    machine: Machine
    models: dict[str, ModelEstimate]
    best: ModelEstimate
    is_installed: bool
    is_selected: bool

    def to_json(self) -> dict[str, Any]:
        """Returns the advice as JSON for ``--json``. Sizes are in bytes, rates in bytes, operations or tokens per
        second.
        """
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
        """Returns the recommendation in one line, with the commands that download and select the model."""
        machine, model = describe_machine(self.machine), describe_recommendation(self)
        return f"recommended for this machine ({machine}): {model}. {self._how()}"

    def _how(self) -> str:
        name, more = self.best.name, "" if self.best.weights == "full" else f" --weights {self.best.weights}"
        if self.is_selected and self.is_installed:
            return "It is what answers now"
        get = "" if self.is_installed else f"Get it: localctx models pull {name}; then it"
        return f"{get or 'It'} is used with --model {name}{more}, or for good: localctx models use {name}{more}"


def advise(
    settings: Settings,
    *,
    own_bytes: int = 0,
    remeasure: bool = False,
    measured: Mapping[str, MeasuredSpeed] | None = None,
) -> Advice:
    """Returns advice for this machine under ``settings``, without using the network. ``own_bytes``, the memory that
    this process uses, counts as free. With ``remeasure``, the rates of the machine are measured again. ``measured`` are
    measured speeds by model name: they replace the estimates for these models and correct the estimates for the others.
    Raises ModelError for a device or precision that does not exist.
    """
    device = pick_device(settings.device)
    precision = pick_dtype(settings.dtype, device)
    wanted = _wanted_weights(settings, device)
    refuse_weights(wanted or "full", device, precision)
    machine = measure_machine(device, precision, settings.home, own_bytes=own_bytes, remeasure=remeasure)
    known, speeds = load_catalog(), measured or {}
    corrected = correct(machine, known, speeds)
    models = {
        e.name: with_speed(estimate(e, corrected, wanted or _own_weights(e, device)), speeds.get(e.name))
        for e in known.values()
        if e.kind == "chat"
    }
    best = recommend(models.values())
    return Advice(
        corrected,
        models,
        best,
        is_complete(settings.models / folder_name(best.name)),
        settings.model == best.name and (not wanted or wanted == best.weights),
    )


def _wanted_weights(settings: Settings, device: torch.device) -> str:
    """Returns the weight format in the settings, or an empty text if it is the one that ``auto`` selects."""
    entry = load_catalog().get(settings.model)
    usual = _own_weights(entry, device) if entry else "full"
    return "" if settings.weights in ("auto", usual) else settings.weights


def _own_weights(entry: CatalogEntry, device: torch.device) -> str:
    """Returns the weight format that ``auto`` selects for the model on ``device``."""
    return (entry.weights if device.type == "cpu" else "") or "full"


def recommend(chats: Iterable[ModelEstimate]) -> ModelEstimate:
    """Returns the estimate of the model to recommend, with the reason: the largest chat model that fits and is fast
    enough, or the smallest one if none is.
    """
    by_size = sorted(chats, key=lambda e: e.entry.comparable_parameters)
    best = next((e for e in reversed(by_size) if e.good), by_size[0])
    larger = [e for e in by_size if e.entry.comparable_parameters > best.entry.comparable_parameters]
    return replace(best, reason=_reason(best, larger[0] if larger else None))


def describe_machine(machine: Machine) -> str:
    """Returns a short description of a machine."""
    rate = f"{machine.rates.bandwidth / 1e9:,.0f} GB/s"
    if machine.device == "cpu":
        return f"{format_bytes(machine.free)} of memory free, no GPU, {rate}"
    return f"{format_bytes(machine.free)} of memory free on {machine.hardware}, {rate}"


def describe_recommendation(advice: Advice) -> str:
    """Returns a short description of the recommended model."""
    best = advice.best
    where = "installed" if advice.is_installed else f"{format_bytes(best.bytes)} to download"
    packed = "" if best.weights == "full" else f" with {best.weights} weights"
    prefill, decode = format_rate(best.prefill_per_second), format_rate(best.decode_per_second)
    speed = f"reads about {prefill} and answers about {decode} tokens a second (estimates)"
    speed = speed if best.decode_per_second else "at an unknown speed"  # no free memory to measure it
    return f"{best.title}{packed}, {where}, {speed}"


def _reason(best: ModelEstimate, next_larger: ModelEstimate | None) -> str:
    if not best.good:
        return f"no larger known model is expected to fit here and to answer {MIN_DECODE} tokens a second"
    why = f"it is the largest known model that fits and answers at least {MIN_DECODE} tokens a second"
    if not next_larger:
        return why
    title = next_larger.entry.title
    if not next_larger.fits:
        return f"{why}; the next, {title}, needs {format_bytes(next_larger.needed)} of memory"
    if next_larger.decode_per_second < MIN_DECODE:
        return f"{why}; the next, {title}, would answer about {format_rate(next_larger.decode_per_second)}"
    return f"{why}; the next, {title}, would read only about {format_rate(next_larger.prefill_per_second)} a second"
