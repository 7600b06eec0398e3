"""The effective context: the length up to which a model answers from a whole text as well as from passages of it.

A window is what a model can read, not what it can use (RULER, arXiv:2404.06654). The effective context is measured, for
models of the catalogue or by ``localctx quality --context``; a model that was never measured gets a cautious guess.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from localctx.models.base import Model
from localctx.models.catalog import load_catalog
from localctx.settings import Settings

MEASURED = "effective context"
"""What the measurement of a model is called among its verdicts."""

GUESSES = ((0.3e9, 256), (1e9, 1_024), (2e9, 2_048), (5e9, 8_192), (16e9, 16_384), (float("inf"), 32_768))
"""Tokens for models of less than so many parameters, about half of what measured models of such sizes bear."""


@dataclass(frozen=True)
class EffectiveContext:
    """``tokens`` of documents that are read whole, and where that number comes from."""

    tokens: int
    source: Literal["setting", "measured here", "catalogue", "guess"]

    @property
    def words(self) -> str:
        """``4,096 tokens (a cautious guess from its size; localctx quality --context measures it)``."""
        doubt = {
            "guess": " (a cautious guess from its size: localctx quality --context measures it)",
            "setting": " (as you set it)",
            "measured here": " (as measured here)",
        }
        return f"{self.tokens:,} tokens{doubt.get(self.source, '')}"


def effective_context(
    settings: Settings, model: Model, measured: Callable[[], dict[str, Any] | None]
) -> EffectiveContext:
    """What counts for ``model``: the setting, what was ``measured`` on this machine, the catalogue, or a guess."""
    if settings.effective_context:
        return EffectiveContext(settings.effective_context, "setting")
    if report := measured():
        return EffectiveContext(int(report["effective"]), "measured here")
    entry = load_catalog().get(settings.model)
    if entry and entry.effective:
        return EffectiveContext(entry.effective, "catalogue")
    return EffectiveContext(min(guess(model.parameters), model.trained), "guess")


def guess(parameters: int) -> int:
    """Tokens that a model of so many parameters may bear."""
    return next(tokens for below, tokens in GUESSES if parameters < below)
