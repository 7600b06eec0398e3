"""Fingerprints: hashes of everything on which the meaning of a page's bytes depends."""

import hashlib
import json
from pathlib import Path

from blake3 import blake3

from localctx.shape import FORMATS, LAYOUT_VERSION, KVShape


def hash_file(path: Path) -> str:
    """Returns the BLAKE3 hash of a file's content, in hex."""
    return blake3(max_threads=blake3.AUTO).update_mmap(path).hexdigest()


def hash_weights(folder: Path) -> dict[str, str]:
    """Returns the content hash of each weight file of a model folder, by file name."""
    return {f.name: hash_file(f) for f in sorted(folder.glob("*.safetensors"))}


def fingerprint(codec: str, shape: KVShape, **parts: object) -> bytes:
    """Returns the SHA-256 of the canonical JSON of the codec, the codec's version, the page layout's version, the
    KVShape, and ``parts`` (further values by name).
    """
    kv_format = FORMATS[codec]
    content = {
        **parts,
        "codec": [kv_format.name, kv_format.version],
        "layout": LAYOUT_VERSION,
        "shape": shape.to_json(),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":"), default=str).encode()).digest()
