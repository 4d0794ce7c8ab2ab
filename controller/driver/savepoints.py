"""The driver's turn with savepoints: wishes in, how they stand out.

Law: a wish is removed only after it is published what came of it.  A driver that ends between the two leaves it to the next
one, which finds the savepoint by the id of the wish, and says so again.  What came of a wish is known to each further driver
from the record of the one before: an annotation that stands asks again for ever, and what people have deleted since by hand
must not be taken anew.
"""

from __future__ import annotations

from reprise.controller.driver.channel import Channel
from reprise.controller.zookeeper import paths
from reprise.controller.zookeeper.savepoint_records import (
    MOST_LISTED,
    MOST_TEXT,
    SavepointEntry,
    SavepointsRecord,
    encode_savepoints,
)
from reprise.spark_jobs.credentials import redacted
from reprise.spark_jobs.engine.savepoints import SavepointsNow, SavepointTaker


class SavepointTurns:
    """The turns of one driver's life; called by the thread that runs the engine."""

    def __init__(self, taker: SavepointTaker, channel: Channel) -> None:
        self._taker, self._channel = taker, channel
        self._published: SavepointsRecord | None = None
        self._before: SavepointsRecord | None = None
        """What the driver before has said; None: not read yet."""

    def turn(self) -> None:
        """Go on with what is wanted, and tell how it stands.  SupersededError: a later driver has begun."""
        if self._before is None:
            self._before = self._channel.read_savepoints()
            if self._before is None:  # nothing is begun that may be over
                return
            self._taker.remember(self._before.done)
        wishes = self._channel.read_savepoint_wishes()
        self._taker.turn(wishes.values())
        if (now := self._taker.now) is None:
            return
        record = record_of(now)
        if record != self._published:
            if not self._channel.publish(paths.SAVEPOINTS, encode_savepoints(record)):
                return
            self._published = record
        for wish in wishes:
            if wish in record.done:
                self._channel.forget_savepoint_wish(wish)

    @property
    def busy(self) -> bool:
        """Whether something is under way, so that the next turn should come soon."""
        return self._taker.busy


def record_of(now: SavepointsNow) -> SavepointsRecord:
    """What is published."""
    newest = sorted(now.savepoints, key=lambda one: one.time)[-MOST_LISTED:]
    entries = [SavepointEntry(s.name, s.position, s.time, s.size_bytes, s.wish) for s in newest]
    return SavepointsRecord(
        tuple(sorted(entries, key=lambda entry: entry.name)),
        {wish: redacted(why)[:MOST_TEXT] for wish, why in now.done.items()},
        {wish: redacted(why)[:MOST_TEXT] for wish, why in now.waits.items()},
    )
