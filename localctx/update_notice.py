"""After an update, one line tells which documents stay prepared, which are read again, and why. It is shown once.

A file in the data folder records the last version that used the folder, and all versions on which page names depend. If
one of these changes, pages under the old names are no longer found.
"""

import json
from collections import Counter
from contextlib import closing
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localctx.settings import write_atomically
from localctx.shape import ARITHMETIC_VERSION, FORMATS, LAYOUT_VERSION
from localctx.version import __version__

if TYPE_CHECKING:
    from localctx.store.store import Store

FILE = "formats.json"
_LIBRARIES = {"transformers": "transformers", "llama.cpp": "llama-cpp-python"}


def current_formats() -> dict[str, Any]:
    """Returns the version of localctx and the versions that are part of fingerprints: of the page layout, the codecs,
    localctx's own arithmetic, and the libraries that compute models (None: not installed).
    """
    return {
        "localctx": __version__,
        "layout": LAYOUT_VERSION,
        "arithmetic": ARITHMETIC_VERSION,
        "codecs": {name: form.version for name, form in FORMATS.items()},
        "libraries": {name: _installed(package) for name, package in _LIBRARIES.items()},
    }


def take_update_notice(home: Path) -> str:
    """Returns the line to show, and records that it was shown. Returns an empty text if nothing changed since the data
    folder ``home`` was last used, or if the last version is unknown. Raises OSError, StoreError.
    """
    if not (home / "library.db").exists():
        return ""
    before, now = _read(home / FILE), current_formats()
    if before == now:
        return ""
    line = _line(home, before, now) if before else ""
    write_atomically(home / FILE, json.dumps(now))
    return line


def _line(home: Path, before: dict[str, Any], now: dict[str, Any]) -> str:
    from localctx.store.store import Store, store_errors  # imports numpy, and is seldom needed

    with closing(Store(home)) as store, store_errors(home):
        reasons = _by_document(store, before, now)
    again = Counter(reason for reason in reasons.values() if reason)
    stay = len(reasons) - again.total()
    parts = [f"{_documents(stay)} prepared"] if stay or not again else []
    parts += [f"{_again(count)} when asked, because {reason}" for reason, count in sorted(again.items())]
    if stay and (changed := _changed_library("transformers", before, now)):
        parts.append(f"of these, documents of models that transformers computes are read again, because {changed}")
    what = "Libraries changed"
    if before["localctx"] != now["localctx"]:
        what = f"Updated from {before['localctx']} to {now['localctx']}"
    return f"{what}: {'; '.join(parts)}. (This line is shown once.)"


def _by_document(store: "Store", before: dict[str, Any], now: dict[str, Any]) -> dict[str, str]:
    """Returns, for each prepared document, why it must be read again; empty if one of its caches can still be used."""
    rows = store.db.query(
        """SELECT document, codec, EXISTS (SELECT 1 FROM cache_pages JOIN pages ON page = name
        WHERE cache = caches.id AND length(pages.tokens) > 0) AS paged
        FROM caches JOIN cache_documents ON cache = caches.id WHERE chat IS NULL AND state = 'ready'"""
    )
    reasons = dict[str, str]()
    for row in rows:
        why = _why(row["codec"], before, now) if row["paged"] else _changed_library("llama.cpp", before, now)
        reasons[row["document"]] = why and reasons.get(row["document"], why)
    return reasons


def _why(codec: str, before: dict[str, Any], now: dict[str, Any]) -> str:
    """Returns why stored pages in ``codec`` are no longer found; empty if they are found."""
    if before["layout"] != now["layout"]:
        return "the pages' format changed"
    if before["codecs"].get(codec) != now["codecs"].get(codec):
        return f"the format of {codec} changed"
    return "models are computed in another way" if before["arithmetic"] != now["arithmetic"] else ""


def _changed_library(name: str, before: dict[str, Any], now: dict[str, Any]) -> str:
    old, new = before["libraries"].get(name), now["libraries"].get(name)
    return "" if old in (None, new) else f"{name} is now {new or 'not installed'}, and was {old}"


def _documents(count: int) -> str:
    return "1 document stays" if count == 1 else f"{count:,} documents stay"


def _again(count: int) -> str:
    return "1 is read again" if count == 1 else f"{count:,} are read again"


def _read(file: Path) -> dict[str, Any] | None:
    """Returns the versions recorded in ``file``, or None if the file is missing or damaged."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        same = found.keys() == current_formats().keys()
        return found if same and all(isinstance(found[name], dict) for name in ("codecs", "libraries")) else None
    except (OSError, ValueError, AttributeError, RecursionError):
        return None


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
