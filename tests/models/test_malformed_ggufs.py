"""Malformed GGUF files: one clear line each, within seconds, and this process lives on."""

import random
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from required_extras import needs_llama
from tiny_ggufs import write_tiny_gguf

from localctx.errors import UserError
from localctx.models.llama_cpp.model import load_llama_model

pytestmark = needs_llama
SECONDS = 5

Change = Callable[[bytearray], None]


@pytest.fixture(scope="module")
def good(tmp_path_factory) -> bytes:
    return write_tiny_gguf(tmp_path_factory.mktemp("models") / "good.gguf", "llama").read_bytes()


def put(at: int, form: str, value: int) -> Change:
    def change(data: bytearray) -> None:
        struct.pack_into("<" + form, data, at, value)

    return change


def cut(share: float) -> Change:
    def change(data: bytearray) -> None:
        del data[int(share * len(data)) :]

    return change


def value_of(key: str, value: int, form: str = "I") -> Change:
    """Change the value of a key of the metadata."""

    def change(data: bytearray) -> None:
        name = key.encode()
        at = data.index(struct.pack("<Q", len(name)) + name) + 8 + len(name) + 4
        struct.pack_into("<" + form, data, at, value)

    return change


def renamed(old: str, new: str) -> Change:
    def change(data: bytearray) -> None:
        at = data.index(old.encode())
        data[at : at + len(old)] = new.encode().ljust(len(old), b"x")[: len(old)]

    return change


HUGE = (1 << 31, (1 << 32) - 1, 1 << 20)
CHANGES: dict[str, Change] = {
    "magic": put(0, "I", 0),
    "version": put(4, "I", 99),
    **{f"{n} tensors": put(8, "Q", n) for n in (0, 1, 1 << 20, 1 << 63)},
    **{f"{n} entries": put(16, "Q", n) for n in (0, 1, 1 << 20, 1 << 63)},
    **{f"cut at {share}": cut(share) for share in (0.0001, 0.001, 0.005, 0.01, 0.02, 0.05, 0.2, 0.5, 0.99)},
    **{f"block_count {n}": value_of("llama.block_count", n) for n in (0, 5, *HUGE)},
    **{f"head_count {n}": value_of("llama.attention.head_count", n) for n in (0, 3, *HUGE)},
    **{f"head_count_kv {n}": value_of("llama.attention.head_count_kv", n) for n in (3, *HUGE)},
    **{f"embedding_length {n}": value_of("llama.embedding_length", n) for n in (0, 63, *HUGE)},
    **{f"key_length {n}": value_of("llama.attention.key_length", n) for n in (7, *HUGE)},
    **{f"feed_forward_length {n}": value_of("llama.feed_forward_length", n) for n in (1, HUGE[0])},
    "a tensor is missing": renamed("blk.2.attn_q.weight", "blk.2.attn_z.weight"),
    "a tensor comes twice": renamed("blk.2.attn_q.weight", "blk.1.attn_q.weight"),
    "another architecture": renamed("llama", "qwxyz"),
    "no vocabulary": renamed("tokenizer.ggml.tokens", "tokenizer.ggml.tokxxx"),
    "an unknown tokenizer": renamed("gpt2", "gpt9"),
    "a type of metadata": renamed("llama.block_count", "llama.blick_count"),
}

QUICK = {"magic", "cut at 0.0001", "cut at 0.99", "0 tensors", "block_count 0", "head_count 3", "no vocabulary"}


def test_there_are_enough():
    assert len(CHANGES) >= 50


@pytest.mark.parametrize("name", [pytest.param(c, marks=() if c in QUICK else pytest.mark.slow) for c in CHANGES])
def test_a_malformed_file_is_one_line_within_seconds(name, good, tmp_path):
    data = bytearray(good)
    CHANGES[name](data)
    path = tmp_path / "bad.gguf"
    path.write_bytes(data)
    start = time.monotonic()
    with pytest.raises(UserError) as refused:
        load_llama_model(path, "bad", tmp_path / "tried", threads=1)
    assert str(refused.value).isprintable()
    assert time.monotonic() - start < SECONDS


@pytest.mark.slow
def test_random_bytes_of_the_header_never_end_this_process(good, tmp_path):
    rng, header = random.Random(1), good.index(b"blk.0.attn_norm.weight")
    for _ in range(12):
        data = bytearray(good)
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(24, header)] = rng.randrange(256)
        path = Path(tmp_path / "bad.gguf")
        path.write_bytes(data)
        with suppress(UserError):
            load_llama_model(path, "bad", tmp_path / "tried", threads=1)
