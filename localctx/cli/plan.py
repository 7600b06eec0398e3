"""``plan``: prints the memory of a model and its KV cache, and the longest context that fits."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from localctx.cli.common import as_json_option, model_options, settings_from
from localctx.cli.printing import print_line, print_text
from localctx.cli.sections import SectionedCommand
from localctx.errors import UsageError, format_bytes

_NAMES = {
    "multi-query": "multi-query attention",
    "grouped-query": "grouped-query attention",
    "latent": "keeping latents (MLA)",
}


@click.command(cls=SectionedCommand)
@click.option("--config", metavar="FILE", help="A transformers config.json in place of --model; no weights are needed.")
@click.option("--context", type=int, metavar="N", help="Tokens of context (the model's window).")
@click.option("--device-memory", metavar="SIZE", help="Plan for a device with this much free memory, as 24GiB.")
@model_options
@as_json_option
def plan(config: str | None, context: int | None, device_memory: str | None, as_json: bool, **flags: Any) -> None:
    """Show the memory of a model and its KV cache, and the longest context that fits.

    \b
    localctx plan --model smollm2-135m-instruct --memory 100MiB
    localctx plan --config config.json --context 32768 --kv bf16 --device cuda --device-memory 80GiB
    """
    if config is not None and flags["model"] is not None:
        raise UsageError("--model and --config cannot be combined", "give one of them")
    if context is not None and context < 1:
        raise UsageError(f"--context {context} is too small", "give it in tokens, 1 or more")
    from localctx.settings import load_settings, parse_size

    settings = settings_from(flags) if config is None else load_settings(**flags)
    from localctx.cli.terminal import print_json
    from localctx.engine.planning.capacity import plan_memory

    memory = None if device_memory is None else parse_size(device_memory, "device-memory")
    if memory is not None and settings.weights == "nf4" and settings.device == "auto":
        settings = replace(settings, device="cuda")  # a device for which these weights can be planned
    report = plan_memory(settings, Path(config).expanduser() if config else None, context, memory).to_json()
    if as_json:
        print_json(report)
    else:
        _print_report(report)


def _print_report(r: dict[str, Any]) -> None:
    from localctx.cli.terminal import table

    kv, limits = r["kv"], r["limits"]
    free = format_bytes(r["free_bytes"])
    print_line(f"{r['model']} ({r['family']}), {r['context']:,} tokens on {r['device']} with {free} free")
    stored = r["weights_dtype"] if r["weights"] == "full" else r["weights"]
    print_line(f"weights      {format_bytes(r['weights_bytes'])} in {stored}")
    if r["adapter_bytes"]:
        print_line(f"adapter      {format_bytes(r['adapter_bytes'])}")
    if r["engine"] == "llama.cpp":
        print_line("adapter      none: readers need torch")
    if gpu := r["gpu"]:
        print_line(f"GPU layers   {gpu['count']} of {gpu['of']}, with {format_bytes(gpu['weights'])} of the weights")
    source = "an estimate" if r["engine"] == "torch" else "as llama.cpp says"
    print_line(
        f"activations  {format_bytes(r['activation_bytes'])}, reading {r['chunk']:,} tokens at a time ({source})"
    )
    print_line(_kv_line(kv))
    if step := kv.get("snapshot_step"):
        print_line(
            f"             on disk the states are stored every {step:,} tokens and where a document or a turn ends"
        )
    for line in filter(None, (_attention_line(r["attention"]), _sliding_line(r["sliding"]))):
        print_line(line)
    rows = [
        {
            "KV": codec,
            "BYTES A TOKEN": r["codecs"][codec]["bytes_per_token"],
            "THIS CONTEXT": format_bytes(r["codecs"][codec]["bytes"]),
            "LARGEST CONTEXT": fits,
        }
        for codec, fits in r["fits"].items()
    ]
    print_text(f"\n{table(rows)}\n")
    print_line(
        f"limits of KV now: {format_bytes(limits['device'])} on the device, "
        f"{format_bytes(limits['host'])} in RAM beside it, {format_bytes(limits['disk'])} on disk"
    )
    print_line(_conclusion(r))
    for w in r["longer"]:
        print_line(
            f"a document that needs it is read in the tested window of {w['context']:,} tokens (--rope {w['rope']})"
        )
    if r["unfit"]:
        print_line(f"not run by this version: {r['unfit']}")


def _kv_line(kv: dict[str, Any]) -> str:
    parts = [f"{format_bytes(kv['bytes'])} in {kv['codec']}", f"{kv['bytes_per_token']:,} bytes a token"]
    if kv["later_bytes_per_token"] < kv["bytes_per_token"]:
        parts.append(f"{kv['later_bytes_per_token']:,} once sliding layers no longer see it")
    if kv.get("state_bytes"):
        parts.append(f"{format_bytes(kv['state_bytes'])} of states of other layers")
    return "KV           " + ", ".join(parts)


def _attention_line(a: dict[str, Any]) -> str:
    if a["kind"] == "multi-head":
        return f"multi-head attention: each of {a['heads']} heads keeps keys and values of its own"
    whole = f"{a['multihead_bytes_per_token']:,} bytes a token"
    saves = f"{_NAMES[a['kind']]} saves {a['saves']:g}x"
    return f"as multi-head attention with {a['heads']} KV heads it would be {whole}: {saves}"


def _sliding_line(s: dict[str, Any] | None) -> str:
    if s is None:
        return ""
    return (
        f"{s['layers']} of {s['of']} layers see only the last {s['window']:,} tokens and keep no more: "
        f"with every page of every layer it would be {format_bytes(s['uncut_bytes'])}\n"
        f"             on disk their windows are stored every {s['window_step']:,} tokens "
        "and where a document or a turn ends"
    )


def _conclusion(r: dict[str, Any]) -> str:
    codec, window = r["kv"]["codec"], r["window"]
    fits, this = r["fits"][codec], f"{r['context']:,} tokens in {codec}"
    if not fits:
        return f"{this} do not fit: weights and activations leave no room for a page"
    if r["context"] > fits:
        return f"{this} do not fit the memory: at most {fits:,} do"
    if window and r["context"] > window:
        return f"{this} fit the memory, but not the model's window of {window:,}"
    if window and fits >= window:
        return f"{this} fit; the model's window of {window:,} ends before memory does"
    return f"{this} fit; memory ends at {fits:,}" + (f", before the model's window of {window:,}" if window else "")
