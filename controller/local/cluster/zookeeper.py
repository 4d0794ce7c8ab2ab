"""One real ZooKeeper server out of the pyspark wheel, on loopback.

Its data folder and port outlive the process, so `restart` is what a restart of ZooKeeper is in production:
sessions and ephemeral znodes survive if their clients come back within their timeout. The tick is short, as
the server does not grant session timeouts below two ticks.
"""

from pathlib import Path

from reprise.controller.agent.jvm import ZOOKEEPER, Jvm
from reprise.controller.errors import StartError
from reprise.controller.local.cluster import addresses, launch
from reprise.controller.local.cluster.daemon import Daemon
from reprise.controller.local.cluster.process_reaper import ProcessReaper
from reprise.controller.zookeeper import tls as zk_tls
from reprise.controller.zookeeper import users as zk_users
from reprise.controller.zookeeper.access import Access
from reprise.controller.zookeeper.client import connected
from reprise.controller.zookeeper.errors import ClientError
from reprise.controller.zookeeper.session import ZooKeeperSession

TICK_MS = 200
_LONGEST_SESSION_MS = 60_000

_ZOO_CFG = """\
tickTime={tick}
minSessionTimeout={shortest}
maxSessionTimeout={longest}
dataDir={data}
{listens}
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=
"""
# fsync: a znode that was acknowledged must be there after a kill of the process, for which the page cache is
# enough
_OPTIONS = ("-Dzookeeper.forceSync=no", "-Dzookeeper.preAllocSize=1024", "-Dzookeeper.jmx.log4j.disable=true")


class ZooKeeperServer(Daemon):
    """A standalone server. The reaper given (or an own one) ends it with this process, whatever happens."""

    what = "ZooKeeper"

    def __init__(
        self,
        jvm: Jvm,
        reaper: ProcessReaper,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        data_dir: Path | None = None,
        log: Path | None = None,
        heap_mb: int = 128,
        access: Access | None = None,
    ) -> None:
        """`data_dir` defaults to a folder in the reaper's scratch, which vanishes at the end; port 0 takes a
        free one.  `access`, written already: who alone may make anything there, and whether it speaks TLS; None leaves the
        server open to everybody."""
        log = log or reaper.scratch / "logs" / "zookeeper.log"
        super().__init__(reaper, host, port or addresses.free_port(host), log)
        self._jvm = jvm
        self._data = data_dir or reaper.scratch / "zookeeper"
        self._heap_mb = heap_mb
        self.access = access
        self._closed = False

    @property
    def hosts(self) -> str:
        """What a client connects to."""
        return f"{self.host}:{self.port}"

    def launch(self) -> None:
        self._data.mkdir(parents=True, exist_ok=True)
        config = self._data / "zoo.cfg"
        config.write_text(
            _ZOO_CFG.format(
                tick=TICK_MS,
                shortest=2 * TICK_MS,
                longest=_LONGEST_SESSION_MS,
                data=self._data,
                listens="\n".join(self._listens()),
            ),
            encoding="utf-8",
        )
        java, *rest = self._jvm.command(ZOOKEEPER, str(config), heap_mb=self._heap_mb)
        self._spawn([java, *_OPTIONS, *rest], self._jvm.environment(self.host))

    def _listens(self) -> list[str]:
        tls = self.access.tls if self.access is not None else None
        if tls is None:
            return [f"clientPort={self.port}", f"clientPortAddress={self.host}"]
        store = self._data / "server.pem"
        zk_tls.key_store(tls, store)
        return zk_tls.client_lines(tls, store, self.host, self.port)

    def wait_ready(self, timeout_s: float = 60.0) -> None:
        """Wait until a client gets a session and an answer, and, with `access`, nobody else may make anything.  Raises
        StartError with the end of the log."""
        self._wait_for_port(timeout_s)
        environment = self.access.control_plane() if self.access is not None else {}
        try:
            with connected(self.hosts, 10.0, environment, timeout_s) as client:
                client.exists("/")
                if self.access is not None:
                    self._close(client, self.access)
        except ClientError as error:
            raise StartError(f"ZooKeeper gives no session: {error}: {launch.tail(self._log)}") from error

    def _close(self, client: ZooKeeperSession, access: Access) -> None:
        if not self._closed and (there := zk_users.close_server(client, access.keys)):
            raise StartError(
                f"ZooKeeper: somebody else has made {', '.join(there)} on the server that was just started"
            )
        self._closed = True
