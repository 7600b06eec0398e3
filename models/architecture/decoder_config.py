"""Reads the config of a model that ``NativeDecoder`` supports (Llama, Mistral, Qwen 2 and 3), without importing
transformers, which takes seconds.

Each layer has a norm, attention with RoPE, another norm and a gated silu MLP, with residual connections. A config with
an unknown key is left to transformers, because the key may change the computation.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from localctx.models.architecture.frequencies import KINDS, KNOWN

NATIVE_PRECISIONS = torch.float32, torch.bfloat16
"""The precisions that NativeDecoder supports, on a CPU."""


@dataclass
class DecoderConfig:
    """A decoder config with transformers' names and meanings. ``qkv_bias``: q, k and v have biases. ``head_norms``: q
    and k heads are normalized before RoPE.
    """

    model_type: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float
    max_position_embeddings: int
    rope_parameters: dict[str, Any]
    tie_word_embeddings: bool
    sliding_window: int | None
    layer_types: list[str] | None
    eos_token_id: int | list[int] | None
    qkv_bias: bool
    head_norms: bool

    def to_dict(self) -> dict[str, Any]:
        """Returns all values by name."""
        return asdict(self)


_LLAMA = {
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": None,
    "head_dim": None,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
    "sliding_window": None,
    "layer_types": None,
    "eos_token_id": 2,
}
_MISTRAL = {
    **_LLAMA,
    "intermediate_size": 14336,
    "num_key_value_heads": 8,
    "max_position_embeddings": 4096 * 32,
    "sliding_window": 4096,
}
_QWEN2 = {
    **_LLAMA,
    "vocab_size": 151936,
    "intermediate_size": 22016,
    "num_key_value_heads": 32,
    "max_position_embeddings": 32768,
    "sliding_window": 4096,
    "eos_token_id": None,
}
_DEFAULTS: dict[str, dict[str, Any]] = {
    "llama": _LLAMA,
    "mistral": _MISTRAL,
    "qwen2": _QWEN2,
    "qwen3": {**_QWEN2, "head_dim": 128},
}
NATIVE_FAMILIES = frozenset(_DEFAULTS)
"""The ``model_type`` of each family that NativeDecoder supports."""

_ROPE = ("rope_theta", "rope_scaling", "rope_parameters")
_WINDOWS = ("use_sliding_window", "max_window_layers")
_MUST_BE = {"hidden_act": "silu", "attention_bias": False, "mlp_bias": False, "rope_interleaved": False}
"""Values that NativeDecoder requires. Qwen 2 always has biases, whatever its config says."""

_IDLE = {
    *(
        "_name_or_path",
        "_model_name_or_path",
        "architectures",
        "transformers_version",
        "torch_dtype",
        "dtype",
        "transformers.js_config",
    ),
    *("bos_token_id", "pad_token_id", "unk_token_id", "use_cache", "initializer_range", "attention_dropout"),
    *("pretraining_tp", "is_llama_config", "output_attentions", "output_hidden_states", "return_dict"),
}
"""Keys that do not change the computation."""


def read_native_config(folder: Path) -> DecoderConfig | None:
    """Read config.json in ``folder``. Returns None for a model that NativeDecoder may not compute correctly."""
    try:
        raw = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return parse_native_config(raw) if isinstance(raw, dict) else None


def parse_native_config(raw: dict[str, Any]) -> DecoderConfig | None:
    """Parse ``raw``, the content of a config.json. Returns None for a model that NativeDecoder may not compute
    correctly.
    """
    family = raw.get("model_type")
    if not isinstance(family, str) or family not in _DEFAULTS or not _understood(raw, family):
        return None
    values = {name: raw.get(name, default) for name, default in _DEFAULTS[family].items()}
    values["head_dim"] = values["head_dim"] or _quotient(values["hidden_size"], values["num_attention_heads"])
    values["num_key_value_heads"] = values["num_key_value_heads"] or values["num_attention_heads"]
    if family.startswith("qwen"):
        _choose_windows(values, raw)
    rope = _rope_of(raw, values["max_position_embeddings"])
    if rope is None or not _sound(values):
        return None
    return DecoderConfig(
        model_type=family, rope_parameters=rope, qkv_bias=family == "qwen2", head_norms=family == "qwen3", **values
    )


def _understood(raw: dict[str, Any], family: str) -> bool:
    qwen = family.startswith("qwen")
    known = {"model_type", *_DEFAULTS["llama"], *_ROPE, *_MUST_BE, *_IDLE, *(_WINDOWS if qwen else ())}
    windows = () if qwen else ("layer_types", *(("sliding_window",) if family == "llama" else ()))
    return (
        known >= raw.keys()
        and type(raw.get("use_sliding_window", False)) is bool
        and type(raw.get("max_window_layers", 0)) is int
        and all(raw.get(key, value) == value for key, value in _MUST_BE.items())
        and all(raw.get(key) is None for key in windows)  # these families ignore window keys
    )


def _choose_windows(values: dict[str, Any], raw: dict[str, Any]) -> None:
    """Set each layer's sliding window for a Qwen model: none unless enabled in the config, and then only in the last
    layers.
    """
    window = values["sliding_window"] if raw.get("use_sliding_window", False) else None
    first, layers = raw.get("max_window_layers", 28), values["num_hidden_layers"]
    values["sliding_window"] = window
    if values["layer_types"] is None and isinstance(layers, int):
        sliding = [window is not None and i >= first for i in range(layers)]
        values["layer_types"] = ["sliding_attention" if slides else "full_attention" for slides in sliding]


def _rope_of(raw: dict[str, Any], longest: Any) -> dict[str, Any] | None:
    """Returns the RoPE parameters. Older configs have them in two places, which are merged. Returns None if a kind or
    key is unknown.
    """
    scaling = raw.get("rope_scaling") or raw.get("rope_parameters") or {}
    if not isinstance(scaling, dict):
        return None
    rope = {"rope_theta": raw.get("rope_theta", 10_000.0), **scaling}
    rope.setdefault("rope_type", rope.get("type", "default"))
    if not isinstance(rope["rope_type"], str):
        return None
    if rope["rope_type"] in ("llama3", "yarn"):
        rope.setdefault("original_max_position_embeddings", longest)
    numbers = all(isinstance(value, int | float) for key, value in rope.items() if key not in ("rope_type", "type"))
    fits = rope["rope_type"] in KINDS and rope.keys() <= KNOWN and numbers and KINDS[rope["rope_type"]] <= rope.keys()
    return rope if fits else None


def _sound(values: dict[str, Any]) -> bool:
    """Returns True if all values have the right types and the sizes are consistent. RoPE needs an even head size."""
    counts = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    sizes = [values[name] for name in (*counts, "num_key_value_heads", "head_dim", "max_position_embeddings")]
    if not all(type(value) is int and value > 0 for value in sizes) or not isinstance(values["rms_norm_eps"], float):
        return False
    kinds, window = values["layer_types"], values["sliding_window"]
    if not isinstance(kinds, list | None):
        return False
    slides = kinds is not None and "sliding_attention" in kinds
    return (
        values["head_dim"] % 2 == 0
        and values["num_attention_heads"] % values["num_key_value_heads"] == 0
        and type(values["tie_word_embeddings"]) is bool
        and (window is None or type(window) is int)
        and (kinds is None or len(kinds) == values["num_hidden_layers"])
        and {*(kinds or ())} <= {"full_attention", "sliding_attention"}
        and not (slides and window is None)
    )


def _quotient(a: Any, b: Any) -> Any:
    return a // b if isinstance(a, int) and isinstance(b, int) and b else None
