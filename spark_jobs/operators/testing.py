"""How to try an operator without a cluster: batches in, outputs out, and a checkpoint after each batch.

What the data plane will do to an operator is done here in a few lines: it is stepped through batches, frozen
while it goes on, encoded late, restored elsewhere and stepped through the same batches again.  An operator
that passes `check_recovery` gives, for the batches tried, the same bytes after a failure as without one.
`check_kind` convicts one that claims a kind that it is not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from reprise.spark_jobs.arrow_stream import from_stream, to_stream
from reprise.spark_jobs.contract import Inbox, Input, Kind, Operator, Place, Tables

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


def check_kind(operator: Operator, inboxes: Sequence[Inbox]) -> None:
    """Check on these batches, which are numbered from 1, what the operator claims with its `kind`, and with `oldest_needed`
    or, where only its state says it, with `oldest_needed_behind`.

    AssertionError says what was claimed and where it does not hold.  Nothing can be convicted of `deterministic` that
    `check_recovery` does not; `arbitrary` claims nothing.
    """
    if operator.kind not in (Kind.CONVERGENT, Kind.REPEATABLE):
        return
    outputs, claims = _with_claims(operator, inboxes)
    before = 0
    for number, (expected, oldest) in enumerate(zip(outputs, claims, strict=True), 1):
        claim = f"{operator.kind}, batch {number} needs nothing before batch {oldest}"
        if oldest is None or not before <= oldest <= number:
            raise AssertionError(f"{claim}: it must be a batch, and never falls")
        before = oldest
        for first in range(1, oldest + 1):  # the initial state, at any batch up to there
            if as_bytes(found := run(operator, inboxes[first - 1 : number])[-1]) != as_bytes(expected):
                raise AssertionError(
                    f"{claim}: begun with batch {first} it gives {_text(found)}, not {_text(expected)}"
                )
        gone = [Inbox(i.batch, i.watermark, ()) for i in inboxes[: oldest - 1]]  # whatever the rows were
        if as_bytes(found := run(operator, [*gone, *inboxes[oldest - 1 : number]])[-1]) != as_bytes(expected):
            raise AssertionError(
                f"{claim}: without the rows before it gives {_text(found)}, not {_text(expected)}"
            )
    if operator.kind is Kind.REPEATABLE:
        for each, expected in zip(inboxes, outputs, strict=True):
            alone = [run(operator, [one])[0] for one in _row_by_row(each)]
            singly = [row for out in alone if out is not None for row in out.to_pylist()]
            if repr(singly) != repr([] if expected is None else expected.to_pylist()):
                raise AssertionError(
                    f"repeatable: one by one the rows of batch {each.batch} give {singly}, not {_text(expected)}"
                )


def _with_claims(
    operator: Operator, inboxes: Sequence[Inbox]
) -> tuple[list[pa.Table | None], list[int | None]]:
    """Outputs of all batches, and the first batch that each is said to need: where the state says it, by that before
    the batch."""
    state, outputs, claims = operator.initial(PLACE), list[pa.Table | None](), list[int | None]()
    for number, each in enumerate(inboxes, 1):
        if operator.reaches_by_state:
            claims.append(1 if number == 1 else operator.oldest_needed_behind(state, number - 1))
        else:
            claims.append(operator.oldest_needed(number))
        state, out = operator.step(state, each)
        outputs.append(out)
    return outputs, claims


def _row_by_row(each: Inbox) -> list[Inbox]:
    """A batch with each of its rows alone."""
    return [
        Inbox(each.batch, each.watermark, (Input(i.operator, i.partition, i.table.slice(n, 1)),))
        for i in each.inputs
        for n in range(i.table.num_rows)
    ]


def stored(tables: Tables) -> Tables:
    """State tables as they come back from a checkpoint: written to bytes and read again."""
    return {name: from_stream(as_bytes(table)) for name, table in tables.items()}


def as_bytes(table: pa.Table | None) -> bytes:
    """An output as bytes that are equal exactly when schema, rows and their order are."""
    if table is None:
        return b""
    # Rebuilt row by row: slices of the same rows may sit in different buffers.
    return bytes(to_stream(pa.Table.from_pylist(table.combine_chunks().to_pylist(), schema=table.schema)))


def _text(table: pa.Table | None) -> str:
    return "nothing" if table is None else str(table.to_pylist())
