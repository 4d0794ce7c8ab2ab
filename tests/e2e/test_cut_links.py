"""Connections between two nodes that are cut without a word, both ways or one way: no node is lost, and nothing arrives.
The exchange ends, and the driver begins another one, over new connections.

The kernel drops packets (`tc`, with a filter of classic BPF), so this needs root.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Collection, Iterator
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import psutil
import pytest

from reprise.controller.local.cluster import EmbeddedCluster
from reprise.controller.status.query_state import RunState, Status
from tests.e2e import scenario
from tests.support.told_cluster import ToldCluster

pytestmark = [pytest.mark.slow, pytest.mark.wide]

TC = shutil.which("tc") or shutil.which("tc", path="/usr/sbin:/sbin")
FRAME_HEADER = 14
SOURCE, TARGET = FRAME_HEADER + 12, FRAME_HEADER + 16
"""Where addresses are in a packet, and behind a header of 20 bytes the ports."""
SOURCE_PORT, TARGET_PORT = FRAME_HEADER + 20, FRAME_HEADER + 22
LOAD_WORD, LOAD_HALF, EQUAL, RETURN = 0x20, 0x28, 0x15, 0x06
PASS, DROP = 0xFFFFFFFF, 2


def drops(address_at: int, address: str, port_at: int, ports: Collection[int]) -> str:
    """A filter that drops packets with an address and one of these ports, as `tc` reads it."""
    compared = [(EQUAL, len(ports) - i, 0, port) for i, port in enumerate(ports)]
    program = [
        (LOAD_WORD, 0, 0, address_at), (EQUAL, 0, len(ports) + 1, int(IPv4Address(address))),
        (LOAD_HALF, 0, 0, port_at), *compared, (RETURN, 0, 0, PASS), (RETURN, 0, 0, DROP),
    ]  # fmt: skip
    return ",".join([str(len(program)), *(" ".join(map(str, line)) for line in program)])


def tc(*arguments: str) -> None:
    assert TC is not None
    subprocess.run([TC, *arguments], check=True)


@pytest.fixture
def cut() -> Iterator[Callable[[str], None]]:
    """Drops what a filter names, until the test is over."""
    if TC is None or os.geteuid() != 0:
        pytest.skip("only root can drop packets, with `tc`")
    tc("qdisc", "add", "dev", "lo", "clsact")
    try:
        yield lambda program: tc(
            "filter", "add", "dev", "lo", "egress", "protocol", "ip", "bpf", "da", "bytecode", program
        )
    finally:
        tc("qdisc", "del", "dev", "lo", "clsact")


def ports_from(cluster: EmbeddedCluster, source: str, target: str) -> list[int]:
    """Ports at which the executor of a node reads what another one sends."""
    host = cluster.host_of(source)
    for process in psutil.process_iter(["cmdline"]):
        line = process.info["cmdline"] or []
        if "--hostname" in line and line[line.index("--hostname") + 1] == cluster.host_of(target):
            found = process.net_connections("tcp")
            return sorted(c.laddr.port for c in found if c.raddr and c.raddr.ip.rpartition(":")[2] == host)
    return []


@pytest.fixture(scope="module")
def roomy(cluster: ToldCluster) -> Iterator[ToldCluster]:
    with cluster.announcing(4000) as roomy:
        yield roomy


class Watched:
    """Drops all that goes from one node to another one over connections that are there, when there is a checkpoint."""

    def __init__(self, on: EmbeddedCluster, cut: Callable[[str], None], both: bool, log: Path) -> None:
        self._cluster, self._cut, self._both, self._log = on, cut, both, log
        self._is_cut = False

    def __call__(self, state: RunState, _: list[dict[str, Any]]) -> None:
        desired = state.observation.desired
        if self._is_cut or not state.observation.checkpoints or desired is None:
            return
        host_of = self._cluster.host_of
        one, another, *_ = sorted({node.partition("#")[0] for node in desired.assignment.values()})
        for source, target in [(one, another), (another, one)][: 1 + self._both]:
            sent, read = ports_from(self._cluster, source, target), ports_from(self._cluster, target, source)
            assert sent and read, f"{source} and {target} have no connections"
            self._cut(drops(SOURCE, host_of(source), TARGET_PORT, sent))
            self._cut(drops(TARGET, host_of(target), SOURCE_PORT, read))
        self._is_cut = True

    def over(self, state: RunState, _: list[dict[str, Any]]) -> bool:
        """Whether the next exchange is there, and a checkpoint was completed behind it, with all queries available."""
        said = self._log.read_text(errors="replace")
        failed = said.rfind("event=job-failed ")
        after = said[failed:].partition("event=exchange ")[2] if failed >= 0 else ""
        return "event=checkpoint-complete " in after and state.count(Status.AVAILABLE) == len(state.queries)


@pytest.mark.parametrize("both", [True, False], ids=["both ways", "one way"])
def test_a_link_is_cut_without_a_word(
    roomy: ToldCluster, tmp_path: Path, cut: Callable[[str], None], both: bool
) -> None:
    resource = scenario.without_end(scenario.topology2(4), tmp_path)
    seen = Watched(roomy, cut, both, tmp_path / "out" / "logs" / "driver.log")
    result = scenario.run(resource, roomy, tmp_path / "out", [], seen, until=seen.over)
    scenario.assert_exactly_once(result, scenario.write_expected(resource, tmp_path / "expected"))
    assert not result.incident["incidents"], "nobody was lost"
