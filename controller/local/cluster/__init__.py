"""A whole cluster on one machine: Spark standalone, ZooKeeper and N nodes as local processes.

Everything comes out of the jars of the installed pyspark wheel and listens on loopback addresses only. A node
is one operating system session, so that losing a node means exactly what it means in a data centre: all of
its processes go (or freeze) together, whatever started them.

The names are loaded on first use: the small processes of the cluster (`reaper`) are modules of this package and
must not pay for importing what only its owner needs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reprise.controller.agent.java import find_java
    from reprise.controller.errors import EmbeddedError
    from reprise.controller.local.cluster.cluster import EmbeddedCluster
    from reprise.controller.local.cluster.config import ClusterConfig
    from reprise.controller.local.cluster.zookeeper import ZooKeeperServer

__all__ = ["ClusterConfig", "EmbeddedCluster", "EmbeddedError", "ZooKeeperServer", "find_java"]

_HOME = {
    "ClusterConfig": "reprise.controller.local.cluster.config",
    "EmbeddedCluster": "reprise.controller.local.cluster.cluster",
    "EmbeddedError": "reprise.controller.errors",
    "ZooKeeperServer": "reprise.controller.local.cluster.zookeeper",
    "find_java": "reprise.controller.agent.java",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
