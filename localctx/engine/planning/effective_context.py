"""The effective context: the length up to which a model answers as well from a whole text as from its passages.

A window is what a model can read, not what it can use (RULER, arXiv:2404.06654). The effective context is measured for
models of the catalogue or by ``localctx quality --context``, and estimated for other models.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from localctx.models.adapter import Adapter
from localctx.models.base import Model
from localctx.models.catalog import load_catalog
from localctx.settings import Settings

MEASURED = "effective context"
"""Name of this measurement among a model's quality results."""

ESTIMATES = ((0.3e9, 256), (1e9, 1_024), (2e9, 2_048), (5e9, 8_192), (16e9, 16_384), (float("inf"), 32_768))
"""(parameters, tokens): the estimate for models below that many parameters, about half of what was measured for such
models.
"""


@dataclass(frozen=True)
class EffectiveContext:
    """The maximum length, in tokens, of documents that are read whole. For documents of up to ``tokens`` tokens, a
    question attends to the whole text; ``source`` says where this number comes from. Documents of up to ``focused``
    tokens are read whole too, but a question attends only to their best passages (0: not measured).
    """

    tokens: int
    source: Literal["setting", "measured here", "reader", "catalogue", "guess"]
    focused: int = 0

    @property
    def whole(self) -> int:
        """The maximum number of tokens of documents that are read whole: the greater of ``tokens`` and ``focused``."""
        return max(self.tokens, self.focused)

    @property
    def description(self) -> str:
        """A description for the user, such as ``4,096 tokens (as measured here)``."""
        origin = {
            "guess": " (a cautious guess from its size: localctx quality --context measures it)",
            "setting": " (as you set it)",
            "measured here": " (as measured here)",
        }
        return f"{self.whole:,} tokens{origin.get(self.source, '')}"


def effective_context(
    settings: Settings, model: Model, measured: Callable[[], dict[str, Any] | None], adapter: Adapter | None = None
) -> EffectiveContext:
    """Returns the effective context of ``model`` from the first source that has one. The sources are, in order: the
    setting, the report that ``measured`` returns (None if nothing was measured on this machine), a value that was
    measured with the ``adapter``, the catalogue, and an estimate.
    """
    if settings.effective_context:
        return EffectiveContext(settings.effective_context, "setting")
    focused = adapter.measured_count("focused") if adapter else 0
    if report := measured():
        return EffectiveContext(int(report["effective"]), "measured here", focused)
    if adapter and (tokens := adapter.measured_count("effective")):
        return EffectiveContext(tokens, "reader", focused)
    entry = load_catalog().get(settings.model)
    if entry and entry.effective:
        return EffectiveContext(entry.effective, "catalogue")
    return EffectiveContext(min(estimate_effective_context(model.parameters), model.trained), "guess")


def estimate_effective_context(parameters: int) -> int:
    """Returns the estimated effective context, in tokens, of a model with this many parameters."""
    return next(tokens for below, tokens in ESTIMATES if parameters < below)
