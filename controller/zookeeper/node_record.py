"""Where a node of the embedded cluster stands in ZooKeeper, and what its znode says.

A cluster may serve several topologies, one after the other: each root listed under `ROOTS` (its path, quoted
into one name) gets an ephemeral znode `<root>/nodes/<node>` from every node. `CONTROL` is always among them:
that is how the cluster itself sees its nodes arrive, with or without a topology.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, unquote

from reprise.controller.errors import ConfigError
from reprise.controller.zookeeper.fields import as_text, dumps, loads, shallow
from reprise.controller.zookeeper.paths import LEAVING, NODES

CONTROL = "/reprise-embedded"
ROOTS = f"{CONTROL}/roots"
INCARNATIONS = f"{CONTROL}/incarnations"
"""Last incarnation of each node name, persistent: a name that comes back goes on counting."""
SESSION_S = 3.0
"""Session timeout of agents that are told no other: how long after a death a node's znode goes."""
REGISTER_S = 2.0
"""An agent that lives has registered anew so soon after ZooKeeper answers it: it tries every half second."""


def absence_counts_after_s(session_s: float = SESSION_S) -> float:
    """How long after one's own reconnection to ZooKeeper the absence of a node means nothing, for agents with this session
    timeout.  Whoever derives anything from a missing znode asks here.

    A server that restarts or has slept gives each session its timeout anew.  The znode of an agent that does not reach it
    in this time goes though the node lives, and is made again when the agent does."""
    return session_s + REGISTER_S


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """Content of a node's znode."""

    node: str
    host: str
    incarnation: int
    """1 for the first start; +1 for each start after a fence."""
    pid: int
    """The node agent, which leads the node's session."""
    cpu_milli: int
    started: float
    """When this incarnation started, seconds since the epoch."""
    session_s: float = SESSION_S
    """Timeout of the agent's ZooKeeper session."""
    requested: float | None = None
    """When the node was asked for, seconds since the epoch; None: nobody told the agent."""
    heartbeat: float | None = None
    """When this incarnation was first registered in ZooKeeper."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Of the machine, as the agent was told: what a failure domain is named by."""

    @property
    def id(self) -> str:
        """`node#incarnation`."""
        return f"{self.node}#{self.incarnation}"


def encode_node(x: NodeRecord) -> bytes:
    return dumps(shallow(x))


def parse_node(raw: bytes, path: str = NODES) -> NodeRecord:
    f = loads(raw, path)
    name, cpu_milli = f.text("node"), f.integer("cpu_milli")
    if "#" in name or not name:
        raise f.wrong("node", f"{name!r} is no node name")
    if cpu_milli < 0:
        raise f.wrong("cpu_milli", f"must not be negative, but is {cpu_milli}")
    return NodeRecord(
        node=name,
        host=f.text("host"),
        incarnation=f.integer("incarnation"),
        pid=f.integer("pid"),
        cpu_milli=cpu_milli,
        started=f.number("started"),
        session_s=f.number("session_s", SESSION_S),  # records of older agents do not say
        requested=f.maybe_number("requested"),
        heartbeat=f.maybe_number("heartbeat"),
        labels=f.mapping("labels", as_text, {}),
    )


def encode_notice(reason: str, by: float | None) -> bytes:
    """The wish to empty a node, which `leaving` reads: why, and when it will be gone, seconds since the epoch."""
    return dumps({"reason": reason, "by": by})


def leaving_path(root: str, node: str) -> str:
    """Where the wish for a node stands; `node`: its name, or `node#incarnation`."""
    return f"{root}/{LEAVING}/{node}"


def nodes_path(root: str) -> str:
    """The folder of the node znodes under a root."""
    return f"{root}/{NODES}"


def root_name(root: str) -> str:
    """The root as one znode name. Raises ConfigError if it is no absolute path."""
    if not root.startswith("/") or root == "/" or root.endswith("/") or "//" in root:
        raise ConfigError(f"root: {root!r} is no ZooKeeper path like /reprise/<namespace>/<topology>")
    return quote(root, safe="")


def root_of(name: str) -> str:
    """Inverse of `root_name`."""
    return unquote(name)
