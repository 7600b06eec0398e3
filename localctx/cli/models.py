"""``models``: those known, and those here."""

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from localctx.cli.common import as_json_option, as_typed, quiet_option, settings_of
from localctx.errors import ModelError, format_bytes

if TYPE_CHECKING:
    from localctx.models.catalog import CatalogEntry
    from localctx.models.model_advice import Advice
    from localctx.models.resolve import InstalledModel


@click.group()
def models() -> None:
    """The models localctx knows, and those on this machine."""


@models.command("list")
@as_json_option
def models_list(as_json: bool) -> None:
    """List known models, how fast they would be here, and those on this machine.

    The star is at the one recommended for this machine. Nothing is asked of the network, and speeds are estimates.

    \b
    localctx models list
    """
    from localctx.cli.terminal import print_json, table

    advice, why = _advice()
    rows = _rows(advice)
    if as_json:
        print_json(rows)
        return
    print(table([_shown(r, advice) for r in rows]))
    print(f"\n{why[:1].upper()}{why[1:]}")
    if advice:
        print(f"Why: {advice.best.reason}")


def _advice() -> "tuple[Advice | None, str]":
    """What this machine can run, and in a line, or why that is not known."""
    from localctx.models.model_advice import advise

    try:
        advice = advise(settings_of({}))
        return advice, as_typed(advice.line())
    except ModelError as e:
        return None, f"what this machine can run is not known: {e}"


def _rows(advice: "Advice | None") -> list[dict[str, Any]]:
    """Each model that is known or here."""
    from localctx.models.catalog import load_catalog
    from localctx.models.resolve import list_installed

    here, known = {m.name: m for m in list_installed(settings_of({}).models)}, load_catalog()
    others = [_other(m) for m in here.values() if m.name not in known]
    return [_known(e, here.get(e.name), advice) for e in known.values()] + others


def _known(e: "CatalogEntry", here: "InstalledModel | None", advice: "Advice | None") -> dict[str, Any]:
    from localctx.models.model_advice import estimate_to_json

    estimate = advice.models.get(e.name) if advice else None
    return {
        "name": e.name,
        "kind": e.kind,
        "licence": e.licence,
        "context": e.context,
        "longer": [asdict(w) for w in e.longer],
        "bytes": here.bytes if here else e.bytes,
        "gpu_gib": e.fits,
        "here": here is not None,
        **estimate_to_json(estimate),
        "recommended": bool(advice and advice.best.name == e.name),
    }


def _other(m: "InstalledModel") -> dict[str, Any]:
    """A model that is on this machine, and that the catalogue does not know."""
    from localctx.models.model_advice import estimate_to_json

    nothing = {"kind": "", "licence": "", "context": 0, "longer": []}
    known = {"bytes": m.bytes, "gpu_gib": 0, "here": True, **estimate_to_json(None), "recommended": False}
    return {"name": m.name, **nothing, **known}


def _shown(r: dict[str, Any], advice: "Advice | None") -> dict[str, str]:
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
@click.option("--weights", metavar="HOW", help="Its weights from now on: full, int8, nf4 (GPU).")
def models_use(name: str, weights: str | None) -> None:
    """Answer with model NAME from now on: one of the list, one on this machine, a folder or a GGUF file.

    It is written into settings.toml, as the window does it. Where it is not here yet, the next question fetches it.

    \b
    localctx models use qwen3-1.7b
    """
    from localctx.models.resolve import check_known
    from localctx.settings import overrides, save_settings, variable

    settings = settings_of({})
    chosen, here = check_known(name, settings.models)
    save_settings(settings.home, {"model": chosen} | ({"weights": weights} if weights else {}))
    more = (
        ""
        if here
        else as_typed(f"; it is not here yet: localctx models pull {chosen}, or the next question fetches it")
    )
    print(f"{chosen} is used from now on{more}")
    if "model" in overrides():
        print(f"localctx: {variable('model')} is set in the environment, and wins over that", file=sys.stderr)


@models.command("pull")
@click.argument("name")
@quiet_option
def models_pull(name: str, quiet: bool) -> None:
    """Fetch model NAME (of the list, or owner/name on the Hugging Face hub) and make it ready to load.

    \b
    localctx models pull smollm2-135m-instruct
    """
    from localctx.cli.terminal import Terminal
    from localctx.engine.events import Progress
    from localctx.models.resolve import pull

    terminal = Terminal(quiet=quiet)
    try:
        path = pull(name, settings_of({}).models, lambda *p: terminal.show(Progress(*p)))
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

    print(f"{name} removed, {format_bytes(remove(name, settings_of({}).models))} freed")
