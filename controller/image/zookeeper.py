"""`python -m reprise.controller.image zookeeper`: one server of the ensemble that the chart can bring, out of the pyspark
wheel.

Problem: a first installation should need nothing beside the one image, and the wheel carries ZooKeeper.  Its servers are
the pods of a StatefulSet; each finds its own number in its pod's name and the others in REPRISE_ZK_SERVERS.  Unlike the
server of the embedded cluster it syncs to disk, as it must outlive machines and not only processes.

With REPRISE_ZK_TLS, a folder with ca.crt, tls.crt and tls.key, it speaks TLS alone, with clients and with its peers.

`--ask=WORD` is the probe: one of ZooKeeper's four-letter words to the server in this pod.
"""

from __future__ import annotations

import argparse
import os
import re
import socket
import ssl
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from reprise.controller.agent.java import find_java
from reprise.controller.agent.jvm import class_path, log_config, spark_home
from reprise.controller.errors import ConfigError
from reprise.controller.zookeeper import tls as zk_tls
from reprise.controller.zookeeper.access import TLS

MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
CLIENT, SECURE_CLIENT, PEER, ELECTION = 2181, 2281, 2888, 3888
_ASK_TIMEOUT_S = 4.0


def main(arguments: Sequence[str], environment: Mapping[str, str] = os.environ) -> int:
    """Becomes the server; with --ask exit code 0 when it answers."""
    parser = argparse.ArgumentParser(prog="python -m reprise.controller.image zookeeper", description=__doc__)
    parser.add_argument("--ask", choices=("ruok", "srvr"), help="probe the server of this pod")
    options = parser.parse_args(arguments)
    if options.ask:
        return 0 if asked(environment, options.ask) else 1
    command = prepare(environment)
    os.execv(command[0], command)
    return 1  # not reached: this process is the server now


def prepare(environment: Mapping[str, str]) -> list[str]:
    """Write the server's files and return its command line.  ConfigError names the variable that is wrong."""
    data = Path(environment.get("REPRISE_ZK_DATA", "/var/lib/zookeeper"))
    data.mkdir(parents=True, exist_ok=True)
    if tls := _tls(environment):
        zk_tls.key_store(tls, _store(environment))
    (data / "zoo.cfg").write_text(configuration(environment, data), encoding="utf-8")
    (data / "myid").write_text(f"{own_number(environment) + 1}\n", encoding="utf-8")
    logging = data / "log4j2.properties"
    logging.write_text(log_config("ISO8601"), encoding="utf-8")
    java = find_java(data / "java")
    heap = environment.get("REPRISE_ZK_HEAP_MI", "256")
    if not heap.isdigit():
        raise ConfigError(f"REPRISE_ZK_HEAP_MI: {heap!r} is no number of MiB")
    flags = ["-XX:+UseSerialGC", "-XX:-UsePerfData", f"-Xmx{heap}m", "-Dzookeeper.jmx.log4j.disable=true"]
    flags.append(f"-Dlog4j2.configurationFile={logging}")
    return [str(java / "bin" / "java"), *flags, "-cp", class_path(spark_home()), MAIN, str(data / "zoo.cfg")]


def configuration(environment: Mapping[str, str], data: Path) -> str:
    """Content of zoo.cfg.  Sessions may be as short as a second, the operator's default is three."""
    servers, tls, address = _servers(environment), _tls(environment), environment.get("POD_IP", "0.0.0.0")
    plain = [f"clientPort={CLIENT}", f"clientPortAddress={address}"]
    lines = [
        *("tickTime=500", "initLimit=40", "syncLimit=20", "minSessionTimeout=1000", "maxSessionTimeout=60000"),
        f"dataDir={data}",
        *(zk_tls.client_lines(tls, _store(environment), address, SECURE_CLIENT) if tls else plain),
        *("maxClientCnxns=0", "admin.enableServer=false", "4lw.commands.whitelist=ruok,srvr"),
        *("autopurge.snapRetainCount=3", "autopurge.purgeInterval=1"),
    ]  # fmt: skip
    if len(servers) > 1:
        # a pod that is started anew has another address: peers must not cling to the old one
        lines += ["standaloneEnabled=false", "quorumListenOnAllIPs=true"]
        lines += [f"server.{i + 1}={host}:{PEER}:{ELECTION}" for i, host in enumerate(servers)]
        lines += zk_tls.peer_lines(tls, _store(environment)) if tls else []
    return "\n".join(lines) + "\n"


def own_number(environment: Mapping[str, str]) -> int:
    """The number of this server, from 0, as the StatefulSet counts."""
    name = environment.get("POD_NAME", "")
    found = re.search(r"-(\d+)$", name)
    if found is None or int(found.group(1)) >= len(_servers(environment)):
        raise ConfigError(f"POD_NAME: {name!r} is no pod of REPRISE_ZK_SERVERS")
    return int(found.group(1))


def asked(environment: Mapping[str, str], word: str) -> bool:
    """Whether the server of this pod says that it is well."""
    host, tls = environment.get("POD_IP", "127.0.0.1"), _tls(environment)
    return answers(host, CLIENT if tls is None else SECURE_CLIENT, word, tls)


def answers(host: str, port: int, word: str, tls: Path | None = None) -> bool:
    """Whether the server says that it is well: `ruok` to any, `srvr` to a member of a quorum.  `tls`: folder with its
    certificate, which is shown as a client's too."""
    try:
        with (
            socket.create_connection((host, port), timeout=_ASK_TIMEOUT_S) as plain,
            _spoken(plain, tls) as connection,
        ):
            connection.settimeout(_ASK_TIMEOUT_S)
            connection.sendall(word.encode())
            text = b""
            while more := connection.recv(4096):
                text += more
    except OSError:
        return False
    return text == b"imok" if word == "ruok" else b"Mode: " in text


def _spoken(connection: socket.socket, tls: Path | None) -> socket.socket:
    """Connect to a server by its address, which no certificate names."""
    if tls is None:
        return connection
    context = ssl.create_default_context(cafile=str(tls / "ca.crt"))
    context.check_hostname = False
    context.load_cert_chain(tls / "tls.crt", tls / "tls.key")
    return context.wrap_socket(connection)


def _tls(environment: Mapping[str, str]) -> Path | None:
    folder = environment.get(TLS)
    return Path(folder) if folder else None


def _store(environment: Mapping[str, str]) -> Path:
    """Not among the data, which outlive the pod."""
    return Path(tempfile.gettempdir()) / f"{environment.get('POD_NAME', 'zookeeper')}.pem"


def _servers(environment: Mapping[str, str]) -> list[str]:
    names = [
        entry.partition(":")[0] for entry in environment.get("REPRISE_ZK_SERVERS", "").split(",") if entry
    ]
    if not names:
        raise ConfigError("REPRISE_ZK_SERVERS: names no server")
    return names


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
