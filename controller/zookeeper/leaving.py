"""Which nodes are to be emptied: a znode for each wish below `leaving`, by whoever wants it.

`leaving/<node>` is written by `reprise drain` and stays until it is taken back; `leaving/<node>#<incarnation>` by the agent
of a node that was told that it will end, and goes with its session.  Each is written once and never changed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from reprise.controller.zookeeper import paths
from reprise.controller.zookeeper.errors import RecordError
from reprise.controller.zookeeper.fields import loads
from reprise.controller.zookeeper.node_record import encode_notice
from reprise.controller.zookeeper.session import ZooKeeperSession
from reprise.scheduler.model import Leaving, Node

log = logging.getLogger("reprise.coordinator")


def encode_leaving(x: Leaving) -> bytes:
    return encode_notice(x.reason, x.by)


def parse_leaving(raw: bytes, path: str = paths.LEAVING) -> Leaving:
    f = loads(raw, path)
    return Leaving(f.text("reason", ""), f.maybe_number("by"))


@dataclass(frozen=True, slots=True)
class Wishes:
    """Wishes by node name, or by `node#incarnation`."""

    by_name: Mapping[str, Leaving]

    def of(self, node: Node, *more: Mapping[str, Leaving]) -> Node:
        """The node with the most urgent wish for it, of these and of `more`, by its name."""
        found = [
            wishes[name]
            for wishes in (self.by_name, *more)
            for name in (node.name, node.id)
            if name in wishes
        ]
        if not found:
            return node
        return replace(node, leaving=min(found, key=lambda x: (x.by is None, x.by or 0.0, x.reason)))


def read_wish(raw: bytes | None, path: str) -> Leaving | None:
    """A wish that cannot be read is none."""
    try:
        return None if raw is None else parse_leaving(raw, path)
    except RecordError as error:
        log.warning("event=wish-ignored reason=%r", str(error))
        return None


@dataclass(slots=True)
class LeavingList:
    """The wishes of one topology, read when some have come or gone; by one thread at a time.  `changed` is called by a
    thread of the client; `wait` gives the value of an answer, None where there is no such znode, and raises ClientError."""

    client: ZooKeeperSession
    folder: str
    changed: Callable[[], None]
    wait: Callable[[Any], Any]
    _fresh: bool = False
    _known: Wishes = Wishes({})

    def forget(self) -> None:
        """The session is another one, or may be."""
        self._fresh = False

    def read(self) -> Wishes:
        """Wishes as they are now."""
        if self._fresh:
            return self._known
        self._fresh = True  # until the folder changes, be it while it is read
        try:
            found = self.wait(self.client.get_folder_async(self.folder, self._saw))
            if found is None:
                self._fresh = False
            answers = {
                name: self.client.get_async(f"{self.folder}/{name}") for name in (found or ((), None))[0]
            }
            read = {name: self.wait(answer) for name, answer in answers.items()}
        except BaseException:
            self._fresh = False
            raise
        wishes = {name: read_wish(raw and raw[0], f"{self.folder}/{name}") for name, raw in read.items()}
        self._known = Wishes({name: wish for name, wish in wishes.items() if wish is not None})
        return self._known

    def _saw(self, _: Any) -> None:
        self._fresh = False
        self.changed()
