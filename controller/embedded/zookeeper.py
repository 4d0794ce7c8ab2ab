"""One real ZooKeeper server out of the pyspark wheel, on loopback.

Its data folder and port outlive the process, so `restart` is what a restart of ZooKeeper is in production:
sessions and ephemeral znodes survive if their clients come back within their timeout. The tick is short, as
the server does not grant session timeouts below two ticks.
"""

import subprocess
from pathlib import Path

from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

from controller.embedded import addresses, launch, processes
from controller.embedded.errors import StartError
from controller.embedded.jvm import ZOOKEEPER, Jvm
from controller.embedded.processes import Session
from controller.embedded.warden import Warden
from controller.embedded.zk_client import make_client

TICK_MS = 200
_LONGEST_SESSION_MS = 60_000
_STOP_TIMEOUT_S = 5.0

_ZOO_CFG = """\
tickTime={tick}
minSessionTimeout={shortest}
maxSessionTimeout={longest}
dataDir={data}
clientPort={port}
clientPortAddress={host}
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=
"""
# fsync: a znode that was acknowledged must be there after a kill of the process, for which the page cache is
# enough
_OPTIONS = ("-Dzookeeper.forceSync=no", "-Dzookeeper.preAllocSize=1024", "-Dzookeeper.jmx.log4j.disable=true")


class ZooKeeperServer:
    """A standalone server. The warden given (or an own one) ends it with this process, whatever happens."""

    def __init__(
        self,
        jvm: Jvm,
        warden: Warden,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        data_dir: Path | None = None,
        log: Path | None = None,
        heap_mb: int = 128,
    ) -> None:
        """`data_dir` defaults to a folder in the warden's scratch, which vanishes at the end; port 0 takes a
        free one."""
        self._jvm = jvm
        self._warden = warden
        self.host = host
        self.port = port or addresses.free_port(host)
        self._data = data_dir or warden.scratch / "zookeeper"
        self._log = log or warden.scratch / "logs" / "zookeeper.log"
        self._heap_mb = heap_mb
        self._running: tuple[subprocess.Popen[bytes], Session] | None = None

    @property
    def hosts(self) -> str:
        """What a client connects to."""
        return f"{self.host}:{self.port}"

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._running is not None and self._running[0].poll() is None

    def launch(self) -> None:
        """Start the process without waiting for it."""
        self._data.mkdir(parents=True, exist_ok=True)
        config = self._data / "zoo.cfg"
        config.write_text(
            _ZOO_CFG.format(
                tick=TICK_MS,
                shortest=2 * TICK_MS,
                longest=_LONGEST_SESSION_MS,
                data=self._data,
                port=self.port,
                host=self.host,
            ),
            encoding="utf-8",
        )
        java, *rest = self._jvm.command(ZOOKEEPER, str(config), heap_mb=self._heap_mb)
        environment = self._jvm.environment(self.host) | self._warden.environment()
        self._running = launch.spawn([java, *_OPTIONS, *rest], environment, self._log)

    def wait_ready(self, timeout_s: float = 60.0) -> None:
        """Until a client gets a session and an answer. Raises StartError with the end of the log."""
        if self._running is None:
            raise StartError("ZooKeeper has not been started")
        launch.wait_until(
            lambda: launch.accepts(self.host, self.port),
            "ZooKeeper",
            timeout_s,
            process=self._running[0],
            log=self._log,
        )
        client = make_client(self.hosts, 10.0)
        try:
            client.start(timeout=timeout_s)
            client.exists("/")
        except (KazooTimeoutError, KazooException) as error:
            raise StartError(f"ZooKeeper gives no session: {error}: {launch.tail(self._log)}") from error
        finally:
            client.stop()
            client.close()

    def start(self, timeout_s: float = 60.0) -> None:
        """Start and wait."""
        self.launch()
        self.wait_ready(timeout_s)

    def stop(self) -> None:
        """SIGTERM, then SIGKILL; data and port stay for the next start."""
        if self._running is not None and self.alive:
            self._running[0].terminate()
            try:
                self._running[0].wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.kill()
        self._running = None

    def kill(self) -> None:
        """SIGKILL; data and port stay for the next start."""
        if self._running is not None:
            process, session = self._running
            processes.kill(lambda: processes.members([session]))
            process.wait()
        self._running = None

    def restart(self, timeout_s: float = 60.0) -> None:
        """Stop and start with the same data on the same port."""
        self.stop()
        self.start(timeout_s)

    def freeze(self) -> None:
        """SIGSTOP: the server is there but answers nobody."""
        if self._running is not None:
            session = self._running[1]
            processes.freeze(lambda: processes.members([session]))

    def thaw(self) -> None:
        """SIGCONT after `freeze`."""
        if self._running is not None:
            session = self._running[1]
            processes.thaw(lambda: processes.members([session]))
