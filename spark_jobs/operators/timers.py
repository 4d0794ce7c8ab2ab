"""Timers of keys in event time, for operators of one's own: what to do when the watermark passes a time.

Invariant: which timers are due, and in which order, follows from the calls that were made and from the watermark alone, also
where a state was restored between them.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

_LIMIT = 1 << 63
_SPARE = 64
"""Entries of the queue that may stand for nothing before it is made anew."""


class Timers:
    """Times that are waited for, each with a key; they are part of an operator's state.

    A key is text, a whole number, a truth value, None, or a tuple of such; it may have several timers.  `freeze` and
    `restore` make a table of them and the reverse.
    """

    __slots__ = ("_next", "_pending", "_queue")
    __hash__ = None  # type: ignore[assignment]
    """So no dataclass takes one as the default of a field, which all states of a process would share."""

    def __init__(self) -> None:
        self._pending: dict[tuple[str, int], tuple[int, Any]] = {}
        """Of each timer by key, written out as True and 1 are two keys, and time: its number in the order in which they were
        set, and the key."""
        self._queue: list[tuple[int, int, Any]] = []
        """A heap of time, number and key, also of timers that were cancelled since."""
        self._next = 0

    def __len__(self) -> int:
        return len(self._pending)

    def set(self, key: Any, time: int) -> None:
        """Wait for a time, in microseconds since the epoch; once, however often it is said.

        TypeError for a key that could not be stored, or a time that is no integer; ValueError for one beyond 64 bits.
        """
        _require_key(key)
        if type(time) is not int:
            raise TypeError(f"the time of a timer must be an int, not {type(time).__name__}")
        if not -_LIMIT <= time < _LIMIT:
            raise ValueError(f"{time} is no time in 64 bits")
        named = repr(key), time
        if named not in self._pending:
            self._pending[named] = self._next, key
            heapq.heappush(self._queue, (time, self._next, key))
            self._next += 1

    def cancel(self, key: Any, time: int) -> None:
        """Do not wait for this time any more, where it was waited for."""
        self._pending.pop((repr(key), time), None)
        if len(self._queue) > 2 * len(self._pending) + _SPARE:
            self._queue = [(at, number, each) for (_, at), (number, each) in self._pending.items()]
            heapq.heapify(self._queue)

    def due(self, watermark: int | None) -> list[tuple[int, Any]]:
        """Time and key of the timers up to the watermark, by time, then in the order in which they were set.

        They are gone then.  Timers that are set afterwards are for the next call, also where their time has come already.
        """
        found = []
        while self._queue and watermark is not None and self._queue[0][0] <= watermark:
            time, number, key = heapq.heappop(self._queue)
            named = repr(key), time
            if self._pending.get(named, (None,))[0] == number:
                del self._pending[named]
                found.append((time, key))
        return found

    def freeze(self) -> Callable[[], pa.Table]:
        """A function that gives the timers as a table, as of now, in the order in which they were set."""
        pending = [(time, key) for (_, time), (_, key) in self._pending.items()]

        def encode() -> pa.Table:
            keys = [json.dumps(key) for _, key in pending]
            times = [time for time, _ in pending]
            return pa.table({"time": pa.array(times, pa.int64()), "key": pa.array(keys, pa.string())})

        return encode

    @classmethod
    def restore(cls, table: pa.Table) -> Timers:
        """The inverse of `freeze`."""
        found = cls()
        for time, key in zip(table.column("time").to_pylist(), table.column("key").to_pylist(), strict=True):
            found.set(_as_key(json.loads(key)), time)
        return found

    @staticmethod
    def keys_of(table: pa.Table, names: Sequence[str]) -> pa.Table:
        """The keys of frozen timers as columns of these names, one for each part of a key; for `Operator.keys_of`."""
        keys = [_as_key(json.loads(key)) for key in table.column("key").to_pylist()]
        parts = [key if isinstance(key, tuple) else (key,) for key in keys]
        if any(len(part) != len(names) for part in parts):
            raise ValueError(f"the key of a timer does not have {len(names)} parts, for {', '.join(names)}")
        return pa.table({name: [part[at] for part in parts] for at, name in enumerate(names)})


def _require_key(key: Any) -> None:
    if type(key) is tuple:
        for part in key:
            _require_key(part)
    elif key is not None and type(key) not in (str, int, bool):
        kinds = "text, a whole number, a truth value, None, or a tuple of such"
        raise TypeError(f"the key of a timer must be {kinds}, not {type(key).__name__}")


def _as_key(value: Any) -> Any:
    return tuple(map(_as_key, value)) if isinstance(value, list) else value
