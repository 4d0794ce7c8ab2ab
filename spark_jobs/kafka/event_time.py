"""Event times of Kafka rows and the watermark that follows from them.

The watermark of a source partition is the least over its logs of the greatest event time so far, less `disorder`.  A log
counts from its first row, and not while it has brought none for `idle` batches, or one quiet log would stop all windows.  A
partition none of whose logs counts for so long, or that has none, is idle: it holds nobody back.  Batches, not seconds: a
replay must come to the same watermark.  It never goes back.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from reprise.spark_jobs.contract import Tables
from reprise.spark_jobs.errors import DataPlaneError, SpecError
from reprise.spark_jobs.operators.frames import FARTHEST, ColumnError, is_text, microseconds, plain
from reprise.spark_jobs.operators.parameters import choice, duration_us, whole

UNITS = {"us": (1, 1), "ms": (1000, 1), "s": (1_000_000, 1), "ns": (1, 1000)}


class EventTimeError(DataPlaneError):
    """Rows without a usable event time."""


@dataclass(frozen=True, slots=True)
class Clock:
    """Where event times are: `column` (None: the message's own timestamp), in which unit, and what they are worth.

    `ahead_us`: a row that is further ahead of its message's timestamp has a wrong clock and does not move the watermark.
    """

    column: str | None = None
    unit: str = "us"
    disorder_us: int = 0
    idle: int = 20
    ahead_us: int | None = None

    @property
    def needs_sent(self) -> bool:
        """Whether the timestamps of messages matter."""
        return self.column is None or self.ahead_us is not None

    def stamp(
        self, table: pa.Table, by_log: Mapping[str, Sequence[Message]], rows: Any
    ) -> tuple[pa.Table, dict[str, int], int]:
        """The table with a column `time` in microseconds, the greatest by log, and how many rows were too far ahead.

        `rows`: how many rows each message gave, in the order of `by_log`."""
        sent: Any = None
        if self.needs_sent:
            own = [m.timestamp()[1] * 1000 for messages in by_log.values() for m in messages]
            sent = np.repeat(np.array(own, np.int64), rows)
        times: Any = sent if self.column is None else self._read(table)
        if "time" in table.column_names:
            table = table.set_column(table.column_names.index("time"), "time", pa.array(times))
        else:
            table = table.append_column("time", pa.array(times))
        good = np.ones(len(times), bool) if self.ahead_us is None else times <= sent + self.ahead_us
        newest: dict[str, int] = {}
        ends, given = np.concatenate([[0], np.cumsum(rows)]), 0
        for log, messages in by_log.items():
            begin, end = ends[given], ends[given + len(messages)]
            given += len(messages)
            if (kept := times[begin:end][good[begin:end]]).size:
                newest[log] = int(kept.max())
        return table, newest, int((~good).sum())

    def _read(self, table: pa.Table) -> Any:
        if self.column not in table.column_names:
            raise EventTimeError(
                f"there is no column {self.column!r} with event times; columns: {table.column_names}"
            )
        column = plain(table[self.column].combine_chunks())
        if column.null_count:
            raise EventTimeError(f"{column.null_count} rows have no event time in column {self.column!r}")
        times_, by = UNITS[self.unit]
        try:
            moments = pa.types.is_timestamp(column.type) or pa.types.is_date(column.type)
            if moments or (is_text(column.type) and not _holds_numbers(column)):
                return microseconds(column, self.column or "")
            given = column.cast(pa.int64()).to_numpy(zero_copy_only=False)
        except ColumnError as error:
            raise EventTimeError(f"column {self.column!r} does not hold event times: {error}") from None
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise EventTimeError(
                f"column {self.column!r} holds {column.type} that is no event time: give whole numbers, timestamps, dates "
                "or text of ISO 8601"
            ) from None
        if given.size and max(-int(given.min()), int(given.max())) * times_ // by >= FARTHEST:
            raise EventTimeError(
                f"column {self.column!r} has times more than 36,000 years from 1970; is its unit really {self.unit}?"
            )
        return given * times_ // by


def wrong_times(messages: Sequence[Message]) -> dict[int, str]:
    """The messages whose timestamp is missing or too far away, with the reason."""
    found = {}
    for index, message in enumerate(messages):
        kind, at = message.timestamp()
        if kind == TIMESTAMP_NOT_AVAILABLE or at == -1:
            found[index] = "the message has no timestamp"
        elif abs(at) * 1000 >= FARTHEST:
            found[index] = (
                f"its timestamp is {at} milliseconds, more than 36,000 years; are these nanoseconds?"
            )
    return found


def _holds_numbers(texts: pa.Array) -> bool:
    """Whether text is whole numbers, and no times of ISO 8601."""
    return bool(pc.all(pc.match_substring_regex(texts, "^-?[0-9]+$")).as_py())


@dataclass(frozen=True, slots=True)
class Seen:
    """The state of a source partition: by log the greatest event time and the last batch with rows; the watermark."""

    newest: Mapping[str, int] = field(default_factory=dict)
    active: Mapping[str, int] = field(default_factory=dict)
    watermark: int | None = None

    def after(self, batch: int, newest: Mapping[str, int], clock: Clock) -> Seen:
        """What was seen with one batch's greatest event times by log."""
        merged = {
            log: max(newest.get(log, t), self.newest.get(log, t))
            for log, t in {**self.newest, **newest}.items()
        }
        active = {**self.active, **dict.fromkeys(newest, batch)}
        counting = [merged[log] for log in merged if batch - active[log] < clock.idle]
        marks = [
            m
            for m in (self.watermark, min(counting) - clock.disorder_us if counting else None)
            if m is not None
        ]
        return Seen(merged, active, max(marks, default=None))

    def idle(self, batch: int, logs: Collection[str], clock: Clock) -> bool:
        """Whether a source partition with these logs waits for no rows: it has none, or none has brought rows for `idle`
        batches."""
        return not logs or all(batch - self.active.get(log, 0) >= clock.idle for log in logs)

    def tables(self) -> Tables:
        """The form in which checkpoints store it."""
        logs = sorted(self.newest)
        table = pa.table(
            {
                "log": pa.array(logs, pa.string()),
                "newest": pa.array([self.newest[log] for log in logs], pa.int64()),
                "active": pa.array([self.active[log] for log in logs], pa.int64()),
            }
        )
        return {"seen": table, "watermark": pa.table({"watermark": pa.array([self.watermark], pa.int64())})}

    def of_logs(self, logs: Collection[str]) -> Seen:
        """What was seen of some of the logs; the watermark stays."""
        newest, active = ({log: of[log] for log in logs if log in of} for of in (self.newest, self.active))
        return Seen(newest, active, self.watermark)

    @staticmethod
    def of(tables: Tables) -> Seen:
        """The inverse of `tables`."""
        columns = tables["seen"].to_pydict()
        return Seen(
            dict(zip(columns["log"], columns["newest"], strict=True)),
            dict(zip(columns["log"], columns["active"], strict=True)),
            tables["watermark"]["watermark"][0].as_py(),
        )


def together(parts: Sequence[Seen]) -> Seen:
    """What several source partitions have seen; the watermark is the one that was told of all of them."""
    marks = [part.watermark for part in parts]
    least = None if None in marks else min((mark for mark in marks if mark is not None), default=None)
    newest = {log: at for part in parts for log, at in part.newest.items()}
    return Seen(newest, {log: batch for part in parts for log, batch in part.active.items()}, least)


def parse_clock(value: Any) -> Clock:
    """Read a clock from `{column, unit, disorder, idle, ahead}`.  SpecError names the field."""
    if value is None:
        return Clock()
    if not isinstance(value, Mapping):
        raise SpecError("time", "expected a mapping with column, unit, disorder, idle and ahead")
    if unknown := set(value) - {"column", "unit", "disorder", "idle", "ahead"}:
        raise SpecError(f"time.{min(unknown)}", "unknown field; known: column, unit, disorder, idle, ahead")
    ahead = value.get("ahead")
    return Clock(
        column=value.get("column"),
        unit=choice(value.get("unit", "us"), "time.unit", tuple(UNITS)),
        disorder_us=duration_us(value.get("disorder", "0s"), "time.disorder", least=0),
        idle=whole(value.get("idle", 20), "time.idle"),
        ahead_us=None if ahead is None else duration_us(ahead, "time.ahead", least=0),
    )
