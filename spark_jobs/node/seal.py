"""Frames between hosts: compressed, as each byte is copied many times by the relays, then encrypted and authenticated, as
Spark leaves the ports of an exchange open to everybody.

LZ4 where that makes a frame smaller, with its length before it, else 0.  AES-256-GCM, with a key for each link: of the
exchange's key, which the driver sends with its orders, of a salt that the sending host draws for each exchange, and of both
slots.  The n-th frame of a link has the nonce n: one that is changed, repeated, left out or sent elsewhere does not open.
docs/decisions/0028-continuous-exchange.md.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import struct
from dataclasses import dataclass

import pyarrow as pa
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from reprise.spark_jobs.errors import WireError

KEY_BYTES = 32
SALT_BYTES = 16
TAG_BYTES = 16
LEAST_BYTES = 512
"""Shorter frames are not compressed."""
_LZ4 = pa.Codec("lz4_raw")
_LENGTH = struct.Struct(">I")
_SLOT = struct.Struct(">I")
_LINK = struct.Struct(">II")
"""Slots of the sender and of the receiver."""
_NONCE = struct.Struct(">IQ")


@dataclass(slots=True)
class _Link:
    """One direction between two slots."""

    cipher: AESGCM
    frames: int = 0

    def nonce(self) -> bytes:
        """That of the next frame."""
        self.frames += 1
        return _NONCE.pack(0, self.frames - 1)


class Seal:
    """All links from, or all links to, one slot of an exchange.  Calls come one at a time, in the order of the frames."""

    def __init__(self, key: bytes, slot: int) -> None:
        if len(key) != KEY_BYTES:
            raise ValueError(f"the key of an exchange has {KEY_BYTES} bytes, not {len(key)}")
        self._key, self._slot = key, slot
        self._salt = secrets.token_bytes(SALT_BYTES)
        self._links: dict[int, _Link] = {}

    def close(self, target: int, frame: bytes) -> bytes:
        """The slot that sends, in the first frame of a link the salt, and the sealed frame."""
        head = _SLOT.pack(self._slot)
        if target not in self._links:
            self._links[target] = self._link(self._salt, self._slot, target)
            head += self._salt
        link = self._links[target]
        return head + link.cipher.encrypt(link.nonce(), _compressed(frame), None)

    def open(self, sealed: bytes) -> bytes:
        """The inverse of `close`, of a frame that was sent to this slot.  WireError: it is not the next one of somebody who
        has the key."""
        if len(sealed) < _SLOT.size:
            raise WireError(f"slot {self._slot} got {len(sealed)} bytes, which are no frame")
        (source,) = _SLOT.unpack_from(sealed)
        at, link = _SLOT.size, self._links.get(source)
        if link is None:
            at += SALT_BYTES
            link = self._link(sealed[_SLOT.size : at], source, self._slot)
        try:
            if len(sealed) < at + TAG_BYTES:
                raise InvalidTag
            frame = link.cipher.decrypt(link.nonce(), memoryview(sealed)[at:], None)
        except InvalidTag:
            raise WireError(f"slot {self._slot} got a frame that slot {source} has not sent") from None
        self._links[source] = link
        return _decompressed(frame)

    def _link(self, salt: bytes, source: int, target: int) -> _Link:
        told = b"reprise exchange" + salt + _LINK.pack(source, target)
        return _Link(AESGCM(hmac.digest(self._key, told, hashlib.sha256)))


def _compressed(frame: bytes) -> bytes:
    if len(frame) >= LEAST_BYTES:
        found: bytes = _LZ4.compress(frame, asbytes=True)
        if len(found) < len(frame):
            return _LENGTH.pack(len(frame)) + found
    return _LENGTH.pack(0) + frame


def _decompressed(data: bytes) -> bytes:
    """The inverse, of what somebody with the key has sent."""
    (length,) = _LENGTH.unpack_from(data)
    rest = memoryview(data)[_LENGTH.size :]
    return bytes(_LZ4.decompress(rest, length, asbytes=True) if length else rest)
