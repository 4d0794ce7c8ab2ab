"""Start, break and stop a cluster of local processes.

Everything that is started carries the mark of this cluster's reaper, so it ends with this Python process
however that ends. Nodes are killed and frozen as a set in one sweep: a correlated failure is what this
cluster is for.
"""

import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

from reprise.controller.agent import applications, processes
from reprise.controller.agent.agent import GRACE
from reprise.controller.agent.java import find_java
from reprise.controller.agent.jvm import MASTER, Jvm
from reprise.controller.agent.processes import Session
from reprise.controller.agent.spark_secret import SparkSecret
from reprise.controller.errors import EmbeddedError, StartError, UnknownNodeError, ZooKeeperError
from reprise.controller.errors import NodeExistsError as NodeIsAliveError
from reprise.controller.local.cluster import addresses, launch
from reprise.controller.local.cluster.class_archive import ensure_archive
from reprise.controller.local.cluster.config import ClusterConfig
from reprise.controller.local.cluster.fork_server import ForkServer
from reprise.controller.local.cluster.process_reaper import ProcessReaper
from reprise.controller.local.cluster.zookeeper import ZooKeeperServer
from reprise.controller.zookeeper import node_record as node_tree
from reprise.controller.zookeeper.access import Access
from reprise.controller.zookeeper.client import make_client
from reprise.controller.zookeeper.errors import ClientError, NoNodeError, RecordError
from reprise.controller.zookeeper.node_record import NodeRecord, parse_node
from reprise.controller.zookeeper.session import ZooKeeperSession

Progress = Callable[[str], None]


@dataclass(slots=True)
class _Node:
    host: str
    session: Session
    """Led by the agent."""


class EmbeddedCluster:
    """A Spark standalone master, a ZooKeeper server and nodes. Thread-safe; a context manager that starts and
    stops."""

    def __init__(self, config: ClusterConfig | None = None) -> None:
        self.config = config or ClusterConfig()
        self._lock = threading.RLock()
        self._nodes: dict[str, _Node] = {}
        self._named = 0
        self._started_nodes = 0
        self._reaper: ProcessReaper | None = None
        self._fork_server: ForkServer | None = None
        self._zk: ZooKeeperSession | None = None

    # life

    def start(self, progress: Progress = lambda _: None) -> None:
        """Returns when all nodes are registered in ZooKeeper. Leaves nothing if it
        raises."""
        with self._lock:
            if self._reaper is not None:
                raise StartError("the cluster has been started already")
            try:
                self._start_services(progress)
                names = [self.add_node() for _ in range(self.config.nodes)]
            except BaseException:
                self.stop()
                raise
        try:
            self.wait_for(names, progress=progress)
        except BaseException:
            self.stop()
            raise

    def _start_services(self, progress: Progress) -> None:
        config = self.config
        prefix, reaper = ProcessReaper.with_prefix(config.work_dir)
        self._reaper = reaper
        self._hosts = addresses.HostPool(prefix)
        self.log_dir = config.log_dir or reaper.scratch / "logs"
        self.log_dir.mkdir(parents=True, exist_ok=True)
        java = find_java(reaper.scratch / "java", force_bundled=config.force_bundled_java)
        self._jvm = Jvm(java, reaper.scratch / "log4j2.properties", config.java_options)
        self._jvm.write_log_config()
        if config.class_archive:
            archive = ensure_archive(self._jvm, reaper, progress)
            self._jvm = replace(self._jvm, archive=archive)
        head = f"{prefix}.{addresses.HEAD}"
        progress(f"ZooKeeper and Spark master at {head}")
        self._access = Access(reaper.scratch / "zookeeper-users", config.zk_tls)
        self._access.write()
        self.zookeeper = ZooKeeperServer(
            self._jvm, reaper, host=head, port=config.zk_port, log=self.log_dir / "zookeeper.log",
            heap_mb=config.daemon_heap_mb, access=self._access,
        )  # fmt: skip
        self.zookeeper.launch()
        self.applications.mkdir(mode=0o700)
        self._secret = SparkSecret(reaper.scratch / "spark-driver.conf")
        self._secret.write()
        self._fork_server = ForkServer(
            self._daemon_environment(head), self.log_dir / "fork-server.log", config.start_timeout_s
        )
        self._start_master(head)
        self.zookeeper.wait_ready()
        self._zk = make_client(self.zk_hosts, 10.0, self.zk_environment())
        self._zk.start(timeout=30)
        self.serve(node_tree.CONTROL)

    def _start_master(self, head: str) -> None:
        assert self._reaper is not None
        port = self.config.master_port or addresses.free_port(head)
        ui_port = self.config.master_ui_port or addresses.free_port(head)
        self._master_url, self.master_ui_url = f"spark://{head}:{port}", f"http://{head}:{ui_port}"
        command = self._jvm.command(
            MASTER,
            "--host",
            head,
            "--port",
            str(port),
            "--webui-port",
            str(ui_port),
            heap_mb=self.config.daemon_heap_mb,
        )
        command[1:1] = [
            "-Dspark.ui.killEnabled=false",
            *self._secret.daemon_options(),
        ]  # nobody logs in there
        log = self.log_dir / "master.log"
        process, _ = launch.spawn(command, self._daemon_environment(head), log)
        self._master = process
        launch.wait_until(
            lambda: launch.accepts(head, port),
            "Spark master",
            self.config.start_timeout_s,
            process=process,
            log=log,
        )

    def stop(self) -> None:
        """Kill every process, remove the scratch folder. Safe to call twice, and after a failed start."""
        with self._lock:
            client, self._zk = self._zk, None
            if client is not None:
                client.close()
            reaper, self._reaper = self._reaper, None
            fork_server, self._fork_server = self._fork_server, None
            if fork_server is not None:
                fork_server.close()
            self._nodes.clear()
            if reaper is not None:
                reaper.close()

    def __enter__(self) -> "EmbeddedCluster":
        if self._reaper is None:
            self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # nodes

    def add_node(self, name: str | None = None) -> str:
        """Start a node and return its name at once; it has arrived when its znode is there (`wait_for`)."""
        requested = time.time()
        with self._lock:
            self._running()
            name = name or self._fresh_name()
            if name in self._nodes:
                raise NodeIsAliveError(f"node {name} is alive")
            host = self._hosts.take()
            assert self._fork_server is not None
            try:
                session = self._fork_server.spawn(
                    self._agent_command(name, host, requested),
                    self._daemon_environment(host) | self.zk_environment(),
                    self.log_dir / f"{name}-agent.log",
                )
            except StartError:
                self._hosts.give_back(host)
                raise
            self._nodes[name] = _Node(host, session)
            return name

    def _agent_command(self, name: str, host: str, requested: float) -> list[str]:
        config = self.config
        scratch = self._running().scratch / "nodes" / name
        return [
            sys.executable, "-m", "reprise.controller.agent.agent", "--node", name, "--host", host,
            "--zk", self.zk_hosts, "--cpu-milli", str(config.cpu_milli),
            "--session-timeout-ms", str(config.session_timeout_ms), "--scratch", str(scratch),
            "--requested", f"{requested:.3f}", *self._labels(),
            "--applications", str(self.applications), "--log", str(self.log_dir / f"{name}-host.log"),
        ]  # fmt: skip

    def _labels(self) -> list[str]:
        turn, self._started_nodes = self._started_nodes, self._started_nodes + 1
        found = ((key, values[turn % len(values)]) for key, values in self.config.labels.items() if values)
        return [part for key, value in found for part in ("--label", f"{key}={value}")]

    def _fresh_name(self) -> str:
        while True:
            self._named += 1
            if (name := f"n{self._named}") not in self._nodes:
                return name

    def kill(self, names: Iterable[str]) -> None:
        """SIGKILL all processes of these nodes at once; returns when none is left. The nodes are gone for
        good."""
        with self._lock:
            chosen = self._chosen(names)
            sessions = [node.session for node in chosen.values()]
            processes.kill(lambda: processes.members(sessions))
            for name, node in chosen.items():
                self._hosts.give_back(node.host)
                del self._nodes[name]

    def notice(self, names: Iterable[str], grace_s: float) -> None:
        """SIGTERM to the agents of these nodes: they say so, work on for `grace_s` seconds, and end."""
        with self._lock:
            for name, node in self._chosen(names).items():
                folder = self._running().scratch / "nodes" / name
                folder.mkdir(parents=True, exist_ok=True)
                (folder / GRACE).write_text(f"{grace_s}\n", encoding="utf-8")
                if (agent := node.session.lead()) is not None:
                    processes.send(agent, signal.SIGTERM)

    def freeze(self, names: Iterable[str]) -> None:
        """SIGSTOP all processes of these nodes: they stay, hold their connections, and answer nobody."""
        with self._lock:
            sessions = [node.session for node in self._chosen(names).values()]
            processes.freeze(lambda: processes.members(sessions))

    def thaw(self, names: Iterable[str]) -> None:
        """SIGCONT after `freeze`. A node whose znode has expired meanwhile fences itself and comes back
        renewed."""
        with self._lock:
            sessions = [node.session for node in self._chosen(names).values()]
            processes.thaw(lambda: processes.members(sessions))

    def wait_for(
        self, names: Iterable[str], timeout_s: float | None = None, *, progress: Progress = lambda _: None
    ) -> None:
        """Wait until all these nodes have arrived. Raises StartError with the end of an agent's log."""
        wanted = self._chosen(names)
        seen: set[str] = set()

        def ready() -> bool:
            for name, node in wanted.items():
                if node.session.lead() is None:
                    log = self.log_dir / f"{name}-agent.log"
                    raise StartError(f"node {name}: the agent has ended: {launch.tail(log)}")
            fresh = {name for name, record in self.arrived().items() if name in wanted} - seen
            for name in sorted(fresh):
                progress(f"node {name} at {wanted[name].host} has arrived ({len(seen) + 1}/{len(wanted)})")
                seen.add(name)
            return len(seen) == len(wanted)

        missing = next(iter(wanted), "")
        launch.wait_until(
            ready,
            f"nodes {', '.join(wanted)}",
            timeout_s if timeout_s is not None else self.config.start_timeout_s,
            log=self.log_dir / f"{missing}-agent.log",
        )

    # ZooKeeper

    def serve(self, root: str) -> None:
        """Let every node, present and future, register under `root` (/reprise/<namespace>/<topology>) too."""
        path = f"{node_tree.ROOTS}/{node_tree.root_name(root)}"
        client = self._client()
        try:
            client.ensure_path(node_tree.nodes_path(root))
            client.ensure_path(path)
        except ClientError as error:
            raise ZooKeeperError(f"cannot serve {root}: {error!r}") from error

    def unserve(self, root: str) -> None:
        """Let the nodes leave `root`."""
        try:
            self._client().delete(f"{node_tree.ROOTS}/{node_tree.root_name(root)}")
        except NoNodeError:
            return
        except ClientError as error:
            raise ZooKeeperError(f"cannot leave {root}: {error!r}") from error

    def arrived(self, root: str = node_tree.CONTROL) -> dict[str, NodeRecord]:
        """The nodes registered under a served root now."""
        client, found = self._client(), {}
        try:
            for name in client.get_children(node_tree.nodes_path(root)):
                try:
                    path = f"{node_tree.nodes_path(root)}/{name}"
                    found[name] = parse_node(client.get(path)[0], path)
                except NoNodeError:
                    continue
        except (ClientError, RecordError) as error:
            raise ZooKeeperError(f"cannot list {root}: {error!r}") from error
        return found

    # what a driver needs

    @property
    def master_url(self) -> str:
        """The URL for `spark.master`."""
        return self._master_url

    @property
    def zk_hosts(self) -> str:
        """The hosts for a ZooKeeper client."""
        return self.zookeeper.hosts

    def zk_environment(self, root: str | None = None) -> dict[str, str]:
        """Variables without which a process may do nothing in ZooKeeper: of the processes of the topology at `root`
        (/reprise/<namespace>/<topology>), which reach its records alone, or of the control plane."""
        self._running()
        return self._access.control_plane() if root is None else self._access.topology(root)

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of the nodes that were started and not killed, frozen ones included."""
        with self._lock:
            return tuple(self._nodes)

    @property
    def scratch(self) -> Path:
        """The folder that goes with the cluster."""
        return self._running().scratch

    @property
    def applications(self) -> Path:
        """Where applications announce that they want executors (`controller.agent.applications`)."""
        return self.scratch / "applications"

    @property
    def token(self) -> str:
        """The mark of this cluster's processes (see `reaper`)."""
        return self._running().token

    def host_of(self, node: str) -> str:
        """The node's loopback address: Spark's host of its executor."""
        with self._lock:
            return next(iter(self._chosen([node]).values())).host

    def spark_env(self) -> Mapping[str, str]:
        """Environment of a process that runs a driver; to be laid over its own."""
        head = self.zookeeper.host
        return self._jvm.environment(head) | {
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "PYSPARK_SUBMIT_ARGS": self.submit_arguments(),
            applications.FOLDER: str(self.applications),
        }

    def submit_arguments(self, *more: str) -> str:
        """The value of PYSPARK_SUBMIT_ARGS, with `more` options; a driver without them is answered by nobody."""
        return shlex.join(self._secret.submit_arguments(*more))

    def executor_java_options(self) -> str:
        """The value of `spark.executor.extraJavaOptions`."""
        return " ".join(self._jvm.flags())

    def driver_java_options(self) -> str:
        """The value of `spark.driver.extraJavaOptions`."""
        return " ".join(self._jvm.flags())

    # inside

    def _daemon_environment(self, host: str) -> dict[str, str]:
        """The environment of the master, and of an agent and the executors below it."""
        mark = self._running().environment()
        return self._jvm.environment(host) | mark | self._secret.daemon_environment()

    def _running(self) -> ProcessReaper:
        if self._reaper is None:
            raise EmbeddedError("the cluster is not running")
        return self._reaper

    def _client(self) -> ZooKeeperSession:
        if self._zk is None:
            raise EmbeddedError("the cluster is not running")
        return self._zk

    def _chosen(self, names: Iterable[str]) -> dict[str, _Node]:
        with self._lock:
            names = list(names)
            if unknown := [name for name in names if name not in self._nodes]:
                raise UnknownNodeError(
                    f"no such node: {', '.join(unknown)} (there are {', '.join(self._nodes)})"
                )
            return {name: self._nodes[name] for name in names}
