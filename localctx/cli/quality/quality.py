"""``quality``: measures how much codecs and keepers change answers, on a text with a model."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from localctx.cli.common import (
    MACHINE_FLAGS,
    as_json_option,
    machine_options,
    measuring_text,
    parse_numbers,
    quiet_option,
    settings_from,
)
from localctx.cli.printing import print_line, print_text
from localctx.cli.quality.quality_bits import bits_row, measure_bits, refuse_few_bits
from localctx.cli.sections import SectionedCommand, option
from localctx.errors import UsageError, format_bytes

if TYPE_CHECKING:
    from localctx.cli.terminal import Terminal
    from localctx.quality.gate import QualityGate, QualityResult
    from localctx.quality.peer_caches import PeerResult
    from localctx.session import Session
    from localctx.settings import Settings


@click.command(cls=SectionedCommand)
@click.argument("file", required=False)
@click.option("--kv", "codecs", multiple=True, metavar="CODEC", help="Measure this codec; may be repeated (all).")
@click.option("--keep", "keeps", multiple=True, metavar="KEEPER", help="Measure this keeper; may be repeated.")
@option("--tokens", type=click.IntRange(1), default=6000, metavar="N", help="Tokens of the text to read (6000).")
@click.option("--lengths", metavar="N,N", help="Plant needles in texts with these numbers of tokens (--tokens).")
@option("--stream", "streamed", type=click.IntRange(1), metavar="N", help="Stream N tokens through one cache.")
@click.option("--blend", is_flag=True, help="Measure the loss of combining passages that were read separately.")
@option("--passages", type=click.IntRange(2, 64), default=4, metavar="N", help="Number of passages for --blend (4).")
@click.option("--context", is_flag=True, help="Measure up to which length the model answers well from whole texts.")
@click.option("--peers", is_flag=True, help="Measure transformers' own quantized caches too.")
@click.option("--bits", is_flag=True, help="Measure weights with fewer bits, localctx's and llama.cpp's.")
@click.option("--png", type=click.Path(dir_okay=False, path_type=Path), metavar="PATH", help="Write the picture here.")
@machine_options
@as_json_option
@quiet_option
def quality(
    file: str | None, codecs: tuple[str, ...], keeps: tuple[str, ...], streamed: int | None, **how: Any
) -> None:
    """Compare codecs and keepers with full precision on the text of FILE (none: localctx's own pages).

    Divergence, agreement and perplexity over the last 1,000 tokens, and needles planted at five depths. A codec
    passes with a mean divergence of at most 0.02 nats, 90 % agreement and no needle lost; the result is stored.

    --blend compares passages that were read separately and combined with the same passages read together, by the same
    rule: combining reads fewer tokens, but no passage attended to the others.

    --context asks questions made from the text at 512, 1,024, 2,048, ... tokens (up to --tokens), with the whole text
    and with passages. The last length at which the whole is as good is stored, and decides what auto reads whole. It
    is the one measurement for a GGUF that llama.cpp computes.

    --bits compares the model's weights in 16 bits with fewer: localctx's own, and llama.cpp's (pip install
    llama-cpp-python), over caches in full precision. With --kv or --peers all are measured in one run.

    \b
    localctx quality report.txt --kv int8 --kv bf16
    localctx quality novel.txt --keep full --stream 20000
    localctx quality novel.txt --blend
    localctx quality novel.txt --reading sparse
    localctx quality novel.txt --context
    localctx quality novel.txt --bits --tokens 2000
    """
    _check_codecs(codecs)
    settings = settings_from({name: how[name] for name in MACHINE_FLAGS})
    if not how["context"]:
        _check_engine(settings)
    if how["bits"]:
        refuse_few_bits(settings)
    text = measuring_text(file)
    from localctx.cli.terminal import Terminal
    from localctx.session import Session

    terminal = Terminal(how["as_json"], how["quiet"])
    with Session(settings, terminal.show) as session, terminal.cleared():
        if streamed:
            _stream(session, terminal, text, streamed, codecs, keeps, how["as_json"])
        elif how["context"]:
            from localctx.cli.quality.quality_context import measure_context, refuse_other_measurements

            refuse_other_measurements(kv=codecs, keep=keeps, blend=how["blend"], peers=how["peers"], bits=how["bits"])
            measure_context(session, terminal, text, how["tokens"], how["as_json"])
        elif how["blend"]:
            _blend(session, terminal, text, codecs, how)
        else:
            _gate(session, terminal, text, codecs, keeps, how)


def _check_codecs(codecs: tuple[str, ...]) -> None:
    from localctx.settings.kinds import invalid, one_of
    from localctx.shape import FORMATS

    for codec in codecs:
        if codec not in FORMATS:
            raise invalid("kv", codec, one_of(list(FORMATS)))


def _check_engine(settings: "Settings") -> None:
    """Raise UserError for an engine without pages of KV, before its model is loaded."""
    from localctx.models.choice.engine_choice import choose_engine

    if choose_engine(settings.model, settings.engine) == "llama.cpp":
        raise UsageError(
            "codecs and keepers cannot be measured with llama.cpp, which holds keys and values itself",
            "use --engine torch; --context measures this model too",
        )


def _gate(
    session: "Session",
    terminal: "Terminal",
    text: str,
    codecs: tuple[str, ...],
    keeps: tuple[str, ...],
    how: dict[str, Any],
) -> None:
    from localctx.quality.gate import QualityGate, first_tokens, store_result
    from localctx.quality.variants import REFERENCE, Variant, make_setup, make_variants

    lengths = parse_numbers("--lengths", how["lengths"])
    tokens = first_tokens(session.paged_model, text, max([how["tokens"], *lengths]))
    setup = make_setup(session.paged_model, session.settings, len(tokens))
    variants, needles = make_variants(codecs, keeps, session.settings.reading), lengths or [len(tokens) - 1]
    if how["bits"] and not (codecs or keeps or lengths or how["peers"]):
        variants, needles = [Variant(REFERENCE)], []  # only weights are compared
    gate = QualityGate(setup, tokens, needles, on_progress=terminal.show)
    results = list["QualityResult"]()
    for result in gate.run(variants):
        results.append(result)
        if needles:
            # stored at once, so that Ctrl-C loses no result
            store_result(session.store, session.paged_model, session.settings.model, result, len(gate.tokens))
            row = _row(result)
            terminal.say(f"{row['KV']}: KL {row['KL MEAN']}, top-1 {row['TOP-1']}, needles {row['NEEDLES']}")
    peers = _peers(session, terminal, gate) if how["peers"] else []
    bits = measure_bits(session, terminal, gate, results[0]) if how["bits"] else []
    terminal.clear()
    path = _draw(results, how["png"] or _default_path(session), session.settings.model) if needles else None
    if how["as_json"]:
        report = {"model": session.settings.model, "tokens": len(gate.tokens), "picture": path and str(path)}
        _print_json(report, variants=results, peers=peers, weights=bits)
        return
    _print_tables([*map(_row, results if needles else []), *map(_peer_row, peers)], [*map(bits_row, bits)])
    drawn = f"; needles plotted in {path}" if path else ""
    terminal.say(f"the last {len(gate.tokens) - gate.first:,} of {len(gate.tokens):,} tokens{drawn}")


def _print_json(report: dict[str, Any], **results: Sequence[Any]) -> None:
    from localctx.cli.terminal import print_json

    print_json({**report, **{name: [result.to_json() for result in found] for name, found in results.items()}})


def _print_tables(*tables: list[dict[str, Any]]) -> None:
    from localctx.cli.terminal import table

    print_text("\n\n".join(table(rows) for rows in tables if rows))


def _blend(session: "Session", terminal: "Terminal", text: str, codecs: tuple[str, ...], how: dict[str, Any]) -> None:
    from localctx.cli.quality.quality_blend import measure_blending
    from localctx.engine.planning.cache_plan import choose_codec
    from localctx.quality.blend_quality import LENGTH
    from localctx.quality.variants import make_setup

    if len(codecs) > 1:
        raise UsageError("--blend measures one codec at a time", "give one --kv")
    if session.settings.reading != "full":
        raise UsageError("--blend measures passages that were read in full", "use --reading full")
    passed, fingerprint = session.store.quality_results.passed, session.model.fingerprint
    codec = codecs[0] if codecs else choose_codec(session.paged_model.shape, lambda codec: passed(fingerprint(codec)))
    setup = make_setup(session.paged_model, session.settings, how["passages"] * LENGTH)
    measure_blending(session, setup, terminal, text, codec, how["passages"], how["as_json"])


def _peers(session: "Session", terminal: "Terminal", gate: "QualityGate") -> list["PeerResult"]:
    from localctx.models.hub.resolve import resolve_model
    from localctx.quality.peer_caches import measure_peers

    folder = resolve_model(session.settings.model, session.settings.models, lambda phase, done, total: None)
    return list(measure_peers(folder, session.paged_model, gate, terminal.show, terminal.say))


def _default_path(session: "Session") -> Path:
    name = Path(session.settings.model).name
    return session.settings.home / f"quality-{name}.png"


def _draw(results: list["QualityResult"], path: Path, model: str) -> Path:
    from localctx.quality.picture import draw_needles

    draw_needles(results, path, f"needles found: {model}")
    return path


def _row(r: "QualityResult") -> dict[str, Any]:
    d, last = r.divergence, r.needles[max(r.needles)]
    marks = "".join("+" if found else "-" for found in last)
    numbers = _numbers(r.bytes_per_token, d.kl_mean, d.kl_p99, d.top1, d.perplexity)
    verdict = "yes" if r.passed else "no"
    return {"KV": r.variant.name, **numbers, "NEEDLES": f"{sum(last)}/{len(last)} {marks}", "PASSED": verdict}


def _peer_row(p: "PeerResult") -> dict[str, Any]:
    d = p.divergence
    numbers = _numbers(p.bytes_per_token, d.kl_mean, d.kl_p99, d.top1, d.perplexity)
    return {"KV": p.name, **numbers, "NEEDLES": "", "PASSED": ""}


def _numbers(nbytes: int, kl_mean: float, kl_p99: float, top1: float, perplexity: float) -> dict[str, Any]:
    names = ("BYTES/TOKEN", "KL MEAN", "KL P99", "TOP-1", "PERPLEXITY")
    return dict(
        zip(names, (nbytes, f"{kl_mean:.5f}", f"{kl_p99:.4f}", f"{top1:.1%}", f"{perplexity:.3f}"), strict=True)
    )


def _stream(
    session: "Session",
    terminal: "Terminal",
    text: str,
    tokens: int,
    codecs: tuple[str, ...],
    keeps: tuple[str, ...],
    as_json: bool,
) -> None:
    from localctx.cli.terminal import print_json
    from localctx.quality.streaming_quality import measure_streaming
    from localctx.quality.variants import Variant, make_setup

    if max(len(codecs), len(keeps)) > 1:
        raise UsageError("--stream measures one codec and one keeper at a time", "give one --kv and one --keep")
    (codec,), (keep,) = codecs or ("int8",), keeps or ("full",)
    variant = Variant(codec, keep, session.settings.reading)
    setup = make_setup(session.paged_model, session.settings, tokens)
    s = measure_streaming(setup, text, tokens, variant, on_progress=terminal.show)
    terminal.clear()
    if as_json:
        print_json(s.to_json())
        return
    print_line(f"{variant.name}: {s.tokens:,} tokens streamed, the cache holds {format_bytes(s.cache_bytes)}")
    print_text(f"memory at a tenth {format_bytes(s.early.now)} (peak {format_bytes(s.early.peak)}), ", end="")
    print_line(f"at the end {format_bytes(s.end.now)} (peak {format_bytes(s.end.peak)})")
    print_text(f"perplexity of the last {s.scored:,} tokens {s.perplexity:.3f}; of {s.blocks} blocks of them ", end="")
    print_line(f"{s.sampled:.3f}, with a fresh window of {s.window:,} tokens {s.fresh:.3f}")
