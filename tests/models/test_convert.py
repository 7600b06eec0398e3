"""A GGUF becomes the same model in safetensors, or is refused in seconds with the reason."""

import json
import math
import random
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_gguf import CONTEXT, TEMPLATE, THETA, tiny_llama, vocabulary, write_gguf

from localctx.errors import ModelError
from localctx.models.files.gguf_header import read_header
from localctx.models.hub.convert import convert_gguf

HEAD = 16
PLAIN = [THETA ** -(i / HEAD) for i in range(0, HEAD, 2)]


def silent(phase: str, done: int, total: int) -> None:
    pass


def convert(gguf: Path) -> Path:
    out = gguf.with_suffix(".out")
    convert_gguf(gguf, out, silent)
    return out


def frequencies(folder: Path) -> tuple[list[float], float]:
    """The inverse frequencies transformers would use, and its attention factor."""
    from transformers import AutoConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    rotary: Any = LlamaRotaryEmbedding(AutoConfig.from_pretrained(folder))
    return rotary.inv_freq.tolist(), rotary.attention_scaling


def test_the_converted_model_is_the_same_model(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    seen: list[tuple[str, int, int]] = []
    convert_gguf(write_gguf(tmp_path / "m.gguf"), tmp_path / "out", lambda *step: seen.append(step))
    assert {"converting", "saving"} == {phase for phase, _, _ in seen}
    assert capfd.readouterr() == ("", "")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out", local_files_only=True, dtype="float32")
    tokens = torch.arange(40)[None]
    original = tiny_llama()
    with torch.inference_mode():
        for weights in original.parameters():
            weights.copy_(weights.bfloat16())
        assert torch.equal(model(tokens).logits, original(tokens).logits)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out", local_files_only=True)
    assert tokenizer.tokenize("hello  12<|im_end|>") == ["hello", "ĠĠ", "1", "2", "<|im_end|>"]
    assert tokenizer.chat_template == TEMPLATE
    assert model.generation_config.eos_token_id == [len(vocabulary()) - 2, len(vocabulary()) - 1]


def test_weights_are_bf16_unless_asked_otherwise(tmp_path: Path) -> None:
    convert_gguf(write_gguf(tmp_path / "m.gguf"), tmp_path / "out", silent)
    assert json.loads((tmp_path / "out/config.json").read_text())["dtype"] == "bfloat16"


def test_linear_scaling_is_kept(tmp_path: Path) -> None:
    gguf = write_gguf(tmp_path / "m.gguf", rope__scaling__type="linear", rope__scaling__factor=4.0)
    found, attention = frequencies(convert(gguf))
    np.testing.assert_allclose(found, [f / 4 for f in PLAIN], rtol=1e-6)
    assert attention == 1.0


def test_yarn_is_kept(tmp_path: Path) -> None:
    said = {"rope__scaling__type": "yarn", "rope__scaling__factor": 4.0, "rope__scaling__original_context_length": 128}
    found, attention = frequencies(convert(write_gguf(tmp_path / "m.gguf", **said)))
    # llama.cpp's ramp: what turns over 32 times in the trained window stays, what turns less than once is stretched
    low, high = (HEAD * math.log(128 / (n * 2 * math.pi)) / (2 * math.log(THETA)) for n in (32, 1))
    low, high = max(math.floor(low), 0), min(math.ceil(high), HEAD - 1)
    keep = [1 - min(max((i - low) / max(0.001, high - low), 0), 1) for i in range(HEAD // 2)]
    np.testing.assert_allclose(found, [f * k + f / 4 * (1 - k) for f, k in zip(PLAIN, keep, strict=True)], rtol=1e-5)
    assert attention == pytest.approx(0.1 * math.log(4) + 1)


def llama3_table(factor: float) -> np.ndarray:
    table = []
    for wave in (2 * math.pi / f for f in PLAIN):
        smooth = (8192 / wave - 1) / 3
        table.append(1.0 if wave < 2048 else factor if wave > 8192 else 1 / ((1 - smooth) / factor + smooth))
    return np.array(table, dtype=np.float32)


@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_a_table_of_llama_3_is_kept(tmp_path: Path, factor: float) -> None:
    table = llama3_table(factor)
    assert 1 < sorted(set(table))[1] <= factor
    found, _ = frequencies(convert(write_gguf(tmp_path / "m.gguf", more={"rope_freqs.weight": table})))
    np.testing.assert_allclose(found, [f / t for f, t in zip(PLAIN, table, strict=True)], rtol=1e-5)


def test_longrope_tables_are_kept(tmp_path: Path) -> None:
    tables = {f"rope_factors_{kind}.weight": np.linspace(1, end, HEAD // 2, dtype=np.float32) for kind, end in
              (("short", 2), ("long", 9))}  # fmt: skip
    said = {"rope__scaling__attn_factor": 1.25, "rope__scaling__original_context_length": 64}
    found, attention = frequencies(convert(write_gguf(tmp_path / "m.gguf", more=tables, **said)))
    short = tables["rope_factors_short.weight"]
    np.testing.assert_allclose(found, [f / t for f, t in zip(PLAIN, short, strict=True)], rtol=1e-5)
    assert attention == 1.25


@pytest.mark.parametrize(
    ("said", "more"),
    [
        ({"rope__scaling__type": "longrope"}, {}),
        ({"rope__scaling__type": "yarn", "rope__scaling__yarn_log_multiplier": 0.1}, {}),
        ({"rope__scaling__type": "linear", "rope__scaling__factor": 2.0}, {"rope_freqs.weight": llama3_table(8)}),
        ({}, {"rope_freqs.weight": np.linspace(1, 5, HEAD // 2, dtype=np.float32)}),
    ],
)
def test_positions_transformers_cannot_express_are_refused(
    tmp_path: Path, said: dict[str, Any], more: dict[str, np.ndarray]
) -> None:
    with pytest.raises(ModelError, match="a tokenizer that transformers does not support"):
        convert(write_gguf(tmp_path / "m.gguf", more=more, **said))


def test_a_weight_the_loader_would_drop_is_refused(tmp_path: Path) -> None:
    gguf = write_gguf(tmp_path / "m.gguf", more={"blk.0.attn_q.bias": np.ones(64, dtype=np.float32)})
    with pytest.raises(ModelError, match="weights, but transformers' llama has"):
        convert(gguf)


def test_an_architecture_nobody_knows_is_refused(tmp_path: Path) -> None:
    gguf = write_gguf(tmp_path / "m.gguf")
    gguf.write_bytes(gguf.read_bytes().replace(b"llama", b"lhama"))
    with pytest.raises(ModelError, match=r"m\.gguf cannot be converted \(.*lhama"):
        convert(gguf)


def key(name: bytes, kind: int, value: bytes) -> bytes:
    return struct.pack("<Q", len(name)) + name + struct.pack("<I", kind) + value


def header(tensors: int, *keys: bytes, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, len(keys)) + b"".join(keys)


ARRAY_OF_2_60 = key(b"k", 9, struct.pack("<IQ", 0, 1 << 60))
NESTED = key(b"k", 9, struct.pack("<IQIQ", 9, 1, 9, 1))
HOSTILE = {
    "empty": b"",
    "text": b"once upon a time " * 9,
    "49 bytes": header(0, ARRAY_OF_2_60),
    "array too long": header(1, ARRAY_OF_2_60) + b"\0" * 4096,
    "array in array": header(1, NESTED),
    "2^60 tensors": b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 0) + b"\0" * 4096,
    "2^60 keys": b"GGUF" + struct.pack("<IQQ", 3, 1, 1 << 60) + b"\0" * 4096,
    "strings without end": header(1, key(b"k", 9, struct.pack("<IQ", 8, 1 << 22))) + b"\0" * (1 << 20),
    "version 1": header(1, version=1),
    "other byte order": b"GGUF" + struct.pack(">IQQ", 3, 1, 1),
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_files_are_refused_at_once(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "hostile.gguf"
    path.write_bytes(content)
    started = time.process_time()
    with pytest.raises(ModelError, match=r"hostile\.gguf is not a complete GGUF file"):
        convert_gguf(path, tmp_path / "out", silent)
    assert time.process_time() - started < 2


MUTATIONS: dict[str, Callable[[bytes], bytes]] = {
    "a billion layers": lambda b: _set(b, b"llama.block_count", 1_000_000_000),
    "no layers": lambda b: _set(b, b"llama.block_count", 0),
    "wider than the file": lambda b: _set(b, b"llama.embedding_length", 1 << 31),
    "half a file": lambda b: b[: len(b) // 2],
    "one byte short": lambda b: b[:-64],
}


def _set(content: bytes, name: bytes, value: int) -> bytes:
    at = content.index(name) + len(name) + 4
    return content[:at] + struct.pack("<I", value) + content[at + 4 :]


@pytest.mark.parametrize("mutate", MUTATIONS.values(), ids=MUTATIONS.keys())
def test_a_header_may_not_promise_more_than_the_file(tmp_path: Path, mutate: Callable[[bytes], bytes]) -> None:
    gguf = write_gguf(tmp_path / "m.gguf")
    gguf.write_bytes(mutate(gguf.read_bytes()))
    with pytest.raises(ModelError, match="not a complete GGUF"):
        read_header(gguf)


def test_a_damaged_header_is_read_or_refused_and_nothing_else(tmp_path: Path) -> None:
    gguf, dice = write_gguf(tmp_path / "m.gguf"), random.Random(0)
    whole = gguf.read_bytes()
    end = min(tensor.start for tensor in read_header(gguf).tensors.values())
    for _ in range(400):
        cut = bytearray(whole)
        for _ in range(dice.randint(1, 3)):
            cut[dice.randrange(end)] = dice.choice([0, 1, 0x7F, 0xFF])
        gguf.write_bytes(cut)
        with suppress(ModelError):
            assert read_header(gguf).weights < len(whole)


def test_the_window_is_the_files(tmp_path: Path) -> None:
    said = json.loads((convert(write_gguf(tmp_path / "m.gguf")) / "config.json").read_text())
    assert said["max_position_embeddings"] == CONTEXT
