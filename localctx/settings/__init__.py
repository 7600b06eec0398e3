"""Reads and writes settings. Precedence: flags, environment, settings file, defaults. The module ``table`` declares all
settings.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from localctx.errors import UsageError
from localctx.network import go_offline, is_on
from localctx.settings.kinds import invalid, parse_setting, parse_size
from localctx.settings.table import LLAMA_KV, SETTINGS, WEIGHTS, EngineName, Settings, parse_rope, prefill_loss

__all__ = [
    "FILE",
    "LLAMA_KV",
    "SETTINGS",
    "WEIGHTS",
    "EngineName",
    "Settings",
    "data_folder",
    "default_home",
    "invalid",
    "is_saved",
    "load_settings",
    "overrides",
    "parse_rope",
    "parse_size",
    "prefill_loss",
    "save_settings",
    "variable",
    "with_changes",
    "write_atomically",
]

FILE = "settings.toml"


def load_settings(**flags: Any) -> Settings:
    """Returns settings from ``flags`` (None: not given), then the environment, then ``<home>/settings.toml``.

    Raises UsageError, which names the source, for an invalid value or an unknown key in the file.
    """
    given = flags.pop("home", None)
    home = Path(given).expanduser().absolute() if given else data_folder()
    values: dict[str, Any] = {}
    sources: dict[str, object] = {}
    for source, layer in ((home / FILE, _read_file(home / FILE)), ("the environment", overrides()), ("", flags)):
        given_here = {name: value for name, value in layer.items() if value is not None}
        values |= given_here
        sources |= dict.fromkeys(given_here, source)
    settings = _checked(Settings(home), values, sources)
    if is_on(settings.offline):
        go_offline()
    return settings


def with_changes(settings: Settings, changes: Mapping[str, Any]) -> Settings:
    """Returns ``settings`` with ``changes``, where None restores a default. Raises UsageError like
    ``load_settings``.
    """
    defaults = {name: SETTINGS[name].default for name in changes.keys() & SETTINGS}
    now = {name: getattr(settings, name) for name in SETTINGS}
    return _checked(settings, now | {k: defaults.get(k) if v is None else v for k, v in changes.items()})


def overrides() -> dict[str, str]:
    """Returns the settings that the environment sets, by name. They override the file."""
    values = {name: os.environ.get(variable(name)) for name in SETTINGS}
    return {n: v for n, v in values.items() if v}


def is_saved(home: Path, name: str) -> bool:
    """Returns True if the settings file of ``home`` sets ``name``. Raises UsageError if the file cannot be read."""
    return name in _read_file(home / FILE)


def variable(name: str) -> str:
    """Returns the name of a setting's environment variable."""
    return f"LOCALCTX_{name.upper()}"


def save_settings(home: Path, changes: Mapping[str, Any]) -> None:
    """Write ``changes`` into the settings file of ``home``. The value None removes the setting's line. Comments and
    other lines stay.

    Raises UsageError for values that ``load_settings`` rejects, or if the file cannot be read or written.
    """
    import tomlkit

    file = (home / FILE).resolve()  # a symbolic link stays one
    values = _read_file(file)
    kept = {name: value for name, value in {**values, **changes}.items() if value is not None}
    saved = _checked(Settings(home), kept, dict.fromkeys(values.keys() - changes.keys(), file))
    document = tomlkit.parse(file.read_text(encoding="utf-8")) if values else tomlkit.document()
    for name, value in changes.items():
        if value is None:
            document.pop(name, None)
        else:
            document[name] = getattr(saved, name)
    try:
        write_atomically(file, tomlkit.dumps(document))
    except OSError as e:
        raise UsageError(f"{file} cannot be written ({e})", "make its folder writable") from e


def write_atomically(file: Path, content: str | bytes) -> None:
    """Replace ``file`` with ``content`` in one step, readable only by its owner. Text is written as UTF-8."""
    import tempfile

    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}-")  # made 0600
    try:
        with os.fdopen(handle, "wb") as f:
            f.write(content if isinstance(content, bytes) else content.encode())
            f.flush()
            os.fsync(f.fileno())
        Path(name).replace(file)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise


def data_folder() -> Path:
    """Returns the data folder: ``LOCALCTX_HOME`` if set, else the system's folder for user data. Raises UsageError if
    ``LOCALCTX_HOME`` is not a valid path.
    """
    named = os.environ.get("LOCALCTX_HOME") or default_home()
    try:
        return Path(named).expanduser().absolute()
    except (OSError, RuntimeError) as e:
        raise UsageError(
            f"LOCALCTX_HOME = {named} is not a folder ({e})", "set it to another folder, or unset it"
        ) from e


def default_home() -> Path:
    """Returns the system's folder for user data, e.g. ``~/.local/share/localctx``."""
    from platformdirs import user_data_path

    return user_data_path("localctx", appauthor=False)


def _read_file(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as e:
        raise UsageError(f"{path} cannot be read ({e})", "correct it, or move it away") from e


def _checked(settings: Settings, values: Mapping[str, Any], sources: Mapping[str, object] | None = None) -> Settings:
    """Returns ``settings`` with ``values``, converted to the types of the settings. ``sources`` has the source of each
    value, which errors name. Raises UsageError.
    """
    parsed = {name: _parsed(name, value, (sources or {}).get(name, "")) for name, value in values.items()}
    s = replace(settings, **parsed)
    if s.n > 1 and not s.temperature:
        raise UsageError(f"{s.n} answers at temperature 0 would be the same", "give --temperature, for example 0.8")
    if s.n > 1 and s.beams > 1:
        raise UsageError("--n and --beams cannot be combined", "give one of them")
    return s


def _parsed(name: str, value: Any, source: object) -> Any:
    if not (setting := SETTINGS.get(name)):
        where = f"{source}: " if source else ""
        raise UsageError(f"{where}there is no setting {name!r}", f"use one of: {', '.join(sorted(SETTINGS))}")
    return parse_setting(name, setting.kind, value, source)
