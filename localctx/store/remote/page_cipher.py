"""PageCipher: encrypts a page as one object for a remote store that must not read it.

An object's name is a keyed hash of the page's name, and its content is encrypted and authenticated. The remote learns
neither documents nor model, and cannot change, swap or truncate an object undetected.
"""

import hmac
import os
import re
import struct
from hashlib import sha256

import numpy as np

from localctx.errors import UsageError
from localctx.store.pages.page_checksum import page_checksum
from localctx.store.pages.page_store import OpenedPage, PageKey

MAGIC = b"localctx page 1\n"
NONCE = 12  # bytes
_HEADER = struct.Struct("<32sI16s")  # page name, bytes of its tokens, checksum of the payload
_KEY = re.compile(r"[0-9a-fA-F]{64}")


class PageCipher:
    """Encrypts pages with AES-256-GCM under keys derived from ``secret`` (32 bytes)."""

    def __init__(self, secret: bytes) -> None:
        try:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ImportError as e:
            raise UsageError("a remote store needs the package cryptography", "pip install 'localctx[remote]'") from e

        self._names = hmac.digest(secret, b"localctx object names 1", sha256)
        self._aead = AESGCM(hmac.digest(secret, b"localctx page encryption 1", sha256))

    def object_id(self, name: bytes) -> str:
        """Returns the name of the remote object that holds the page ``name``."""
        return hmac.digest(self._names, name, sha256).hex()

    def encrypt(self, object_id: str, key: PageKey, payload: np.ndarray) -> bytes:
        """Returns the encrypted object of a page: its name, tokens, checksum and payload."""
        name, tokens = key
        plain = b"".join((_HEADER.pack(name, len(tokens), page_checksum(payload.data)), tokens, payload.data))
        nonce = os.urandom(NONCE)
        return MAGIC + nonce + self._aead.encrypt(nonce, plain, _bound_to(object_id))

    def decrypt(self, object_id: str, data: bytes) -> tuple[PageKey, OpenedPage]:
        """Decrypt an object. Returns the key of the page (name and packed tokens) and the page. If the object is
        damaged, the page has a ``fault``. If the object cannot be decrypted, the key is empty too.
        """
        from cryptography.exceptions import InvalidTag

        start = len(MAGIC) + NONCE
        try:
            plain = self._aead.decrypt(data[len(MAGIC) : start], data[start:], _bound_to(object_id))
        except (InvalidTag, ValueError):
            return (b"", b""), OpenedPage(fault="cannot be decrypted")
        name, length, checksum = _HEADER.unpack_from(plain)
        tokens, payload = plain[_HEADER.size :][:length], np.frombuffer(plain, np.uint8, offset=_HEADER.size + length)
        if page_checksum(payload.data) != checksum:
            return (name, tokens), OpenedPage(fault="fails its checksum")
        return (name, tokens), OpenedPage(payload)


def parse_key(text: str) -> bytes:
    """Returns the 32 bytes of the key that ``text`` has as 64 hexadecimal digits. Raises UsageError for other text."""
    if not _KEY.fullmatch(text.strip()):
        remedy = "set it to 64 hexadecimal digits: python -c 'import secrets; print(secrets.token_hex(32))'"
        raise UsageError("LOCALCTX_REMOTE_KEY is not a key" if text else "LOCALCTX_REMOTE_KEY is not set", remedy)
    return bytes.fromhex(text.strip())


def _bound_to(object_id: str) -> bytes:
    """Returns the associated data (of AES-GCM) for an object. It contains the object's name, so that the object cannot
    be decrypted under another name.
    """
    return MAGIC + object_id.encode()
