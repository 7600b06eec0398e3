"""``models``: list, choose, download and delete models."""

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from localctx.cli.common import as_json_option, quiet_option, settings_from, with_launcher
from localctx.errors import ModelError, format_bytes

if TYPE_CHECKING:
    from localctx.models.catalog import CatalogEntry
    from localctx.models.model_advice import Advice
    from localctx.models.resolve import InstalledModel


@click.group()
def models() -> None:
    """Manage the models that localctx knows, and those on this machine."""


@models.command("list")
@as_json_option
def models_list(as_json: bool) -> None:
    """List known models, and those on this machine, with their estimated speed on it.

    A star marks the model recommended for this machine. No network is used.

    \b
    localctx models list
    """
    from localctx.cli.terminal import print_json, table

    advice, why = _advice()
    rows = _rows(advice)
    if as_json:
        print_json(rows)
        return
    print(table([_table_row(r, advice) for r in rows]))
    print(f"\n{why[:1].upper()}{why[1:]}")
    if advice:
        print(f"Why: {advice.best.reason}")


def _advice() -> "tuple[Advice | None, str]":
    """Return the advice for this machine, and the same as one line; (None, why) if there is none."""
    from localctx.models.model_advice import advise

    try:
        advice = advise(settings_from({}))
        return advice, with_launcher(advice.line())
    except ModelError as e:
        return None, f"what this machine can run is not known: {e}"


def _rows(advice: "Advice | None") -> list[dict[str, Any]]:
    """Return a row for each model of the catalogue, and for each other one on this machine."""
    from localctx.models.catalog import load_catalog
    from localctx.models.resolve import list_installed

    local, known = {m.name: m for m in list_installed(settings_from({}).models)}, load_catalog()
    others = [_other(m) for m in local.values() if m.name not in known]
    return [_known(e, local.get(e.name), advice) for e in known.values()] + others


def _known(e: "CatalogEntry", local: "InstalledModel | None", advice: "Advice | None") -> dict[str, Any]:
    from localctx.models.model_advice import estimate_to_json

    estimate = advice.models.get(e.name) if advice else None
    return {
        "name": e.name,
        "kind": e.kind,
        "licence": e.licence,
        "context": e.context,
        "longer": [asdict(w) for w in e.longer],
        "bytes": local.bytes if local else e.bytes,
        "gpu_gib": e.fits,
        "here": local is not None,
        **estimate_to_json(estimate),
        "recommended": bool(advice and advice.best.name == e.name),
        "reader": e.reader or None,
    }


def _other(m: "InstalledModel") -> dict[str, Any]:
    """Return the row of a model on this machine that is not in the catalogue."""
    from localctx.models.model_advice import estimate_to_json

    nothing = {"kind": "", "licence": "", "context": 0, "longer": []}
    known = {"bytes": m.bytes, "gpu_gib": 0, "here": True, **estimate_to_json(None), "recommended": False}
    known["reader"] = None
    return {"name": m.name, **nothing, **known}


def _table_row(r: dict[str, Any], advice: "Advice | None") -> dict[str, str]:
    from localctx.models.model_advice import describe_estimate

    estimate = advice.models.get(r["name"]) if advice else None
    return {
        "NAME": r["name"] + " *" * r["recommended"],
        "HERE": "yes" if r["here"] else "",
        "FOR": {"chat": "answers", "embedder": "search"}.get(r["kind"], ""),
        "SIZE": format_bytes(r["bytes"]),
        "WINDOW": f"{r['context']:,}" if r["context"] else "",
        "GPU": f"{r['gpu_gib']} GiB" if r["gpu_gib"] else "",
        "ON THIS MACHINE": describe_estimate(estimate, advice.machine) if advice and estimate else "",
        "LICENCE": r["licence"],
    }


@models.command("use")
@click.argument("name")
@click.option("--weights", metavar="HOW", help="The precision of its weights: full, int8, nf4 (GPU).")
def models_use(name: str, weights: str | None) -> None:
    """Use model NAME from now on: one of the list, one on this machine, a folder or a GGUF file.

    The choice is saved in settings.toml, which the window uses too. A model that is not on this machine is downloaded
    with the next question.

    \b
    localctx models use qwen3-1.7b
    """
    from localctx.models.resolve import check_known
    from localctx.settings import overrides, save_settings, variable

    settings = settings_from({})
    chosen, present = check_known(name, settings.models)
    save_settings(settings.home, {"model": chosen} | ({"weights": weights} if weights else {}))
    more = (
        ""
        if present
        else with_launcher(f"; it is not here yet: localctx models pull {chosen}, or the next question downloads it")
    )
    print(f"{chosen} is used from now on{more}")
    if "model" in overrides():
        print(f"localctx: {variable('model')} is set in the environment, and wins over that", file=sys.stderr)


@models.command("pull")
@click.argument("name")
@quiet_option
def models_pull(name: str, quiet: bool) -> None:
    """Download model NAME (of the list, or owner/name on the Hugging Face hub) and make it ready to load.

    \b
    localctx models pull smollm2-135m-instruct
    """
    from localctx.cli.terminal import Terminal
    from localctx.engine.events import Progress
    from localctx.models.resolve import pull

    terminal = Terminal(quiet=quiet)
    try:
        path = pull(name, settings_from({}).models, lambda *p: terminal.show(Progress(*p)))
    finally:
        terminal.clear()
    print(path)


@models.command("rm")
@click.argument("name")
def models_rm(name: str) -> None:
    """Delete model NAME from this machine.

    \b
    localctx models rm smollm2-135m-instruct
    """
    from localctx.models.resolve import remove

    print(f"{name} removed, {format_bytes(remove(name, settings_from({}).models))} freed")
