"""A node's agent that is starved for more than half of its session, on a real ZooKeeper."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from reprise.controller.agent import processes
from reprise.controller.agent.processes import Session
from reprise.controller.local.cluster.zookeeper import ZooKeeperServer
from reprise.controller.zookeeper import node_record as node_tree
from reprise.controller.zookeeper.client import make_client
from reprise.controller.zookeeper.node_record import parse_node
from reprise.controller.zookeeper.session import ZooKeeperSession
from tests.support.zookeeper import server_fixture
from tools.testbed.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.wide]
SESSION_S = 6.0
PATH = f"{node_tree.nodes_path(node_tree.CONTROL)}/n1"

# An agent that has a process which sleeps below it; argv: ZooKeeper, scratch folder, session's timeout in ms.
_AGENT = """
import argparse, logging, pathlib, subprocess, sys
from reprise.controller import logs
from reprise.controller.agent.agent import NodeAgent
from reprise.controller.agent.executor import ExecutorProcess
class Sleeper(ExecutorProcess):
    def start(self):
        self._process = subprocess.Popen(self.command)
zk, scratch, timeout = sys.argv[1:]
logs.setup(level=logging.INFO)
options = argparse.Namespace(node="n1", host="127.0.0.1", zk=zk, cpu_milli=100, label=[], session_timeout_ms=int(timeout))
executors = Sleeper(["sh", "-c", "sleep 600", "executor"], pathlib.Path(scratch, "node"))
NodeAgent(options, executors).run()
"""


server = pytest.fixture(server_fixture)


@pytest.fixture
def client(server: ZooKeeperServer) -> Iterator[ZooKeeperSession]:
    client = make_client(server.hosts, 30.0)
    client.start(timeout=300)
    yield client
    client.close()


@pytest.fixture
def agent(
    server: ZooKeeperServer, client: ZooKeeperSession, tmp_path: Path
) -> Iterator[subprocess.Popen[bytes]]:
    arguments = [server.hosts, str(tmp_path), str(round(SESSION_S * 1000))]
    with (tmp_path / "agent.log").open("wb") as log:
        agent = subprocess.Popen(
            [sys.executable, "-c", _AGENT, *arguments], start_new_session=True, stderr=log
        )
    until(lambda: client.exists(PATH), "it registers")
    yield agent
    session = Session.of(agent.pid)
    processes.kill(lambda: processes.members([session]))
    agent.wait()


def test_the_heartbeat_of_a_starved_agent_stays_while_its_session_lives(
    client: ZooKeeperSession, agent: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    """Also where there is much to see for it as it wakes: others must not see a node leave that does not."""
    log = tmp_path / "agent.log"
    survived = 0
    for turn in range(5):
        before, incarnation = client.exists(PATH), parse_node(client.get(PATH)[0]).incarnation
        released = log.read_text().count("event=released")
        os.kill(agent.pid, signal.SIGSTOP)
        time.sleep(0.6 * SESSION_S)
        os.kill(agent.pid, signal.SIGCONT)
        for news in range(40):
            client.create(
                f"{node_tree.ROOTS}/{node_tree.root_name(f'/reprise/a/t{turn}-{news}')}", makepath=True
            )
        until(
            lambda told=released, old=incarnation: (
                log.read_text().count("event=released") > told
                or f"event=renewed node=n1 incarnation={old + 1}" in log.read_text()
            ),
            "it has asked, or ended the node",
        )
        until(lambda: client.exists(PATH), "the node is there")
        after = client.exists(PATH)
        if after.owner == before.owner:
            survived += 1
            assert after.created == before.created, "its heartbeat was away while its session lived"
            assert parse_node(client.get(PATH)[0]).incarnation == incarnation
        else:  # a machine that starves the test, too
            assert parse_node(client.get(PATH)[0]).incarnation == incarnation + 1
        if survived == 2:
            break
    assert survived, "no session outlived its agent's sleep"
