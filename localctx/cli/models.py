"""``models``: those known, and those here."""

from dataclasses import asdict
from typing import Any

import click

from localctx.cli.common import as_json_option, quiet_option, settings_of
from localctx.errors import size


@click.group()
def models() -> None:
    """The models localctx knows, and those on this machine."""


@models.command("list")
@as_json_option
def models_list(as_json: bool) -> None:
    """List known models and those on this machine.

    \b
    localctx models list
    """
    from localctx.cli.terminal import print_json, table
    from localctx.models.catalog import load_catalog
    from localctx.models.fetch import installed

    here = {m.name: m for m in installed(settings_of({}).models)}
    known = load_catalog()
    rows: list[dict[str, Any]] = [
        {
            "name": e.name,
            "kind": e.kind,
            "licence": e.licence,
            "context": e.context,
            "longer": [asdict(w) for w in e.longer],
            "bytes": here[e.name].bytes if e.name in here else e.bytes,
            "gpu_gib": e.fits,
            "here": e.name in here,
        }
        for e in known.values()
    ] + [
        {
            "name": m.name,
            "kind": "",
            "licence": "",
            "context": 0,
            "longer": [],
            "bytes": m.bytes,
            "gpu_gib": 0,
            "here": True,
        }
        for m in here.values()
        if m.name not in known
    ]
    if as_json:
        print_json(rows)
        return
    print(
        table(
            [
                {
                    "NAME": r["name"],
                    "HERE": "yes" if r["here"] else "",
                    "FOR": {"chat": "answers", "embedder": "search"}.get(r["kind"], ""),
                    "SIZE": size(r["bytes"]),
                    "WINDOW": f"{r['context']:,}" if r["context"] else "",
                    "GPU": f"{r['gpu_gib']} GiB" if r["gpu_gib"] else "",
                    "LICENCE": r["licence"],
                }
                for r in rows
            ]
        )
    )


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
    from localctx.models.fetch import pull

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
    from localctx.models.fetch import remove

    print(f"{name} removed, {size(remove(name, settings_of({}).models))} freed")
