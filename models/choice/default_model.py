"""Chooses the model and its weights if the settings ``model`` and ``weights`` are ``auto``."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import version

from localctx.budget import measure_ram
from localctx.models.catalog import DEFAULT, FALLBACK, CatalogEntry, load_catalog
from localctx.models.hub.installed import folder_name, is_complete
from localctx.settings import Settings, is_on

LITTLE_MEMORY = 2_000_000_000  # bytes; with less free memory the default model would push other programs out
ROOM = 0.5  # share of all memory that the weights of a larger model may take


def choose_model(settings: Settings) -> Settings:
    """Returns ``settings`` with the model and weights that ``auto`` stands for. Takes milliseconds.

    The model is the largest installed catalogue model that fits into memory and is not smaller than the default model;
    without one, it is the default model. ``FALLBACK`` replaces the default if there is little free memory, or offline
    if only ``FALLBACK`` is installed. The weights are those that the catalogue names for a CPU, or ``full`` on a GPU.
    """
    if settings.model == "auto":
        settings = replace(settings, model=_choose_name(settings))
    if settings.weights == "auto":
        settings = replace(settings, weights=_choose_weights(settings))
    return settings


def _choose_name(settings: Settings) -> str:
    known, installed = load_catalog(), list(_installed(settings))
    large = [entry for entry in installed if entry.comparable_parameters >= known[DEFAULT].comparable_parameters]
    best = max(large, key=lambda entry: entry.comparable_parameters, default=known[DEFAULT])
    little = best.name == DEFAULT and measure_ram().free < LITTLE_MEMORY
    only_fallback = is_on(settings.offline) and best not in installed and known[FALLBACK] in installed
    return FALLBACK if little or only_fallback else best.name


def _installed(settings: Settings) -> Iterator[CatalogEntry]:
    """Yields the installed chat models that fit into memory."""
    memory = measure_ram().total
    for entry in load_catalog().values():
        fits = entry.kind == "chat" and entry.bytes <= ROOM * memory
        if fits and is_complete(settings.models / folder_name(entry.name)):
            yield entry


def _choose_weights(settings: Settings) -> str:
    entry = load_catalog().get(settings.model)
    possible = entry and entry.weights and settings.engine != "llama.cpp" and settings.dtype in ("auto", "f32", "bf16")
    return entry.weights if entry and possible and _computes_on_processor(settings.device) else "full"


def _computes_on_processor(device: str) -> bool:
    """Returns True if the setting ``device`` selects the CPU. Imports torch, which takes seconds, only if it is a CUDA
    build.
    """
    if device != "auto":
        return device == "cpu"
    if sys.platform == "darwin" or version("torch").endswith("+cpu"):
        return True
    import torch

    return not torch.cuda.is_available()
