"""Where a node of the embedded cluster stands in ZooKeeper, and what its znode says.

A cluster may serve several topologies, one after the other: each root listed under `ROOTS` (its path, quoted
into one name) gets an ephemeral znode `<root>/nodes/<node>` from every node. `CONTROL` is always among them:
that is how the cluster itself sees its nodes arrive, with or without a topology.
"""

import json
from dataclasses import asdict, dataclass
from urllib.parse import quote, unquote

from reprise.controller.errors import ConfigError, ZooKeeperError

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
    """1 for the first start; +1 for each start after a fence or the death of the Worker."""
    pid: int
    """The node agent, which leads the node's session."""
    cpu_milli: int
    started: float
    """When this incarnation started, seconds since the epoch."""
    session_s: float = SESSION_S
    """Timeout of the agent's ZooKeeper session."""

    def encode(self) -> bytes:
        """As JSON."""
        return json.dumps(asdict(self), sort_keys=True).encode()

    @classmethod
    def decode(cls, raw: bytes) -> "NodeRecord":
        """Raises ZooKeeperError naming what is wrong."""
        try:
            fields = json.loads(raw)
            return cls(
                node=str(fields["node"]),
                host=str(fields["host"]),
                incarnation=int(fields["incarnation"]),
                pid=int(fields["pid"]),
                cpu_milli=int(fields["cpu_milli"]),
                started=float(fields["started"]),
                session_s=float(fields.get("session_s", SESSION_S)),  # records of older agents do not say
            )
        except (ValueError, TypeError, KeyError) as error:
            raise ZooKeeperError(f"not a node record: {raw[:200]!r}: {error!r}") from error


def nodes_path(root: str) -> str:
    """The folder of the node znodes under a root."""
    return f"{root}/nodes"


def root_name(root: str) -> str:
    """The root as one znode name. Raises ConfigError if it is no absolute path."""
    if not root.startswith("/") or root == "/" or root.endswith("/") or "//" in root:
        raise ConfigError(f"root: {root!r} is no ZooKeeper path like /reprise/<namespace>/<topology>")
    return quote(root, safe="")


def root_of(name: str) -> str:
    """Inverse of `root_name`."""
    return unquote(name)
