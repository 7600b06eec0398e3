"""Rejects a malicious config.json before any library builds the model: a billion layers take only four bytes.

The limits are several times the values of the largest known models.
"""

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from localctx.errors import ModelError

REMEDY = "fetch the model again, or choose another"
MAX_BYTES = 8 << 20  # file size; some configs list every language or layer
MAX_DEPTH, MAX_ITEMS = 16, 1 << 16  # nesting depth, and items of a list or object
MAX_EXPERTS = 1 << 17  # total over all layers; the largest models have 24,000

_LIMITS = (
    (re.compile(r"experts"), 1 << 13),
    (re.compile(r"layers?$|^depth$|^num_blocks$|layers_per"), 1 << 10),
    (re.compile(r"heads?$|heads_|groups$"), 1 << 12),
    (re.compile(r"vocab_size$"), 1 << 23),
    (re.compile(r"position|context|window|length"), 1 << 40),
    (re.compile(r"dim$|size$|_embd$|_inner$|rank$|^d_|width$|kernel"), 1 << 20),
)
_MUST_BE_POSITIVE = re.compile(r"^(num_hidden_layers|num_attention_heads|hidden_size|vocab_size|head_dim)$")


def check_config(file: Path) -> None:
    """Raise ModelError for a config.json with implausible numbers, or one that is too large or too deeply nested. A
    missing file or invalid JSON passes, because its reader reports that.
    """
    try:
        with file.open("rb") as f:
            data = f.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise ModelError(f"{file} is larger than {MAX_BYTES >> 20} MiB", REMEDY)
        raw = json.loads(data)
    except RecursionError as e:
        raise ModelError(f"{file} is nested too deeply", REMEDY) from e
    except (OSError, ValueError):
        return
    for problem in _problems(raw, 0):
        raise ModelError(f"{file}: {problem}", REMEDY)


def _problems(value: Any, depth: int) -> Iterator[str]:
    """Yields the problems of a value in the file and of all nested values."""
    if depth > MAX_DEPTH:
        yield "it is nested too deeply"
    elif isinstance(value, dict | list):
        if len(value) > MAX_ITEMS:
            yield f"it lists {len(value):,} things"
        if isinstance(value, dict):
            yield from _wrong_numbers(value)
        for part in value.values() if isinstance(value, dict) else value:
            if isinstance(part, dict | list):
                yield from _problems(part, depth + 1)


def _wrong_numbers(config: dict[str, Any]) -> Iterator[str]:
    for name, value in config.items():
        numbers = value if isinstance(value, list) else [value]
        for number in numbers:
            if isinstance(number, int | float) and not isinstance(number, bool):
                if not -(_limit(name)) <= number <= _limit(name):
                    yield f"its {name[:60]} is {number:.6g}"
                elif number <= 0 and _MUST_BE_POSITIVE.search(name):
                    yield f"its {name} is {number}"
    layers, experts = (_number(config, name) for name in ("num_hidden_layers", "num_experts"))
    for name in ("num_local_experts", "n_routed_experts", "moe_num_experts"):
        experts = max(experts, _number(config, name))
    if layers * experts > MAX_EXPERTS:
        yield f"it has {experts:,} experts in each of {layers:,} layers"


def _limit(name: str) -> float:
    return next((limit for pattern, limit in _LIMITS if pattern.search(name)), math.inf)


def _number(config: dict[str, Any], name: str) -> int:
    return value if isinstance(value := config.get(name), int) else 0
