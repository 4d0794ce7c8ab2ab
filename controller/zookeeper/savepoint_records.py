"""Savepoints as people ask for them, and as the driver says how they stand.

`savepoint-wishes/<id>` is written once and never changed; the driver removes it when it has said what came of it.
`savepoints` is the driver's: all that exist, and what became of the newest wishes.  What a savepoint holds is in the
checkpoint location alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from reprise.controller.zookeeper import paths
from reprise.controller.zookeeper.fields import Fields, as_object, as_text, dumps, loads
from reprise.spark_jobs.state.savepoint_wish import SavepointWish

MOST_LISTED = 200
"""Savepoints that the record names: the newest; all of them are below the checkpoint location."""
MOST_TEXT = 500


@dataclass(frozen=True, slots=True)
class SavepointEntry:
    """One savepoint, for people."""

    name: str
    position: int
    time: float
    """When it was asked for, unix seconds."""
    size_bytes: int
    wish: str


@dataclass(frozen=True, slots=True)
class SavepointsRecord:
    """How savepoints stand."""

    savepoints: tuple[SavepointEntry, ...] = ()
    """By name."""
    done: dict[str, str] = field(default_factory=dict)
    """Id of a wish that is over -> why it was refused; empty: it was carried out."""
    waits: dict[str, str] = field(default_factory=dict)
    """Id of a wish that is not over -> what it waits for."""

    def has(self, wish: str) -> bool:
        """Whether it is known what came of a wish."""
        return wish in self.done or any(one.wish == wish for one in self.savepoints)


def encode_wish(wish: SavepointWish) -> bytes:
    """The id is the name of its znode."""
    return dumps({"name": wish.name, "delete": wish.delete})


def parse_wish(raw: bytes, path: str = paths.SAVEPOINT_WISHES) -> SavepointWish:
    f = loads(raw, path)
    return SavepointWish(f.text("name"), path.rpartition("/")[2], f.flag("delete", False))


def encode_savepoints(record: SavepointsRecord) -> bytes:
    entries = [
        {"name": s.name, "position": s.position, "time": s.time, "size_bytes": s.size_bytes, "wish": s.wish}
        for s in record.savepoints
    ]
    return dumps({"savepoints": entries, "done": record.done, "waits": record.waits})


def parse_savepoints(raw: bytes, path: str = paths.SAVEPOINTS) -> SavepointsRecord:
    f = loads(raw, path)
    entries = f.items("savepoints", _entry)
    return SavepointsRecord(tuple(entries), f.mapping("done", as_text, {}), f.mapping("waits", as_text, {}))


def _entry(f: Fields, name: str, value: Any) -> SavepointEntry:
    e = as_object(f, name, value)
    return SavepointEntry(
        e.text("name"), e.integer("position"), e.number("time"), e.integer("size_bytes"), e.text("wish", "")
    )
