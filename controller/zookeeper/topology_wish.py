"""`commands/topology`: the topology with which a run on one machine is to go on, once its stream has drained.

Who runs the topology takes the wish and removes it, when it is carried out or when it is refused; the record of the run says
which.
"""

from __future__ import annotations

from dataclasses import dataclass

from reprise.controller.zookeeper import paths
from reprise.controller.zookeeper.errors import NodeExistsError
from reprise.controller.zookeeper.fields import dumps, loads
from reprise.controller.zookeeper.session import ZooKeeperSession
from reprise.controller.zookeeper.znode import check, pack


@dataclass(frozen=True, slots=True)
class TopologyWish:
    """One wish; `document` is the resource as JSON."""

    id: str
    document: str


def encode_topology_wish(wish: TopologyWish) -> bytes:
    return dumps({"id": wish.id, "document": wish.document})


def parse_topology_wish(raw: bytes, path: str = paths.TOPOLOGY) -> TopologyWish:
    f = loads(raw, path)
    return TopologyWish(f.text("id"), f.text("document"))


def write_topology_wish(session: ZooKeeperSession, root: str, wish: TopologyWish) -> bool:
    """Ask for it, with the rights of the records among which it stands; False: another wish waits.  ClientError;
    TooLargeError."""
    path, data = f"{root}/{paths.TOPOLOGY}", pack(encode_topology_wish(wish))
    check(path, data)
    try:
        session.create_below(root, paths.TOPOLOGY, data)
    except NodeExistsError:
        return False
    return True
