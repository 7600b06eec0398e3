"""``quality --bits``: measures the loss of low-bit weights of localctx and of llama.cpp."""

from typing import TYPE_CHECKING, Any

from localctx.errors import UsageError, format_bytes

if TYPE_CHECKING:
    from localctx.cli.terminal import Terminal
    from localctx.quality.gate import QualityGate, QualityResult
    from localctx.quality.weights_quality import WeightsResult
    from localctx.session import Session
    from localctx.settings import Settings


def refuse_few_bits(settings: "Settings") -> None:
    """Raise UsageError if the settings choose weights that already have few bits."""
    if settings.weights != "full":
        raise UsageError(f"--bits compares with 16 bits, not with {settings.weights} weights", "use --weights full")


def measure_bits(
    session: "Session", terminal: "Terminal", gate: "QualityGate", reference: "QualityResult"
) -> list["WeightsResult"]:
    """Measure all weight formats with few bits, of localctx and of llama.cpp, and print each result.

    Returns the results. The first is ``reference``, the quality of full weights, with which all others are compared.
    ``gate`` measures the divergence.
    """
    from localctx.quality.weights_quality import WeightsComparison, WeightsResult

    model = session.paged_model
    full = WeightsResult("localctx full", model.nbytes, reference.divergence, reference.seconds)
    compared = WeightsComparison(model, session.settings, gate, terminal.show, terminal.say)
    results = [full]
    for result in compared.run():
        results.append(result)
        terminal.say(f"{result.name}: KL {result.divergence.kl_mean:.5f}, top-1 {result.divergence.top1:.1%}")
    return results


def bits_row(result: "WeightsResult") -> dict[str, Any]:
    """Returns the row of the printed table for one weight format."""
    d = result.divergence
    numbers = {"KL MEAN": f"{d.kl_mean:.5f}", "KL P99": f"{d.kl_p99:.4f}", "TOP-1": f"{d.top1:.1%}"}
    size = format_bytes(result.nbytes)
    return {"WEIGHTS": result.name, "SIZE": size, **numbers, "PERPLEXITY": f"{d.perplexity:.3f}"}
