"""Which nodes of a topology are alive, by their ephemeral znodes: read when something has changed, and no more than that.

Invariant: what `read` returns is at most as old as its call, or nothing has changed since it was read.  A request that fails
leaves the list unread; it never leaves it empty.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from reprise.controller.zookeeper.errors import RecordError
from reprise.controller.zookeeper.node_record import parse_node
from reprise.controller.zookeeper.records import node_of
from reprise.controller.zookeeper.session import ZooKeeperSession
from reprise.scheduler.model import Node

log = logging.getLogger("reprise.coordinator")
_NOTHING: Mapping[str, Node | None] = MappingProxyType({})


class NodeList:
    """Read by one thread at a time; `changed` is called by a thread of the client.  `wait` gives the value of an answer,
    None where there is no such znode, and raises ClientError."""

    def __init__(
        self,
        client: ZooKeeperSession,
        folder: str,
        changed: Callable[[], None],
        wait: Callable[[Any], Any],
    ) -> None:
        self._client, self._folder, self._changed, self._wait = client, folder, changed, wait
        self._fresh = False
        self._version, self._known = -1, _NOTHING

    def forget(self) -> None:
        """The session is another one, or may be: nothing is known."""
        self._fresh, self._version = False, -1

    def doubt(self) -> None:
        """The folder has changed, whether the watch has said so yet or not."""
        self._fresh = False

    @property
    def names(self) -> frozenset[str]:
        """All that have a heartbeat by the last reading, with those whose record cannot be read."""
        return frozenset(self._known)

    def read(self) -> tuple[Node, ...]:
        """Nodes by name."""
        known = self._known
        if not self._fresh:
            self._fresh = True  # until the folder changes, be it while it is read
            try:
                self._version, known = self._newest()
                self._known = known
            except BaseException:
                self._fresh = False
                raise
        return tuple(node for node in known.values() if node is not None)

    def _newest(self) -> tuple[int, Mapping[str, Node | None]]:
        answer = self._client.get_folder_async(self._folder, self._saw)
        names, stat = self._wait(answer) or ((), None)
        version, names = -1 if stat is None else stat.cversion, sorted(names)
        known = self._still(names, version)
        return version, self._read_each(names) if known is None else known

    def _still(self, names: Sequence[str], version: int) -> dict[str, Node | None] | None:
        """The nodes of these names, if all that has happened since is that others have gone: the folder's version counts
        what comes and goes, and a node's record never changes while the node lives."""
        gone = len(self._known) - len(names)
        if self._version < 0 or version - self._version != gone or not self._known.keys() >= set(names):
            return None
        return {name: self._known[name] for name in names}

    def _read_each(self, names: Sequence[str]) -> dict[str, Node | None]:
        answers = {name: self._client.get_async(f"{self._folder}/{name}") for name in names}
        found: dict[str, Node | None] = {}
        for name, answer in answers.items():
            raw = self._wait(answer)
            found[name] = None if raw is None else _node(raw[0], f"{self._folder}/{name}")
        return found

    def _saw(self, _: Any) -> None:
        self._fresh = False
        self._changed()


def _node(raw: bytes, path: str) -> Node | None:
    """One whose record cannot be read is not there; it must not stop the topology."""
    try:
        return node_of(parse_node(raw, path))
    except RecordError as error:
        log.warning("event=node-ignored reason=%r", str(error))
        return None
