"""How to try an operator without a cluster: batches in, outputs out, and a checkpoint after each batch.

What the data plane will do to an operator is done here in a few lines: it is stepped through batches, frozen
while it goes on, encoded late, restored elsewhere and stepped through the same batches again.  An operator
that passes `check_recovery` gives, for the batches tried, the same bytes after a failure as without one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from reprise.spark_jobs.contract import Inbox, Input, Operator, Place, Tables

PLACE = Place("operator-under-test", 0, 1)


def inbox(batch: int, tables: pa.Table | Mapping[str, pa.Table], watermark: int | None = None) -> Inbox:
    """The inbox of one batch: rows of one upstream called `input`, or of several by name in the order
    given."""
    named = tables if isinstance(tables, Mapping) else {"input": tables}
    inputs = tuple(Input(name, f"{name}.0", table) for name, table in named.items())
    return Inbox(batch, watermark, inputs)


def run(operator: Operator, inboxes: Sequence[Inbox]) -> list[pa.Table | None]:
    """Outputs of all batches, from the initial state, without a failure."""
    state, outputs = operator.initial(PLACE), []
    for each in inboxes:
        state, out = operator.step(state, each)
        outputs.append(out)
    return outputs


def check_recovery(operator: Operator, inboxes: Sequence[Inbox]) -> list[pa.Table | None]:
    """Like `run`, and check for every batch k: a state frozen after k, encoded at the end and restored, goes on with
    equal bytes.

    AssertionError names the checkpoint and the batch at which outputs differ.
    """
    state, outputs, encoders = operator.initial(PLACE), [], []
    for each in inboxes:
        encoders.append(operator.freeze(state))
        state, out = operator.step(state, each)
        outputs.append(out)
    for k, encode in enumerate(encoders):
        state = operator.restore(PLACE, stored(encode()))
        for position in range(k, len(inboxes)):
            state, out = operator.step(state, inboxes[position])
            if as_bytes(out) != as_bytes(outputs[position]):
                was = _text(outputs[position])
                raise AssertionError(
                    f"restored after batch {k}, batch {position + 1} gives {_text(out)}, not {was}"
                )
    return outputs


def stored(tables: Tables) -> Tables:
    """State tables as they come back from a checkpoint: written to bytes and read again."""
    return {name: pa.ipc.open_stream(as_bytes(table)).read_all() for name, table in tables.items()}


def as_bytes(table: pa.Table | None) -> bytes:
    """An output as bytes that are equal exactly when schema, rows and their order are."""
    if table is None:
        return b""
    sink = pa.BufferOutputStream()
    whole = table.combine_chunks()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        # Rebuilt row by row: slices of the same rows may sit in different buffers.
        writer.write_table(pa.Table.from_pylist(whole.to_pylist(), schema=table.schema))
    return bytes(sink.getvalue())


def _text(table: pa.Table | None) -> str:
    return "nothing" if table is None else str(table.to_pylist())
