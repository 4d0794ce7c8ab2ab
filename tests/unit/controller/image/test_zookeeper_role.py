"""The server that the chart brings: its configuration, its number, its probe."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from reprise.controller.errors import ConfigError
from reprise.controller.image import zookeeper
from reprise.controller.local.cluster import addresses, launch
from tests.support.ports import own_host

ENSEMBLE = {"REPRISE_ZK_SERVERS": "z-0.z.ns.svc:2181,z-1.z.ns.svc:2181,z-2.z.ns.svc:2181", "POD_NAME": "z-2"}


def test_members_of_an_ensemble_know_each_other_and_their_own_number(tmp_path: Path) -> None:
    command = zookeeper.prepare({**ENSEMBLE, "REPRISE_ZK_DATA": str(tmp_path), "REPRISE_ZK_HEAP_MI": "99"})
    assert "-Xmx99m" in command and command[-1] == str(tmp_path / "zoo.cfg")
    assert (tmp_path / "myid").read_text() == "3\n"
    lines = (tmp_path / "zoo.cfg").read_text().splitlines()
    assert [line for line in lines if line.startswith("server.")] == [
        f"server.{i + 1}=z-{i}.z.ns.svc:2888:3888" for i in range(3)
    ]
    assert "quorumListenOnAllIPs=true" in lines


def test_a_single_server_needs_no_peers(tmp_path: Path) -> None:
    text = zookeeper.configuration({"REPRISE_ZK_SERVERS": "z-0.z:2181", "POD_IP": "10.0.0.9"}, tmp_path)
    assert "server." not in text and "clientPortAddress=10.0.0.9" in text


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"REPRISE_ZK_SERVERS": ""}, "REPRISE_ZK_SERVERS"),
        ({"POD_NAME": "z"}, "POD_NAME"),
        ({"POD_NAME": "z-3"}, "POD_NAME"),
        ({"REPRISE_ZK_HEAP_MI": "much"}, "REPRISE_ZK_HEAP_MI"),
    ],
)
def test_a_wrong_variable_is_named(changes: dict[str, str], name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=name):
        zookeeper.prepare({**ENSEMBLE, "REPRISE_ZK_DATA": str(tmp_path), **changes})


def test_nobody_there_is_no_answer() -> None:
    with own_host() as host:
        assert not zookeeper.answers(host, addresses.free_port(host), "ruok")


@pytest.fixture
def address() -> Iterator[str]:
    prefix, claim = addresses.claim_prefix()
    with claim:
        yield f"{prefix}.77"


@pytest.mark.slow
@pytest.mark.wide
def test_the_server_answers_probes_and_clients_and_keeps_its_data(tmp_path: Path, address: str) -> None:
    environment = os.environ | {
        "REPRISE_ZK_SERVERS": "z-0.z:2181",
        "POD_NAME": "z-0",
        "POD_IP": address,
        "REPRISE_ZK_DATA": str(tmp_path / "data"),
    }
    for life in (1, 2):
        role = [sys.executable, "-m", "reprise.controller.image", "zookeeper"]
        process, _ = launch.spawn(role, environment, tmp_path / "log")
        try:
            launch.wait_until(lambda: zookeeper.answers(address, 2181, "srvr"), "server", 90, process=process)
            done = subprocess.run([*role, "--ask=ruok"], env=environment, check=False, timeout=300)
            assert done.returncode == 0
            client = KazooClient(f"{address}:2181", timeout=5)
            client.start(timeout=300)
            if life == 1:
                client.create("/kept", b"yes")
            assert client.get("/kept")[0] == b"yes"
            client.stop()
            client.close()
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
