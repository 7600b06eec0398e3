"""The report of ``localctx doctor``: versions, device, free memory, installed models and the state of the store."""

import platform
import sqlite3
from contextlib import closing
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from localctx.budget import Measured, measure_device, measure_disk, measure_ram
from localctx.error_log import log_file
from localctx.errors import StoreError, UserError
from localctx.settings import Settings
from localctx.store.store import SALVAGE, Store, store_errors
from localctx.version import __version__

LIBRARIES = ("torch", "transformers", "tokenizers", "numba", "numpy", "sqlite-utils", "psutil", "gguf", "safetensors")


def examine(settings: Settings) -> dict[str, Any]:
    """Returns what ``localctx doctor --json`` prints. ``problems`` is a list of lines, each with a remedy."""
    problems = list[str]()
    report = {
        "localctx": __version__,
        "home": str(settings.home),
        "log": str(log_file()),
        "versions": _versions(),
        "device": _device(settings, problems),
        "memory": {"ram": _measured(measure_ram()), "disk": _measured(measure_disk(settings.home))},
        "models": _models(settings, problems),
        "advice": _advice(settings),
        "store": _store(settings, problems),
    }
    return {**report, "problems": problems}


def _versions() -> dict[str, str | None]:
    found: dict[str, str | None] = {"python": platform.python_version(), "sqlite": sqlite3.sqlite_version}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def _device(settings: Settings, problems: list[str]) -> dict[str, Any]:
    import torch

    from localctx.kernels.processor import INSTRUCTIONS, WIDEST
    from localctx.models.bitsandbytes_layers import bitsandbytes_options
    from localctx.models.device_choice import pick_device, pick_dtype
    from localctx.models.weight_formats import precision_name, refuse_weights

    try:
        device = pick_device(settings.device)
        dtype = pick_dtype(settings.dtype, device)
        refuse_weights(settings.weights, device, dtype)
        bitsandbytes_options(settings.weights, device)
    except UserError as e:
        problems.append(str(e))
        return {"name": settings.device}
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
    return {
        "name": str(device),
        "hardware": name,
        "system": f"{platform.system()} {platform.release()}",
        "precision": precision_name(dtype, settings.weights),
        "vectors": f"{WIDEST} float32 at once ({INSTRUCTIONS})",
        "threads": torch.get_num_threads(),
        "memory": _measured(measure_device(str(device))),
    }


def _models(settings: Settings, problems: list[str]) -> dict[str, Any]:
    from localctx.models.resolve import list_installed, verify

    found = list_installed(settings.models)
    for model in found:
        wrong = verify(model.path) if model.state == "ready" else [model.state]
        if wrong and model.state != "partial":
            remedy = f"localctx models rm {model.name}, then pull it again"
            problems.append(f"model {model.name} is not what was installed ({', '.join(wrong)}); {remedy}")
    return {
        "selected": settings.model,
        "installed": [{"name": m.name, "path": str(m.path), "bytes": m.bytes, "state": m.state} for m in found],
    }


def _advice(settings: Settings) -> dict[str, Any]:
    """Returns the model recommendation, after measuring the machine again; nothing where the device does not exist,
    which ``_device`` has reported.
    """
    from localctx.models.model_advice import advise

    try:
        return advise(settings, remeasure=True).to_json()
    except UserError:
        return {}


def _store(settings: Settings, problems: list[str]) -> dict[str, Any]:
    if not (settings.home / "library.db").exists():
        return {"state": "empty"}
    try:
        with closing(Store(settings.home)) as store, store_errors(settings.home):
            health = store.health()
    except StoreError as e:
        problems.append(str(e))
        return {"state": "unusable"}
    if health["database"] != "ok":
        problems.append(f"{store.file} is damaged ({health['database']}); {SALVAGE}")
    for table, count in health["damaged_rows"].items():
        problems.append(f"{count:,} rows of {table.replace('_', ' ')} are damaged; {SALVAGE}")
    for document in health["damaged_documents"]:
        problems.append(f"the text of document {document[:12]} is damaged; remove it, then read the file again")
    if health["damaged_pages"]:
        problems.append(f"{health['damaged_pages']} kept pages are damaged; no need to act: they are read anew")
    intact = health["database"] == "ok" and not health["damaged_rows"]
    return {"state": "ok" if intact else "damaged", **health}


def _measured(m: Measured) -> dict[str, int]:
    return {"free": m.free, "total": m.total}
