"""The effective context: the length up to which a model answers from a whole text as well as from passages of it.

A window is what a model can read, not what it can use (RULER, arXiv:2404.06654). The effective context is measured, for
models of the catalogue or by ``localctx quality --context``; for a model that was never measured it is estimated.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from localctx.models.adapter import Adapter
from localctx.models.base import Model
from localctx.models.catalog import load_catalog
from localctx.settings import Settings

MEASURED = "effective context"
"""The name of this measurement among a model's quality results."""

ESTIMATES = ((0.3e9, 256), (1e9, 1_024), (2e9, 2_048), (5e9, 8_192), (16e9, 16_384), (float("inf"), 32_768))
"""(parameters, tokens) for models with fewer parameters than that: about half of what was measured for such models."""


@dataclass(frozen=True)
class EffectiveContext:
    """The most ``tokens`` of documents that are read whole, and where that number comes from."""

    tokens: int
    source: Literal["setting", "measured here", "reader", "catalogue", "guess"]

    @property
    def description(self) -> str:
        """Such as ``4,096 tokens (as measured here)``."""
        origin = {
            "guess": " (a cautious guess from its size: localctx quality --context measures it)",
            "setting": " (as you set it)",
            "measured here": " (as measured here)",
        }
        return f"{self.tokens:,} tokens{origin.get(self.source, '')}"


def effective_context(
    settings: Settings, model: Model, measured: Callable[[], dict[str, Any] | None], adapter: Adapter | None = None
) -> EffectiveContext:
    """Returns the effective context of ``model``: the setting, else what was ``measured`` on this machine, else what
    was measured with the ``adapter`` that answers, else the catalogue's, else an estimate.
    """
    if settings.effective_context:
        return EffectiveContext(settings.effective_context, "setting")
    if report := measured():
        return EffectiveContext(int(report["effective"]), "measured here")
    if adapter and (tokens := adapter.measured_count("effective")):
        return EffectiveContext(tokens, "reader")
    entry = load_catalog().get(settings.model)
    if entry and entry.effective:
        return EffectiveContext(entry.effective, "catalogue")
    return EffectiveContext(min(estimate_effective_context(model.parameters), model.trained), "guess")


def estimate_effective_context(parameters: int) -> int:
    """Returns an effective context, in tokens, for a model with this number of parameters."""
    return next(tokens for below, tokens in ESTIMATES if parameters < below)
