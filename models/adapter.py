"""Activated LoRA adapters (arXiv:2504.12397): check and load a folder in PEFT's format.

An activated LoRA changes the linear layers only from its invocation tokens on. KV pages before those tokens are the
base model's own, so every adapter can reuse them.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from string import Formatter
from typing import Any, TypeGuard

from safetensors import SafetensorError
from torch import Tensor

from localctx.errors import ModelError
from localctx.models.adapter_folders import CONFIG, READER, WEIGHTS, adapter_bytes, damaged
from localctx.models.files.safetensors_files import SafetensorsWeights
from localctx.models.fingerprint import hash_file

_VERSION = 1  # part of every adapter fingerprint; raise it when the computation changes
_MAX_JSON = 1 << 20  # bytes
_MAX_ALPHA = 1e6
_MAX_NAME = 256  # characters; matching takes time quadratic in the length
_NAME = re.compile(r"base_model\.model\.([\w.]+\.layers\.\d+\.[\w.]+)\.lora_([AB])\.weight")
_IDLE = {
    *("auto_mapping", "base_model_name_or_path", "exclude_modules", "inference_mode", "layers_pattern", "revision"),
    *("layers_to_transform", "lora_dropout", "megatron_core", "peft_version", "qalora_group_size", "target_modules"),
}
"""Keys of adapter_config.json that change nothing, or whose effect shows in the weights."""

_COMPUTED = {"alora_invocation_tokens", "lora_alpha", "r", "use_rslora"}
_MUST_BE: dict[str, tuple[object, ...]] = {
    "peft_type": ("LORA",),
    "task_type": ("CAUSAL_LM", None),
    "bias": ("none",),
    "init_lora_weights": (True, False, "gaussian", "orthogonal"),  # others change the base weights
}


@dataclass(frozen=True)
class LowRank:
    """The low-rank change (LoRA) of a linear layer's weight [out, in]: the product of ``up`` [out, r] and ``down`` [r,
    in] is added to the weight.
    """

    down: Tensor
    up: Tensor


@dataclass(frozen=True, eq=False)
class Adapter:
    """A loaded LoRA adapter. It changes the model from its ``invocation`` tokens on. ``changes`` maps names of linear
    layers to their low-rank changes. ``nbytes`` is the size of the weight file in bytes.

    Three attributes are read from reader.json, if there is one. ``form`` is the question template that the adapter was
    trained on (empty: unknown). ``not_said`` is the adapter's reply when the text has no answer. ``measured`` holds
    measured values by name, such as ``effective``, ``focused`` and ``passages``.
    """

    name: str
    fingerprint: bytes
    invocation: tuple[int, ...]
    changes: Mapping[str, LowRank] = field(repr=False)
    nbytes: int
    form: str = ""
    not_said: str = ""
    measured: Mapping[str, Any] = field(default_factory=dict)

    @property
    def recipe(self) -> tuple[str, ...]:
        """Everything about the adapter that an answer depends on."""
        return self.fingerprint.hex(), self.form, self.not_said, str(self.measured)

    def measured_count(self, name: str) -> int:
        """Returns the number in ``measured`` under ``name``, 0 if there is none. ``effective`` and ``focused`` are
        context lengths in tokens; ``passages`` is a number of passages.
        """
        value = self.measured.get(name)
        return value if _is_count(value) else 0


def load_adapter(folder: Path) -> Adapter:
    """Load the adapter in ``folder``. Raises ModelError for damaged files, for an adapter without invocation tokens,
    and for options that this version does not compute.
    """
    config, reader = _read_json(folder / CONFIG), _read_json(folder / READER, optional=True)
    _refuse_unknown(folder, config)
    invocation, (rank, scale) = _invocation(folder, config), _rank_and_scale(folder, config)
    identity = {"version": _VERSION, "scale": scale, "invocation": invocation, "weights": _hash(folder)}
    return Adapter(
        folder.resolve().name,
        hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).digest(),
        tuple(invocation),
        _changes(folder, rank, scale),
        adapter_bytes(folder),
        form=_form(folder, reader),
        not_said=_text(folder, reader, "not_said"),
        measured=_measured(folder, reader),
    )


def _invocation(folder: Path, config: Mapping[str, Any]) -> list[int]:
    if not (invocation := config.get("alora_invocation_tokens")):
        raise ModelError(
            f"the adapter {folder} has no alora_invocation_tokens: it would change the kept pages of documents",
            "train it as an activated LoRA (PEFT: LoraConfig(alora_invocation_tokens=...))",
        )
    if not isinstance(invocation, list) or not all(_is_token(token) for token in invocation):
        raise damaged(folder, "its invocation tokens are not numbers")
    return invocation


def _rank_and_scale(folder: Path, config: Mapping[str, Any]) -> tuple[int, float]:
    rank, alpha = config.get("r"), config.get("lora_alpha")
    if not _is_count(rank):
        raise damaged(folder, "its rank is not a number")
    if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not abs(alpha) <= _MAX_ALPHA:
        raise damaged(folder, "lora_alpha is not a number")
    if not isinstance(config.get("use_rslora", False), bool):
        raise damaged(folder, "use_rslora is neither true nor false")
    return rank, alpha / (rank**0.5 if config.get("use_rslora") else rank)


def does_not_fit(adapter: Adapter, reason: str) -> ModelError:
    """Returns the error for an adapter that was made for another model; ``reason`` says what does not match."""
    return ModelError(
        f"the adapter {adapter.name} was made for another model: {reason}",
        "give --model the model it was trained on, or --adapter none",
    )


def _refuse_unknown(folder: Path, config: Mapping[str, Any]) -> None:
    """Raise ModelError for keys that change the computation in an unsupported way."""
    wrong = [key for key, allowed in _MUST_BE.items() if config.get(key, allowed[0]) not in allowed]
    known = _IDLE | _COMPUTED | _MUST_BE.keys()
    wrong += [key for key, value in config.items() if value and key not in known]
    if wrong:
        named = ", ".join(f"{key!r} = {config[key]!r}"[:60] for key in sorted(wrong))
        raise ModelError(
            f"the adapter {folder} uses what localctx does not support ({named})",
            "train it as a plain LoRA with alora_invocation_tokens",
        )


def _changes(folder: Path, rank: int, scale: float) -> dict[str, LowRank]:
    """Returns the low-rank change of each layer, by layer name. The LoRA scale is multiplied into ``up``."""
    parts: dict[str, dict[str, Tensor]] = {}
    try:
        weights = SafetensorsWeights([folder / WEIGHTS])
        if not weights or not weights.unquantized:
            raise damaged(folder, f"{WEIGHTS} has no floating-point weights")
        for key, tensor in weights.items():
            if len(key) > _MAX_NAME or not (match := _NAME.fullmatch(key)):
                raise ModelError(
                    f"the adapter {folder} changes {key[:80]!r}, which localctx does not support",
                    "train it on the linear layers of the decoder",
                )
            parts.setdefault(match[1], {})[match[2]] = tensor.clone()
    except (OSError, SafetensorError) as e:
        raise damaged(folder, f"{WEIGHTS}: {e}") from e
    return {name: _low_rank(folder, name, pair, rank, scale) for name, pair in sorted(parts.items())}


def _low_rank(folder: Path, name: str, pair: Mapping[str, Tensor], rank: int, scale: float) -> LowRank:
    if pair.keys() != {"A", "B"} or any(weight.dim() != 2 for weight in pair.values()):
        raise damaged(folder, f"{name} lacks a matrix")
    down, up = pair["A"], pair["B"]
    if len(down) != rank or up.shape[1] != rank:
        raise damaged(folder, f"{name} is not of rank {rank}")
    scaled = up.float() * scale
    if not all(bool(weight.isfinite().all()) for weight in (down, scaled)):
        raise damaged(folder, f"{name} has numbers that are not finite")
    return LowRank(down, scaled)


def _form(folder: Path, reader: Mapping[str, Any]) -> str:
    """Returns the adapter's question template, without a ``{documents}`` at its start, because documents always come
    first.
    """
    form = _text(folder, reader, "form").removeprefix("{documents}").lstrip("\n")
    try:
        fields = {(name, spec, conversion) for _, name, spec, conversion in Formatter().parse(form) if name is not None}
    except ValueError:
        fields = set()
    if form and fields - {("s", "", None)} != {("question", "", None)}:
        raise damaged(folder, f"the form in {READER} is not a text with {{question}} in it")
    return form


def _text(folder: Path, reader: Mapping[str, Any], key: str) -> str:
    value = reader.get(key, "")
    if not isinstance(value, str) or not _is_unicode(value):
        raise damaged(folder, f"the {key} in {READER} is not a text")
    return value


def _measured(folder: Path, reader: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the measured values in reader.json. Values that are not checked here are checked by their users."""
    for key in ("effective", "focused", "passages"):
        if key in reader and not _is_count(reader[key]):
            raise damaged(folder, f"{key} in {READER} is not a number above 0")
    if reader.get("answers", "free") not in ("free", "quote"):
        raise damaged(folder, f'answers in {READER} is neither "free" nor "quote"')
    return {key: value for key, value in reader.items() if key not in ("form", "not_said")}


def _read_json(path: Path, optional: bool = False) -> dict[str, Any]:
    try:
        if optional and not path.exists():
            return {}
        if path.stat().st_size > _MAX_JSON:
            raise ValueError("it is too long")
        value = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(value, dict):
            raise ValueError("it is no object")
        return value
    except (OSError, ValueError, RecursionError) as e:
        raise damaged(path.parent, f"{path.name}: {str(e).splitlines()[0]}") from e


def _hash(folder: Path) -> str:
    try:
        return hash_file(folder / WEIGHTS)
    except OSError as e:
        raise damaged(folder, f"{WEIGHTS} is missing") from e


def _is_count(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 < value < 1 << 20


def _is_unicode(value: str) -> bool:
    """Returns False for text with a lone surrogate, which JSON allows and tokenizers reject."""
    return not any("\ud800" <= character <= "\udfff" for character in value)


def _is_token(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 31
