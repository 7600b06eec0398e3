"""``models``: lists, chooses, downloads and deletes models."""

from contextlib import closing, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from localctx.cli.common import as_json_option, quiet_option, settings_from, with_launcher
from localctx.cli.printing import print_error, print_line, print_text
from localctx.cli.sections import setting_option
from localctx.errors import ModelError, StoreError, format_bytes

if TYPE_CHECKING:
    from localctx.models.catalog import CatalogEntry
    from localctx.models.choice.model_advice import Advice
    from localctx.models.choice.model_estimate import MeasuredSpeed
    from localctx.models.hub.resolve import InstalledModel


@click.group()
def models() -> None:
    """Manage the models that localctx knows, and those on this machine."""


@models.command("list")
@as_json_option
def models_list(as_json: bool) -> None:
    """List known models and those on this machine, the best for it first.

    WINDOW is the longest context that a model was made for, in tokens. NEEDS is the memory for weights and a short
    context, with int8 weights on a processor or nf4 on a GPU where only these fit; localctx plan says more. A star
    marks the model recommended for this machine. No network is used.

    \b
    localctx models list
    """
    from localctx.cli.terminal import print_json, table

    advice, why = _advice()
    rows = _rows(advice)
    if as_json:
        print_json(rows)
        return
    print_text(table([_table_row(r, advice) for r in rows]))
    print_line("")
    print_line(f"{why[:1].upper()}{why[1:]}")
    if advice:
        print_line(f"Why: {advice.best.reason}")


def _advice() -> "tuple[Advice | None, str]":
    """Returns the advice for this machine and the same advice as one line. If there is none, returns None and the
    reason.
    """
    from localctx.models.choice.model_advice import advise

    settings = settings_from({})
    try:
        advice = advise(settings, measured=_measured(settings.home))
        return advice, with_launcher(advice.line())
    except ModelError as e:
        return None, f"what this machine can run is not known: {e}"


def _measured(home: Path) -> "dict[str, MeasuredSpeed]":
    """Returns the speeds measured for models on this machine, or nothing if no store can be read."""
    from localctx.engine.model_speeds import measured_speeds
    from localctx.store.store import Store

    with suppress(StoreError):
        if Store.is_at(home):
            with closing(Store(home)) as store:
                return measured_speeds(store)
    return {}


def _rows(advice: "Advice | None") -> list[dict[str, Any]]:
    """Returns a row for each model of the catalogue, and for each other model on this machine."""
    from localctx.models.catalog import load_catalog
    from localctx.models.hub.resolve import list_installed

    local, known = {m.name: m for m in list_installed(settings_from({}).models)}, load_catalog()
    others = [_other(m) for m in local.values() if m.name not in known]
    return [_known(e, local.get(e.name), advice) for e in _sorted(list(known.values()), advice)] + others


def _sorted(entries: "list[CatalogEntry]", advice: "Advice | None") -> "list[CatalogEntry]":
    """Returns known models, ordered by what this machine can run, with search models at the end."""
    from localctx.models.choice.model_estimate import usefulness

    return sorted(entries, key=lambda e: usefulness(advice.models.get(e.name))) if advice else entries


def _known(e: "CatalogEntry", local: "InstalledModel | None", advice: "Advice | None") -> dict[str, Any]:
    from localctx.models.choice.model_estimate import estimate_to_json

    estimate = advice.models.get(e.name) if advice else None
    return {
        "name": e.name,
        "kind": e.kind,
        "licence": e.licence,
        "terms": e.terms or None,
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
    """Returns the row of a model on this machine that is not in the catalogue."""
    from localctx.models.choice.model_estimate import estimate_to_json

    nothing: dict[str, Any] = {"kind": "", "licence": "", "terms": None, "context": 0, "longer": []}
    known = {"bytes": m.bytes, "gpu_gib": 0, "here": True, **estimate_to_json(None), "recommended": False}
    known["reader"] = None
    return {"name": m.name, **nothing, **known}


def _table_row(r: dict[str, Any], advice: "Advice | None") -> dict[str, str]:
    from localctx.models.choice.model_estimate import describe_estimate, describe_memory

    estimate = advice.models.get(r["name"]) if advice else None
    return {
        "NAME": r["name"] + " *" * r["recommended"],
        "HERE": "yes" if r["here"] else "",
        "FOR": {"chat": "answers", "embedder": "search"}.get(r["kind"], ""),
        "SIZE": format_bytes(r["bytes"]),
        "WINDOW": f"{r['context']:,}" if r["context"] else "",
        "NEEDS": describe_memory(estimate) if estimate else "",
        "ON THIS MACHINE": describe_estimate(estimate, advice.machine) if advice and estimate else "",
        "LICENCE": r["licence"] + " (not open source)" * bool(r["terms"]),
    }


@models.command("use")
@click.argument("name")
@setting_option("weights")
def models_use(name: str, weights: str | None) -> None:
    """Use model NAME from now on: one of the list, one on this machine, a folder or a GGUF file.

    The choice is saved in settings.toml, which the window uses too; so is the format of the weights, if --weights names
    one. A model that is not on this machine is downloaded with the next question. If its licence is not open source,
    that question fails, and names the command that shows the terms and downloads the model.

    \b
    localctx models use qwen3-1.7b
    """
    from localctx.models.hub.resolve import check_known
    from localctx.settings import overrides, save_settings, variable

    settings = settings_from({})
    chosen, present = check_known(name, settings.models)
    save_settings(settings.home, {"model": chosen} | ({"weights": weights} if weights else {}))
    print_line(f"{chosen} is used from now on{'' if present else with_launcher(_how_to_get(chosen))}")
    if "model" in overrides():
        print_error(f"localctx: {variable('model')} is set in the environment, and overrides this")


def _how_to_get(name: str) -> str:
    from localctx.models.catalog import describe_terms, load_catalog

    entry = load_catalog().get(name)
    rest = f" ({describe_terms(entry)})" if entry and entry.terms else ", or the next question downloads it"
    return f"; it is not here yet: localctx models pull {name}{rest}"


@models.command("pull")
@click.argument("name")
@quiet_option
def models_pull(name: str, quiet: bool) -> None:
    """Download model NAME (of the list, or owner/name on the Hugging Face hub) and make it ready to load.

    A licence that is not open source is said before the download, which Ctrl-C stops.

    \b
    localctx models pull smollm2-135m-instruct
    """
    from localctx.cli.terminal import Terminal
    from localctx.engine.events import Progress
    from localctx.models.catalog import describe_terms, load_catalog
    from localctx.models.hub.resolve import pull

    terminal = Terminal(quiet=quiet)
    if (entry := load_catalog().get(name)) and entry.terms:
        print_error(f"localctx: {describe_terms(entry)}")
    try:
        path = pull(name, settings_from({}).models, lambda *p: terminal.show(Progress(*p)))
    finally:
        terminal.clear()
    print_line(path)


@models.command("rm")
@click.argument("name")
def models_rm(name: str) -> None:
    """Delete model NAME from this machine.

    \b
    localctx models rm smollm2-135m-instruct
    """
    from localctx.models.hub.resolve import remove

    print_line(f"{name} removed, {format_bytes(remove(name, settings_from({}).models))} freed")
