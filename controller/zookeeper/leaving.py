"""Which nodes are to be emptied: a znode for each wish below `leaving`, by whoever wants it.

`leaving/<node>` is written by `reprise drain` and stays until it is taken back; `leaving/<node>#<incarnation>` by the agent
of a node that was told that it will end, and goes with its session.  Each is written once and never changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from reprise.controller.zookeeper import paths
from reprise.controller.zookeeper.fields import loads
from reprise.controller.zookeeper.node_record import encode_notice
from reprise.controller.zookeeper.wish_folder import WishFolder
from reprise.scheduler.model import Leaving, Node


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


def leaving_folder(folder: WishFolder[Leaving]) -> Wishes:
    """Wishes as they are now."""
    return Wishes(folder.read())
