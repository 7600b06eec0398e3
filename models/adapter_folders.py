"""Finds adapter folders in PEFT's format, without loading weights."""

from pathlib import Path

from localctx.errors import ModelError
from localctx.models.catalog import load_catalog
from localctx.models.fingerprint import hash_file

CONFIG, WEIGHTS, READER = "adapter_config.json", "adapter_model.safetensors", "reader.json"
SHIPPED = Path(__file__).with_name("readers")
"""The folder of the adapters shipped with localctx."""


def find_adapter(setting: str, model: str) -> Path | None:
    """Returns the folder of the adapter that the setting ``adapter`` selects for ``model``. ``setting`` is ``none``,
    ``auto``, the name of a shipped adapter, or a folder. Returns None for ``none``.

    ``auto`` selects the catalogue's adapter for the model; None if there is none. Raises ModelError for an unknown name
    and for a folder without an adapter.
    """
    if setting == "none":
        return None
    if setting == "auto":
        entry = load_catalog().get(model)
        folder = SHIPPED / entry.reader if entry and entry.reader else None
        return folder if folder and folder.is_dir() else None
    try:
        folder = SHIPPED / setting if setting in shipped_adapters() else Path(setting).expanduser()
        if (folder / CONFIG).is_file():
            return folder
    except (OSError, RuntimeError):  # the name is too long, the folder is unreadable, or ``~user`` is unknown
        pass
    known = ", ".join(("auto", "none", *shipped_adapters()))
    named = setting if len(setting) <= 200 else f"{setting[:200]}..."
    raise ModelError(f"there is no adapter {named!r}", f"name a folder with {CONFIG}, or one of: {known}")


def shipped_adapters() -> list[str]:
    """Returns the names of the adapters shipped with localctx."""
    return sorted(path.parent.name for path in SHIPPED.glob(f"*/{CONFIG}"))


def adapter_bytes(folder: Path) -> int:
    """Returns the size of the adapter's weight file in bytes, which plans and memory checks use. Raises ModelError."""
    try:
        return (folder / WEIGHTS).stat().st_size
    except OSError as e:
        raise damaged(folder, f"{WEIGHTS} is missing") from e


def adapter_content(folder: Path) -> str:
    """Returns the hashes of the adapter's files as text, which changes whenever answers with the adapter may change.
    Raises ModelError.
    """
    try:
        return " ".join(hash_file(folder / name) for name in (CONFIG, WEIGHTS, READER) if (folder / name).exists())
    except OSError as e:
        raise damaged(folder, str(e)) from e


def damaged(adapter: Path | str, reason: str) -> ModelError:
    """Returns the error to raise for an adapter with damaged files. ``adapter`` is the adapter's folder or name, and
    ``reason`` says what is damaged.
    """
    return ModelError(
        f"the adapter {adapter} does not load ({reason})", "fetch or train it again, or use --adapter none"
    )
