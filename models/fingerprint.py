"""Fingerprints: a name for everything that decides what a page's bytes mean."""

import hashlib
import json
from pathlib import Path

from blake3 import blake3

from localctx.shape import FORMATS, LAYOUT_VERSION, KVShape


def hash_file(path: Path) -> str:
    """The BLAKE3 of a file's content, in hex. Content, because a name, size or date proves nothing."""
    return blake3(max_threads=blake3.AUTO).update_mmap(path).hexdigest()


def hash_weights(folder: Path) -> dict[str, str]:
    """The content hash of each weight file of a model folder."""
    return {f.name: hash_file(f) for f in sorted(folder.glob("*.safetensors"))}


def fingerprint(codec: str, shape: KVShape, **parts: object) -> bytes:
    """SHA-256 over the canonical JSON of codec, its version, the layout, the shape and ``parts``."""
    form = FORMATS[codec]
    whole = {
        **parts,
        "codec": [form.name, form.version],
        "layout": LAYOUT_VERSION,
        "shape": shape.to_json(),
    }
    return hashlib.sha256(json.dumps(whole, sort_keys=True, separators=(",", ":"), default=str).encode()).digest()
