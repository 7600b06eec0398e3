"""The report of ``localctx doctor``: versions, device, free memory, installed models and the state of the store."""

import json
import platform
import sqlite3
from contextlib import closing, suppress
from dataclasses import fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from localctx.budget import Measured, measure_device, measure_disk, measure_ram
from localctx.error_log import log_file
from localctx.errors import StoreError, UserError
from localctx.settings import Settings
from localctx.store.store import SALVAGE, Store, store_errors
from localctx.version import __version__

LIBRARIES = ("torch", "transformers", "tokenizers", "numba", "numpy", "sqlite-utils", "psutil", "gguf", "safetensors")
LOG_LINES = 200  # in a bug report


def examine(settings: Settings) -> dict[str, Any]:
    """Returns the report that ``localctx doctor --json`` prints. Its ``problems`` are lines of text, each with a
    remedy.
    """
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


def bug_report(settings: Settings) -> str:
    """Returns a text to attach to a bug report: the result of ``examine``, the settings that differ from the defaults,
    and the end of the log.

    Document names, folders, other paths, addresses and the user's home folder are replaced.
    """
    defaults = Settings(settings.home)
    changed = {f.name: getattr(settings, f.name) for f in fields(settings) if f.name != "home"}
    changed = {name: value for name, value in changed.items() if value != getattr(defaults, name)}
    shown = {name: _public(value) for name, value in changed.items()}
    report = examine(settings)
    if "damaged_documents" in report["store"]:
        report["store"]["damaged_documents"] = len(report["store"]["damaged_documents"])
    text = json.dumps({**report, "settings": shown, "log": _log_lines()}, indent=1, ensure_ascii=False)
    return _without(text, _private_words(settings))


def _public(value: Any) -> Any:
    """Returns a setting's value. A path or an address is replaced by a placeholder, because it may contain a key."""
    return "(a path or an address)" if isinstance(value, str) and ("/" in value or "\\" in value) else value


def _log_lines() -> list[str]:
    """Returns the last LOG_LINES lines of the log."""
    log = log_file()
    return log.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_LINES:] if log.is_file() else []


def _private_words(settings: Settings) -> dict[str, str]:
    """Returns texts that must not be in a bug report, each with its replacement."""
    words = {str(settings.home): "(data folder)", str(Path.home()): "~"}
    if not (settings.home / "library.db").exists():
        return words
    with suppress(StoreError, sqlite3.Error), closing(Store(settings.home)) as store:
        for document in store.documents.all():
            for name in (document.path, str(Path(document.path).parent), document.name):
                if len(name) > 1:
                    words.setdefault(name, "(document)")
    return words


def _without(text: str, words: dict[str, str]) -> str:
    """Returns a JSON text in which each of ``words`` is replaced. Long words come first, because they may contain
    shorter ones.
    """
    for word in sorted(words, key=len, reverse=True):
        text = text.replace(json.dumps(word, ensure_ascii=False)[1:-1], words[word])
    return text


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

    from localctx.kernels.llvm.processor import INSTRUCTIONS, WIDEST
    from localctx.models.choice.device_choice import pick_device, pick_dtype
    from localctx.models.quantized.bitsandbytes_layers import bitsandbytes_options
    from localctx.models.quantized.weight_formats import precision_name, refuse_weights

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
        **({"attention": _gpu_attention(device)} if device.type == "cuda" else {}),
        "memory": _measured(measure_device(str(device))),
    }


def _gpu_attention(device: Any) -> str:
    from localctx.kernels.device import has_triton

    if not has_triton(device):
        return "by torch, because Triton's kernels do not run here"
    from localctx.kv.backends.triton_check import describe  # imports Triton

    return describe(device)


def _models(settings: Settings, problems: list[str]) -> dict[str, Any]:
    from localctx.models.hub.resolve import list_installed, verify

    found = list_installed(settings.models)
    for model in found:
        wrong = verify(model.path) if model.state == "ready" else [model.state]
        if wrong and model.state != "partial":
            remedy = f"localctx models rm {model.name}, then pull it again"
            problems.append(f"model {model.name} has changed since it was installed ({', '.join(wrong)}); {remedy}")
    return {
        "selected": settings.model,
        "installed": [{"name": m.name, "path": str(m.path), "bytes": m.bytes, "state": m.state} for m in found],
    }


def _advice(settings: Settings) -> dict[str, Any]:
    """Returns the model recommendation, after measuring the machine again. The result is empty if the device does not
    exist, which ``_device`` already reports.
    """
    from localctx.models.choice.model_advice import advise

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
    if count := health["damaged_originals"]:
        problems.append(f"{count} kept files of documents are damaged; localctx library verify --repair, then add them")
    if health["damaged_pages"]:
        problems.append(f"{health['damaged_pages']} kept pages are damaged; no need to act: they are read anew")
    intact = health["database"] == "ok" and not health["damaged_rows"]
    return {"state": "ok" if intact else "damaged", **health}


def _measured(m: Measured) -> dict[str, int]:
    return {"free": m.free, "total": m.total}
