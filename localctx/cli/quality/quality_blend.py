"""``quality --blend``: measures the loss of combining passages that were read separately."""

from typing import TYPE_CHECKING, Any

from localctx.cli.printing import print_text

if TYPE_CHECKING:
    from localctx.cli.terminal import Terminal
    from localctx.quality.blend_quality import BlendResult
    from localctx.quality.variants import Setup
    from localctx.session import Session


def measure_blending(
    session: "Session", setup: "Setup", terminal: "Terminal", text: str, codec: str, count: int, as_json: bool
) -> None:
    """Measure the quality of blending: prompts made of passages that were read separately. Each of BLENDINGS, which
    differ in how many tokens of a passage are read again, is measured on ``count`` passages of ``text`` in ``codec``.
    ``setup`` has the model, its prefill chunk, the limits of its caches, and the folder for spilled pages.

    The store records for each blending whether it passed, and the results are printed. Raises UsageError for a model
    with layers that do not keep every token (recurrent states or sliding windows), because such a model cannot blend.
    """
    from localctx.cli.terminal import print_json, table
    from localctx.engine.blending import no_blending
    from localctx.quality.blend_quality import LENGTH, BlendGate

    if not session.runtime.can_blend:
        raise no_blending(session.settings.model)
    results = []
    for result in BlendGate(setup, codec, text, count, terminal.show).run():
        results.append(result)
        _store(session, codec, result)  # at once, so that Ctrl-C loses no result
    terminal.clear()
    if as_json:
        report = {"model": session.settings.model, "codec": codec, "passages": count, "tokens": count * LENGTH}
        print_json({**report, "blendings": [r.to_json() for r in results]})
        return
    print_text(table([_row(r) for r in results]))
    terminal.say(f"{count} passages of {LENGTH} tokens in {codec}; READ AGAIN: of each its first tokens, and the part")
    terminal.say("of the others that deviates most; TOKENS and SECONDS are those of a prompt without its question")


def _store(session: "Session", codec: str, result: "BlendResult") -> None:
    from localctx.store.store import store_errors

    if result.blending:
        key = result.blending.key(session.model.fingerprint(codec))
        with store_errors(session.settings.home):
            what = f"{codec} blend {result.name}"
            session.store.quality_results.note(key, session.settings.model, what, result.passed, result.to_json())


def _row(r: "BlendResult") -> dict[str, Any]:
    d, marks = r.divergence, "".join("+" if found else "-" for found in r.needles)
    return {
        "READ AGAIN": r.name if r.blending else "all",
        "TOKENS": f"{r.read:,}",
        "REUSED": f"{r.reused:,}",
        "SECONDS": f"{r.seconds:.2f}",
        "KL MEAN": f"{d.kl_mean:.5f}",
        "KL P99": f"{d.kl_p99:.4f}",
        "TOP-1": f"{d.top1:.1%}",
        "PERPLEXITY": f"{d.perplexity:.3f}",
        "NEEDLES": f"{sum(r.needles)}/{len(marks)} {marks}",
        "PASSED": "yes" if r.passed else "no",
    }
