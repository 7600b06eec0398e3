"""Writes the computed sizes of each model into models/catalog.toml, and the table of all models into
localctx/docs/models.md: ``python packaging/size_models.py``.

The sizes are those that ``plan`` computes. They depend only on the files in models/configs/, so neither weights nor a
network are needed. Run this script after a change of these files or of the computation in ``plan``. It fails if this
version does not support a model of the catalogue.
"""

import re
from collections.abc import Iterable
from pathlib import Path

import torch

from localctx.engine.planning.model_sizes import TorchSizes
from localctx.models.catalog import CatalogEntry, load_catalog
from localctx.models.choice.sizing import read_config
from localctx.models.decoder.trial import build_without_weights
from localctx.models.memory_fit import MemoryNeed
from localctx.settings import Settings

ROOT = Path(__file__).parent.parent
CATALOG, PAGE = ROOT / "models" / "catalog.toml", ROOT / "localctx" / "docs" / "models.md"
TABLE = re.compile(r"(?<=\n\n)\| name \| for \|.*?(?=\n\n)", re.DOTALL)
COLUMNS = "name", "for", "licence", "window, tokens", "on disk", "weights in nf4", "KV of a token", "GPU"
GPUS = 4, 8, 12, 24  # GiB
FREE = 0.94  # of a GPU's memory; the rest is for the driver and a display
KV, CONTEXT = "int8", 4096  # codec, and tokens that a model must have room for


def sizes(entry: CatalogEntry) -> dict[str, int]:
    """Returns the computed values of a catalogue entry, by key. Raises ModelError or ValueError if the model is not
    supported.
    """
    settings = Settings(Path(), model=entry.name, device="cuda", dtype="bf16", weights="nf4", adapter="none")
    planned = TorchSizes(settings, entry.config_file, device_memory=0)
    if planned.unfit:
        raise ValueError(f"{entry.name}: {planned.unfit}")
    need = planned.need(KV, CONTEXT)
    found = {
        "parameters": sum(p.numel() for p in _parameters(entry)),
        "nf4": int(need.weights),
        "working": int(need.working),
        "kv": planned.kv(KV, CONTEXT)["later_bytes_per_token"],
    }
    return found | ({"fits": _smallest_gpu(entry.name, need)} if entry.fits else {})


def _parameters(entry: CatalogEntry) -> list[torch.nn.Parameter]:
    return list(build_without_weights(read_config(entry.config_file)).parameters())


def _smallest_gpu(name: str, need: MemoryNeed) -> int:
    found = next((gib for gib in GPUS if need.fit_device(int(FREE * (gib << 30))).fits), None)
    if found is None:
        raise ValueError(f"{name} fits in no GPU of {max(GPUS)} GiB")
    return found


def updated(text: str, name: str, values: dict[str, int]) -> str:
    """Returns ``text``, the content of catalog.toml, with ``values`` written into the table of the model ``name``."""
    quoted = f'"{name}"' if "." in name else name
    start = text.index(f"\n[{quoted}]\n") + 1
    end = text.find("\n[", start)
    table = text[start:] if end < 0 else text[start:end]
    for key, value in values.items():
        table = re.sub(rf"^{key} = .*$", f"{key} = {value:_}", table, count=1, flags=re.MULTILINE)
    return text[:start] + table + ("" if end < 0 else text[end:])


def table(entries: Iterable[CatalogEntry]) -> str:
    """Returns the Markdown table of all models."""
    return "\n".join([_row(COLUMNS), _row(["---"] * len(COLUMNS)).replace(" ", ""), *map(_model_row, entries)])


def _model_row(e: CatalogEntry) -> str:
    chat, licence = e.kind == "chat", e.licence + " (not open source)" * bool(e.terms)
    known = [f"`{e.name}`", "answers" if chat else "search", licence, f"{e.context:,}", f"{e.bytes / 1e9:.1f} GB"]
    computed = [f"{e.nf4 / 1e9:.1f} GB", f"{e.kv / 1e3:.0f} kB"] if chat else ["", ""]
    return _row([*known, *computed, f"{e.fits} GB" if e.fits else "none needed"])


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Updates the catalogue and the page."""
    text = CATALOG.read_text(encoding="utf-8")
    for entry in load_catalog().values():
        if entry.kind == "chat":
            text = updated(text, entry.name, sizes(entry))
    CATALOG.write_text(text, encoding="utf-8")
    load_catalog.cache_clear()
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(TABLE.sub(lambda _: table(load_catalog().values()), page, count=1), encoding="utf-8")


if __name__ == "__main__":
    main()
