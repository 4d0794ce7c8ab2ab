"""What the bytes of a znode are: JSON as it is, or compressed where there is much of it; and how much ZooKeeper takes.

Problem: a server drops the connection of whoever sends it more than `jute.maxbuffer` (1 MiB by default) at once, and with it
everything that shares the connection.  The records of a topology with thousands of partitions name each of them several
times, which compresses to a tenth.

Invariants: `unpack(pack(data)) == data`.  A small record is readable as it stands, and so is every record of a version that
compressed nothing: JSON begins with none of the bytes that a zlib stream begins with.  Nothing larger than `LIMIT_BYTES` is
ever sent: `check` is asked before.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

from reprise.controller.zookeeper.errors import TooLargeError

LIMIT_BYTES = 1_000_000
"""Of one request, a transaction counting as one: ZooKeeper's own limit of 1,048,575 bytes less what frames a request."""
PLAIN_BYTES = 4096
"""Up to this size a record stays as it is."""
UNPACKED_BYTES = 64 * 2**20
"""Longest record after decompression: what claims to be longer is damaged, or meant to fill the memory."""
_FRAME_BYTES = 64
"""Of one operation of a transaction beside its path and data: head, access list, version; more than it takes."""
_LEVEL = 3
_ZLIB = b"\x78"
"""First byte of every zlib stream with the usual window; JSON never begins with an x."""


def pack(data: bytes) -> bytes:
    """Pack bytes as they go into the znode."""
    return data if len(data) <= PLAIN_BYTES else zlib.compress(data, _LEVEL)


def unpack(raw: bytes) -> bytes:
    """The inverse of `pack`.  ValueError for a stream that is damaged or too long."""
    if raw[:1] != _ZLIB:
        return raw
    stream = zlib.decompressobj()
    try:
        data = stream.decompress(raw, UNPACKED_BYTES)
    except zlib.error as error:
        raise ValueError(f"is compressed and damaged: {error}") from error
    if not stream.eof:
        reason = f"has more than {UNPACKED_BYTES:,} bytes" if stream.unconsumed_tail else "ends too early"
        raise ValueError(f"is compressed and {reason}")
    return data


def check(path: str, raw: bytes) -> None:
    """TooLargeError when a write of `raw` to `path` would be refused."""
    if (size := len(raw) + len(path)) > LIMIT_BYTES:
        raise TooLargeError(path, size, LIMIT_BYTES)


def check_all(root: str, parts: Iterable[tuple[str, bytes]]) -> None:
    """The same for a transaction that writes `parts`, each a path and its data.  The error names the largest."""
    sizes = {path.removeprefix(f"{root}/"): len(path) + len(raw) + _FRAME_BYTES for path, raw in parts}
    if (size := sum(sizes.values())) > LIMIT_BYTES:
        largest = sorted(sizes, key=lambda name: -sizes[name])[:3]
        raise TooLargeError(root, size, LIMIT_BYTES, ", ".join(f"{n}: {sizes[n]:,}" for n in largest))
