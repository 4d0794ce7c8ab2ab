"""The chart's ZooKeeper with certificates: it speaks TLS alone, with clients, with its peers and with its probe."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from reprise.controller.errors import ConfigError
from reprise.controller.image import zookeeper
from reprise.controller.local.cluster import addresses, launch
from reprise.controller.zookeeper.access import TLS
from reprise.controller.zookeeper.client import kazoo_client
from tests.kafka.certificates import Authority

ROLE = [sys.executable, "-m", "reprise.controller.image", "zookeeper"]
ONE = {"REPRISE_ZK_SERVERS": "z-0.z:2281", "POD_NAME": "z-0", "POD_IP": "10.0.0.9"}


@pytest.fixture
def prefix() -> Iterator[str]:
    prefix, claim = addresses.claim_prefix()
    with claim:
        yield prefix


def issued(authority: Authority, folder: Path, *names: str) -> Path:
    folder.mkdir()
    certificate, key = authority.issue(folder.name, ",IP:".join(names))
    for name, file in (("tls.crt", certificate), ("tls.key", key), ("ca.crt", authority.certificate)):
        (folder / name).write_text(file.read_text())
    return folder


@contextmanager
def server(environment: dict[str, str], log: Path) -> Iterator[None]:
    """As the role starts it, but with the addresses of one machine, which pods have to themselves."""
    command = zookeeper.prepare(environment)
    config = Path(command[-1])
    config.write_text(config.read_text().replace("quorumListenOnAllIPs=true", "quorumListenOnAllIPs=false"))
    process, _ = launch.spawn(command, os.environ | environment, log)
    try:
        yield
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def test_no_port_is_left_without(tmp_path: Path) -> None:
    lines = zookeeper.configuration({**ONE, TLS: str(tmp_path)}, tmp_path).splitlines()
    assert "secureClientPort=2281" in lines and "ssl.clientAuth=need" in lines
    assert not [line for line in lines if line.startswith(("clientPort", "sslQuorum"))]
    peers = {**ONE, TLS: str(tmp_path), "REPRISE_ZK_SERVERS": "z-0.z:2281,z-1.z:2281,z-2.z:2281"}
    lines = zookeeper.configuration(peers, tmp_path).splitlines()
    assert {"sslQuorum=true", "ssl.quorum.clientAuth=need", "ssl.quorum.hostnameVerification=true"} <= set(
        lines
    )


@pytest.mark.parametrize("name", ["tls.key", "tls.crt", "ca.crt"])
def test_a_missing_file_is_named(name: str, tmp_path: Path) -> None:
    for other in {"tls.key", "tls.crt", "ca.crt"} - {name}:
        (tmp_path / other).write_text("")
    with pytest.raises(ConfigError, match=f"{tmp_path}/{name}"):
        zookeeper.prepare({**ONE, TLS: str(tmp_path), "REPRISE_ZK_DATA": str(tmp_path / "data")})


def test_a_key_that_zookeeper_cannot_read_is_named(tmp_path: Path) -> None:
    for name in ("tls.crt", "ca.crt"):
        (tmp_path / name).write_text("")
    (tmp_path / "tls.key").write_text("-----BEGIN RSA PRIVATE KEY-----\n")
    with pytest.raises(ConfigError, match=r"tls.key: ZooKeeper reads keys in PKCS #8 alone"):
        zookeeper.prepare({**ONE, TLS: str(tmp_path), "REPRISE_ZK_DATA": str(tmp_path / "data")})


@pytest.mark.slow
@pytest.mark.wide
def test_three_servers_agree_and_answer_their_probes_and_clients(
    tmp_path: Path, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Addresses stand for names: each server is asked for its own, by clients and by its peers."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    hosts = [f"{prefix}.{i + 1}" for i in range(3)]
    authority = Authority(tmp_path / "authority")
    certificate = issued(authority, tmp_path / "servers", *hosts, "127.0.0.1")
    clients = issued(authority, tmp_path / "clients", "127.0.0.1")
    common = {"REPRISE_ZK_SERVERS": ",".join(f"{host}:2281" for host in hosts), TLS: str(certificate)}
    members = [
        {**common, "POD_NAME": f"z-{i}", "POD_IP": host, "REPRISE_ZK_DATA": str(tmp_path / f"data-{i}")}
        for i, host in enumerate(hosts)
    ]
    with ExitStack() as stack:
        for i, member in enumerate(members):
            stack.enter_context(server(member, tmp_path / f"log-{i}"))
        for i, member in enumerate(members):
            launch.wait_until(
                lambda m=member: zookeeper.asked(m, "srvr"), "a quorum", 120, log=tmp_path / f"log-{i}"
            )  # type: ignore[misc]
        probe = subprocess.run([*ROLE, "--ask=ruok"], env=os.environ | members[0], check=False, timeout=300)
        assert probe.returncode == 0
        assert not zookeeper.answers(hosts[0], zookeeper.SECURE_CLIENT, "ruok"), "in plain text"
        assert not launch.accepts(hosts[0], zookeeper.CLIENT)
        client = kazoo_client(",".join(f"{host}:2281" for host in hosts), 10.0, {TLS: str(clients)})
        client.start(timeout=300)
        client.create("/kept", b"yes")
        client.sync("/kept")
        assert client.get("/kept")[0] == b"yes"
        client.stop()
        client.close()
    mode = {path.stat().st_mode & 0o777 for path in tmp_path.glob("z-*.pem")}
    assert mode == {0o600} and not list(tmp_path.glob("data-*/*.pem"))
