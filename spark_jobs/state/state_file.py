"""The bytes of a state file: a JSON header line (table names and lengths), then one Arrow IPC stream a table.

Nothing in it is pickled: whoever may write to the store must not be able to run code in a host.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa

from reprise.spark_jobs.arrow_stream import from_stream, to_stream
from reprise.spark_jobs.contract import Tables


def encoded(tables: Tables) -> Sequence[bytes | memoryview]:
    """The pieces of a state file, in order; none of them is copied once more."""
    bodies = [to_stream(table) for table in tables.values()]
    header = json.dumps([[name, body.nbytes] for name, body in zip(tables, bodies, strict=True)])
    return [header.encode() + b"\n", *bodies]


def encode_state(tables: Tables) -> bytes:
    """The bytes of a state file."""
    return b"".join(encoded(tables))


def decode_state(data: bytes) -> dict[str, pa.Table]:
    """The inverse of `encode_state`."""
    end = data.index(b"\n")
    tables, at = {}, end + 1
    for name, length in json.loads(data[:end]):
        tables[name] = from_stream(memoryview(data)[at : at + length])
        at += length
    return tables
