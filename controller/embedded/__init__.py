"""A whole cluster on one machine: Spark standalone, ZooKeeper and N nodes as local processes.

Everything comes out of the jars of the installed pyspark wheel and listens on loopback addresses only. A node
is one operating system session, so that losing a node means exactly what it means in a data centre: all of
its processes go (or freeze) together, whatever started them.

The names are loaded on first use: the small processes of the cluster (`warden`, `node_agent`) are modules of
this package and must not pay for importing what only its owner needs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from controller.embedded.cluster import EmbeddedCluster
    from controller.embedded.config import ClusterConfig
    from controller.embedded.errors import EmbeddedError
    from controller.embedded.java import find_java
    from controller.embedded.zookeeper import ZooKeeperServer

__all__ = ["ClusterConfig", "EmbeddedCluster", "EmbeddedError", "ZooKeeperServer", "find_java"]

_HOME = {
    "ClusterConfig": "config",
    "EmbeddedCluster": "cluster",
    "EmbeddedError": "errors",
    "ZooKeeperServer": "zookeeper",
    "find_java": "java",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
