"""Finds the folders of adapters, which have files as PEFT writes them; nothing of the weights is loaded."""

from pathlib import Path

from localctx.errors import ModelError
from localctx.models.catalog import load_catalog
from localctx.models.fingerprint import hash_file

CONFIG, WEIGHTS, READER = "adapter_config.json", "adapter_model.safetensors", "reader.json"
SHIPPED = Path(__file__).with_name("readers")
"""The folder of the adapters that come with localctx."""


def find_adapter(setting: str, model: str) -> Path | None:
    """Returns the folder of the adapter that the setting ``adapter`` names for a ``model``; None if it names none.

    ``auto`` is what the catalogue names for the model, if that is there. Raises ModelError for a name that is not known
    and a folder without an adapter.
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
    except (OSError, RuntimeError):  # a name that is too long, a folder that may not be read, a user who is not known
        pass
    known = ", ".join(("auto", "none", *shipped_adapters()))
    named = setting if len(setting) <= 200 else f"{setting[:200]}..."
    raise ModelError(f"there is no adapter {named!r}", f"name a folder with {CONFIG}, or one of: {known}")


def shipped_adapters() -> list[str]:
    """Returns the names of the adapters that come with localctx."""
    return sorted(path.parent.name for path in SHIPPED.glob(f"*/{CONFIG}"))


def adapter_bytes(folder: Path) -> int:
    """Returns the bytes of the adapter in ``folder`` by which plans, refusals and the window count it: those of its
    weights as they are stored. Raises ModelError.
    """
    try:
        return (folder / WEIGHTS).stat().st_size
    except OSError as e:
        raise damaged(folder, f"{WEIGHTS} is missing") from e


def adapter_content(folder: Path) -> str:
    """Returns a hash of the files of the adapter in ``folder``, on which its answers depend. Raises ModelError."""
    try:
        return " ".join(hash_file(folder / name) for name in (CONFIG, WEIGHTS, READER) if (folder / name).exists())
    except OSError as e:
        raise damaged(folder, str(e)) from e


def damaged(adapter: Path | str, reason: str) -> ModelError:
    """The error for an adapter, by its folder or name, with files that are damaged."""
    return ModelError(
        f"the adapter {adapter} does not load ({reason})", "fetch or train it again, or use --adapter none"
    )
