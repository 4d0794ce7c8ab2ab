"""Real Kafka brokers in KRaft mode, on loopback: one, or several that keep each other's replicas.

Every broker is controller too, so a broker that is killed takes a vote with it as in a small production cluster.  Log
folder and ports outlive the process (`daemon`): a restarted broker has its topics, offsets and transactions.  Timings are
short where a default would make every test wait (group rebalance, transaction clean-up), and nothing else is changed.
"""

import base64
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from reprise.controller.agent.java import find_java
from reprise.controller.agent.jvm import Jvm
from reprise.controller.errors import StartError
from reprise.controller.local.cluster import addresses, launch
from reprise.controller.local.cluster.daemon import Daemon
from reprise.controller.local.cluster.process_reaper import ProcessReaper
from tools.kafka.jars import Progress, jar_folder

FORMAT = "kafka.tools.StorageTool"
MAIN = "kafka.Kafka"
_FORMAT_TIMEOUT_S = 240.0

_PROPERTIES = """\
process.roles=broker,controller
node.id={node}
controller.quorum.voters={voters}
controller.listener.names=CONTROLLER
listeners=CLIENT://{host}:{port},CONTROLLER://{host}:{control}
advertised.listeners=CLIENT://{host}:{port}
inter.broker.listener.name=CLIENT
log.dirs={logs}
offsets.topic.replication.factor={copies}
offsets.topic.num.partitions=8
transaction.state.log.replication.factor={copies}
transaction.state.log.min.isr={least}
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor={copies}
share.coordinator.state.topic.min.isr={least}
default.replication.factor={copies}
group.initial.rebalance.delay.ms=0
transaction.abort.timed.out.transaction.cleanup.interval.ms=1000
log.retention.check.interval.ms=500
log.initial.task.delay.ms=500
auto.create.topics.enable=false
num.network.threads=2
num.io.threads=4
log.cleaner.threads=1
log.cleaner.dedupe.buffer.size=4194304
"""
_PLAINTEXT = {"listener.security.protocol.map": "CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT"}


def with_passwords(users: Mapping[str, str], superuser: str) -> dict[str, str]:
    """Properties of brokers that let in these users (name -> password) alone and allow only what an ACL allows."""
    login = " ".join(f'user_{name}="{password}"' for name, password in users.items())
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    own = f'username="{superuser}" password="{users[superuser]}"'
    return {
        "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.client.plain.sasl.jaas.config": f"{module} {own} {login};",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{superuser};User:ANONYMOUS",
    }


def with_certificate(certificate: Path, key: Path, authority: Path) -> dict[str, str]:
    """Properties of brokers with passwords that speak TLS only, to clients whose certificate the authority signed."""
    store = "listener.name.client.ssl"
    return {
        "listener.security.protocol.map": "CLIENT:SASL_SSL,CONTROLLER:PLAINTEXT",
        f"{store}.keystore.type": "PEM",
        f"{store}.keystore.certificate.chain": _one_line(certificate),
        f"{store}.keystore.key": _one_line(key),
        f"{store}.truststore.type": "PEM",
        f"{store}.truststore.certificates": _one_line(authority),
        f"{store}.client.auth": "required",
    }


def _one_line(pem: Path) -> str:
    """As the value of a property: its line ends are written as such."""
    return pem.read_text(encoding="utf-8").strip().replace("\n", "\\n")


class KafkaBroker(Daemon):
    """One broker; `KafkaCluster` makes them."""

    what = "Kafka broker"
    stop_timeout_s = 15.0  # a controlled shutdown writes its logs and moves leaders

    def __init__(
        self, jvm: Jvm, reaper: ProcessReaper, jars: Path, node: int, host: str, ports: list[int], log: Path
    ) -> None:
        super().__init__(reaper, host, ports[0], log)
        self._jvm, self._jars, self.node = jvm, jars, node
        self.control = ports[1]
        self.folder = reaper.scratch / f"kafka-{node}"
        self._heap_mb = 384

    def configure(self, cluster: str, voters: str, count: int, more: Mapping[str, str]) -> None:
        """Write its settings and format its log folder."""
        self.folder.mkdir(parents=True, exist_ok=True)
        text = _PROPERTIES.format(
            node=self.node, voters=voters, host=self.host, port=self.port, control=self.control,
            logs=self.folder / "logs", copies=min(3, count), least=min(2, count),
        )  # fmt: skip
        lines = [f"{key}={value}" for key, value in {**_PLAINTEXT, **more}.items()]
        self._settings.write_text(text + "\n".join(lines) + "\n", encoding="utf-8")
        log = self.folder / "format.log"
        process, _ = launch.spawn(
            self._command(FORMAT, "format", f"--cluster-id={cluster}", "-c", str(self._settings)),
            self._jvm.environment(self.host) | self._reaper.environment(),
            log,
        )
        launch.wait_until(lambda: process.poll() is not None, "Kafka format", _FORMAT_TIMEOUT_S, log=log)
        if process.returncode != 0:
            raise StartError(f"Kafka's log folder cannot be formatted: {launch.tail(log)}")

    @property
    def _settings(self) -> Path:
        return self.folder / "server.properties"

    def _command(self, main: str, *arguments: str) -> list[str]:
        return self._jvm.command(main, *arguments, heap_mb=self._heap_mb, before=f"{self._jars}/*")

    def launch(self) -> None:
        self._spawn(self._command(MAIN, str(self._settings)), self._jvm.environment(self.host))

    def wait_ready(self, timeout_s: float = 60.0) -> None:
        self._wait_for_port(timeout_s)


class KafkaCluster:
    """`count` brokers on one loopback address; a context manager that starts and stops them.

    `properties`: further broker settings.  `reaper`: whose processes they are; an own one by default.
    """

    def __init__(
        self,
        count: int = 1,
        properties: Mapping[str, str] | None = None,
        *,
        reaper: ProcessReaper | None = None,
        host: str = "127.0.0.1",
        log_dir: Path | None = None,
    ) -> None:
        self._own = reaper is None
        if reaper is None:
            prefix, reaper = ProcessReaper.with_prefix()
            host = f"{prefix}.{addresses.HEAD}"
        self._reaper = reaper
        self._count, self.host = count, host
        self.properties = dict(properties or {})
        """May be changed until `start`: a certificate has the address in it."""
        self.log_dir = log_dir or self._reaper.scratch / "logs"
        self.brokers: list[KafkaBroker] = []

    @property
    def bootstrap(self) -> str:
        """What a client connects to."""
        return ",".join(f"{b.host}:{b.port}" for b in self.brokers)

    def start(self, progress: Progress = lambda _: None, timeout_s: float = 240.0) -> None:
        """Returns when every broker accepts clients and has joined.  Leaves nothing if it raises."""
        try:
            self._start(progress, timeout_s)
        except BaseException:
            self.stop()
            raise

    def _start(self, progress: Progress, timeout_s: float) -> None:
        scratch = self._reaper.scratch
        jars = jar_folder("kafka", progress)
        jvm = Jvm(find_java(scratch / "java"), scratch / "log4j2-kafka.properties")
        jvm.write_log_config()
        ports = addresses.free_ports(self.host, 2 * self._count)
        for node in range(1, self._count + 1):
            log = self.log_dir / f"kafka-{node}.log"
            self.brokers.append(
                KafkaBroker(jvm, self._reaper, jars, node, self.host, ports[2 * node - 2 : 2 * node], log)
            )
        voters = ",".join(f"{b.node}@{b.host}:{b.control}" for b in self.brokers)
        identity = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        progress(f"Kafka at {self.bootstrap}")
        for broker in self.brokers:
            broker.configure(identity, voters, self._count, self.properties)
        for broker in self.brokers:
            broker.launch()
        for broker in self.brokers:
            broker.wait_ready(timeout_s)

    def stop(self) -> None:
        """End every broker; the scratch folder goes with an own reaper.  Safe to call twice."""
        for broker in self.brokers:
            broker.kill()
        self.brokers.clear()
        if self._own:
            self._reaper.close()

    def __enter__(self) -> "KafkaCluster":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
