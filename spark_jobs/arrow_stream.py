"""Tables as bytes that keep columns, types and the order of rows: Arrow IPC streams, for messages and for files."""

from __future__ import annotations

import pyarrow as pa


def to_stream(table: pa.Table) -> memoryview:
    """A table as an Arrow IPC stream, also one without rows."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return memoryview(sink.getvalue())


def from_stream(stream: bytes | memoryview) -> pa.Table:
    """The inverse of `to_stream`; the table looks into these bytes."""
    with pa.ipc.open_stream(pa.py_buffer(stream)) as reader:
        return reader.read_all()
