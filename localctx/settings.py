"""Reads and writes settings. Precedence: flags, environment, settings file, defaults."""

import os
import re
import tempfile
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints

from localctx.errors import UsageError
from localctx.network import go_offline, is_on
from localctx.shape import FORMATS

ROPE = re.compile(r"(yarn|linear|llama3):(\d+(?:\.\d+)?)")  # method, and factor over the trained window
SPARSE = re.compile(r"sparse(?::(0?\.\d+))?")  # a share of the attention weights
SPARSE_LOSS = 0.1
"""The share of its attention weights that a query may lose in sparse reading by default."""

MODES = ("auto", "full", "retrieve", "everywhere")
ENGINES = ("auto", "torch", "llama.cpp")
EngineName = Literal["torch", "llama.cpp"]
"""The engines: torch over localctx's pages, or llama.cpp with its own KV cache."""

LLAMA_KV = ("f16",)  # KV types that only llama.cpp has
WEIGHTS = ("auto", "full", "int8", "int4", "nf4")
BLEND = ("off", "auto", "on")
REPEATS = ("stop", "allow")
CAREFUL = ("auto", "off")
SUMMARIES = ("auto", "write", "extract")
ANSWERS = ("auto", "quote", "free")
REMOTE_MODE = ("read", "write")
OFFLINE = ("on", "1", "true", "yes", "off", "0", "false", "no")
APPEARANCE = ("auto", "light", "dark")
READ_AHEAD = ("auto", "always", "off")
FILE = "settings.toml"
SIZES = ("memory", "ram", "disk")  # the settings whose value is a size or ``auto``
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(?:([kmgt]?)(i?)b?)?", re.IGNORECASE)


@dataclass(frozen=True)
class Settings:
    """All settings. Each field is also the environment variable ``LOCALCTX_<NAME>`` and a key of ``settings.toml``.

    ``home`` is the data folder; ``model`` a catalogue name, hub id or path, or ``auto``: the best that is installed,
    else the default (see ``default_model``); ``engine`` computes it: ``torch``, ``llama.cpp`` (GGUF files), or
    ``auto``; ``device`` and ``dtype`` may be ``auto``; ``weights`` keep 16 bits (``full``), have fewer (``int8``;
    ``int4`` on a processor, ``nf4`` on a GPU), or are those that the catalogue names for the model (``auto``);
    ``threads`` 0 leaves the number to torch; ``rope`` stretches the context window (``yarn:2``, ``linear:2``,
    ``llama3:8``). ``reading`` ``sparse`` skips pages that a text's tokens hardly attend to (``sparse:0.05``: as long as
    none that is looked at loses more than 0.05 of its attention); ``full`` skips none. ``adapter`` answers questions
    about documents: the one that comes with the model (``auto``), none, a name or a folder.

    ``kv`` is the KV codec or ``auto``; ``keep`` names the keeper (eviction policy) and its budget; ``chunk`` is the
    number of tokens of a prefill step; ``memory``, ``ram`` and ``disk`` limit the bytes of KV on the device, in host
    RAM and on disk, or are ``auto``. ``prompts`` limits the bytes of KV pages that a server retains in memory of
    prompts it has answered: a size, ``off``, or ``auto``, a quarter of the memory that is free.

    ``max_tokens`` limits an answer; ``temperature`` 0 is greedy; ``top_p``, ``top_k`` and ``seed`` control sampling;
    ``n`` answers are sampled, or ``beams`` sequences are searched; ``draft`` is the most tokens drafted by prompt
    lookup at a time, which does not change a greedy answer; ``repeats`` stops an answer that repeats itself (``stop``)
    or not (``allow``).

    ``mode`` is ``full`` (whole documents are read), ``retrieve`` (only the best ``passages``; 0 takes the number
    measured for the model), ``everywhere`` (every passage is asked, and the answers are grouped) or ``auto`` (whole
    documents up to ``effective_context`` tokens; 0 takes the number measured for the model). ``embedder`` makes the
    vectors for search; ``none`` searches by words alone. ``careful`` ``auto`` reports where no passage answers the
    question; ``off`` does not. ``answers`` are runs of the documents' own words (``quote``), the model's words
    (``free``), or what was measured to be better for the model (``auto``). ``blend`` reuses texts that were prefilled
    alone (``off``, ``on``, or ``auto``: only for models that passed ``localctx quality --blend``). ``ocr`` reads PDF
    pages optically if they have no text (``auto``), all of them (``on``) or none (``off``). ``read_ahead``: documents
    of watched folders are read before anybody asks while the machine is idle and on mains power (``auto``), at any time
    (``always``) or not (``off``). ``appearance`` of the window is ``light``, ``dark`` or ``auto``, the system's.

    ``summaries`` are written by the model (``write``), made of sentences of the document (``extract``), or whichever
    was measured to be better with the model (``auto``).

    ``remote`` is the URL of a remote store of pages (empty: none); with ``remote_mode`` ``read`` its pages are only
    downloaded, with ``write`` they are uploaded too. ``offline`` ``on``: nothing leaves this machine.
    """

    home: Path
    model: str = "auto"
    engine: str = "auto"
    adapter: str = "auto"
    kv: str = "auto"
    device: str = "auto"
    dtype: str = "auto"
    weights: str = "auto"
    max_tokens: int = 256
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    threads: int = 0
    chunk: int = 512
    rope: str = "auto"
    reading: str = "full"
    memory: str = "auto"
    ram: str = "auto"
    disk: str = "auto"
    prompts: str = "auto"
    keep: str = "full"
    draft: int = 8
    n: int = 1
    beams: int = 1
    embedder: str = "all-minilm-l6-v2"
    mode: str = "auto"
    effective_context: int = 0
    passages: int = 0
    repeats: str = "stop"
    careful: str = "auto"
    summaries: str = "auto"
    answers: str = "auto"
    ocr: str = "auto"
    blend: str = "auto"
    read_ahead: str = "auto"
    appearance: str = "auto"
    remote: str = ""
    remote_mode: str = "read"
    offline: str = "off"

    @property
    def models(self) -> Path:
        """The folder of the models."""
        return self.home / "models"

    @property
    def is_greedy(self) -> bool:
        """True if the settings ask for one answer of the most likely tokens."""
        return self.temperature == 0 and self.n == self.beams == 1

    @property
    def caps(self) -> dict[str, int | None]:
        """``memory``, ``ram`` and ``disk`` in bytes, None for ``auto``, as keywords of ``budget.measure_limits``."""
        texts = {name: getattr(self, name) for name in SIZES}
        return {name: None if text == "auto" else parse_size(text, name) for name, text in texts.items()}


def prefill_loss(reading: str) -> float:
    """Returns the share of its attention weights that a query may lose to pages skipped in reading, 0 for ``full``.

    Raises UsageError for anything but ``full``, ``sparse`` and ``sparse:0.05``.
    """
    if reading == "full":
        return 0.0
    if not (match := SPARSE.fullmatch(reading)) or not 0 < (loss := float(match[1] or SPARSE_LOSS)) < 1:
        raise UsageError(f"{reading!r} is no way of reading", "use full, sparse, or a share of attention: sparse:0.05")
    return loss


def parse_size(text: str, name: str = "size") -> int:
    """Returns the bytes of ``512MiB``, ``4GiB``, ``1.5GB`` or ``1048576``; ``4G`` is the same as ``4GiB``.

    Raises UsageError, which names the setting ``name``, for anything else.
    """
    if not (match := _SIZE.fullmatch(text.strip())):
        raise UsageError(f"{name} = {text!r} is not a size", "write it as 512MiB, 4GiB, 1.5GB or a number of bytes")
    number, letter, binary = match.groups()
    power = " kmgt".index(letter.lower()) if letter else 0
    unit = 1000 if not binary and text.strip()[-1] in "bB" else 1024
    return int(Fraction(number) * unit**power)


def load_settings(**flags: Any) -> Settings:
    """Returns settings from ``flags`` (None: not given), then the environment, then ``<home>/settings.toml``.

    Raises UsageError, which names the source, for an invalid value or an unknown key in the file.
    """
    given = flags.pop("home", None)
    home = Path(given).expanduser().absolute() if given else data_folder()
    settings = Settings(home)
    for source, values in ((home / FILE, _read_file(home / FILE)), ("the environment", overrides())):
        settings = replace(settings, **{k: _typed(k, v, source) for k, v in values.items()})
    settings = _checked(replace(settings, **{k: v for k, v in flags.items() if v is not None}))
    if is_on(settings.offline):
        go_offline()
    return settings


def with_changes(settings: Settings, changes: Mapping[str, Any]) -> Settings:
    """Returns ``settings`` with ``changes``, where None restores a default. Raises UsageError like
    ``load_settings``.
    """
    defaults = Settings(settings.home)
    values: dict[str, Any] = {
        k: getattr(defaults, k, None) if v is None else _typed(k, v, "settings") for k, v in changes.items()
    }
    return _checked(replace(settings, **values))


def overrides() -> dict[str, str]:
    """Returns the settings that the environment sets, by name. They override the file."""
    names = {f.name for f in fields(Settings)} - {"home"}
    values = {n: os.environ.get(variable(n)) for n in names}
    return {n: v for n, v in values.items() if v}


def is_saved(home: Path, name: str) -> bool:
    """Returns True if the settings file of ``home`` sets ``name``. Raises UsageError if it cannot be read."""
    return name in _read_file(home / FILE)


def variable(name: str) -> str:
    """Returns the name of a setting's environment variable."""
    return f"LOCALCTX_{name.upper()}"


def save_settings(home: Path, changes: Mapping[str, Any]) -> None:
    """Write ``changes`` into the settings file of ``home``. None removes a line. Comments and other lines stay.

    Raises UsageError for values that ``load_settings`` rejects, or if the file cannot be read or written.
    """
    import tomlkit

    file = (home / FILE).resolve()  # a symbolic link stays one
    values = {k: _typed(k, v, file) for k, v in _read_file(file).items()}
    with_changes(replace(Settings(home), **values), changes)
    document = tomlkit.parse(file.read_text(encoding="utf-8")) if values else tomlkit.document()
    for name, value in changes.items():
        if value is None:
            document.pop(name, None)
        else:
            document[name] = _typed(name, value, file)
    try:
        write_atomically(file, tomlkit.dumps(document))
    except OSError as e:
        raise UsageError(f"{file} cannot be written ({e})", "make its folder one you may write") from e


def write_atomically(file: Path, text: str) -> None:
    """Replace ``file`` with ``text`` in one step, readable only by its owner."""
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}-")  # made 0600
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as f:
            f.write(text)
            f.flush()
            os.fsync(f.fileno())
        Path(name).replace(file)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise


def data_folder() -> Path:
    """Returns the data folder: ``LOCALCTX_HOME`` if set, else the system's. Raises UsageError."""
    named = os.environ.get("LOCALCTX_HOME") or default_home()
    try:
        return Path(named).expanduser().absolute()
    except (OSError, RuntimeError) as e:
        raise UsageError(f"LOCALCTX_HOME = {named} is no folder ({e})", "name another, or leave it out") from e


def default_home() -> Path:
    """Returns the system's folder for user data, e.g. ``~/.local/share/localctx``."""
    from platformdirs import user_data_path

    return user_data_path("localctx", appauthor=False)


def _read_file(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as e:
        raise UsageError(f"{path} cannot be read ({e})", "mend it or move it away") from e


def _typed(name: str, value: Any, source: object) -> Any:
    hints = get_type_hints(Settings)
    if name not in hints or name == "home":
        raise UsageError(f"{source}: there is no setting {name!r}", f"use one of: {', '.join(sorted(hints))}")
    kind = next((t for t in get_args(hints[name]) if t is not type(None)), hints[name])
    try:
        return kind(value)
    except (TypeError, ValueError, OverflowError) as e:
        raise UsageError(f"{source}: {name} = {value!r} is not {kind.__name__}", "correct the value") from e


def _checked(s: Settings) -> Settings:
    bounds: dict[str, tuple[float, float]] = {
        "max_tokens": (1, 1 << 20),
        "temperature": (0, 10),
        "top_p": (1e-6, 1),
        "top_k": (0, 1 << 20),
        "threads": (0, 1024),
        "chunk": (1, 1 << 16),
        "draft": (0, 15),
        "n": (1, 64),
        "beams": (1, 64),
        "passages": (0, 64),
        "effective_context": (0, 1 << 24),
        "seed": (-(1 << 63), (1 << 63) - 1),
    }
    for name, (low, high) in bounds.items():
        if getattr(s, name) is not None and not low <= getattr(s, name) <= high:
            raise UsageError(f"{name} = {getattr(s, name)} is out of range", f"choose from {low:g} to {high:g}")
    if s.engine not in ENGINES:
        raise UsageError(f"there is no engine {s.engine!r}", f"use one of: {', '.join(ENGINES)}")
    if s.kv not in ("auto", *FORMATS, *LLAMA_KV):
        raise UsageError(f"there is no KV codec {s.kv!r}", f"use one of: auto, {', '.join((*FORMATS, *LLAMA_KV))}")
    prefill_loss(s.reading)
    if s.weights not in WEIGHTS:
        raise UsageError(f"there are no {s.weights!r} weights", f"use one of: {', '.join(WEIGHTS)}")
    if s.mode not in MODES:
        raise UsageError(f"there is no mode {s.mode!r}", f"use one of: {', '.join(MODES)}")
    if s.careful not in CAREFUL:
        raise UsageError(f"careful = {s.careful!r} cannot be meant", f"use one of: {', '.join(CAREFUL)}")
    if s.summaries not in SUMMARIES:
        raise UsageError(f"summaries = {s.summaries!r} cannot be meant", f"use one of: {', '.join(SUMMARIES)}")
    if s.answers not in ANSWERS:
        raise UsageError(f"there are no {s.answers!r} answers", f"use one of: {', '.join(ANSWERS)}")
    if s.repeats not in REPEATS:
        raise UsageError(f"repeats = {s.repeats!r} cannot be meant", f"use one of: {', '.join(REPEATS)}")
    if s.blend not in BLEND:
        raise UsageError(f"blend = {s.blend!r} cannot be meant", f"use one of: {', '.join(BLEND)}")
    if s.rope != "auto" and not ROPE.fullmatch(s.rope):
        raise UsageError(f"there is no RoPE {s.rope!r}", "use auto, yarn:2, linear:2 or llama3:8")
    if s.ocr not in ("auto", "on", "off"):
        raise UsageError(f"ocr = {s.ocr!r} means nothing", "use auto, on or off")
    if s.read_ahead not in READ_AHEAD:
        raise UsageError(f"read_ahead = {s.read_ahead!r} means nothing", f"use one of: {', '.join(READ_AHEAD)}")
    if s.remote_mode not in REMOTE_MODE:
        raise UsageError(f"remote_mode = {s.remote_mode!r} means nothing", f"use one of: {', '.join(REMOTE_MODE)}")
    if s.offline.lower() not in OFFLINE:
        raise UsageError(f"offline = {s.offline!r} means nothing", "use on or off")
    if s.appearance not in APPEARANCE:
        raise UsageError(f"there is no appearance {s.appearance!r}", f"use one of: {', '.join(APPEARANCE)}")
    if s.prompts not in ("auto", "off"):
        parse_size(s.prompts, "prompts")
    s.caps  # noqa: B018 (raises for invalid sizes)
    if s.n > 1 and not s.temperature:
        raise UsageError(f"{s.n} answers at temperature 0 would be the same", "give --temperature, for example 0.8")
    if s.n > 1 and s.beams > 1:
        raise UsageError("--n samples and --beams searches", "give one of them")
    return s
