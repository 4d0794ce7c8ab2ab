"""A topology on real Spark, checkpoints and output on an S3 server that is slow and loses answers, and nodes are killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reprise.controller.local.run import supervisor
from reprise.controller.local.run.services import Service
from reprise.spark_jobs.topology import override
from tests.e2e import scenario
from tests.stores.life import whole
from tests.support import object_stores
from tests.support.faulty_store import Fault, FaultyStore, What
from tests.support.object_stores import BUCKET, S3Server

pytestmark = [pytest.mark.slow, pytest.mark.wide]
NODES = 3
ROOM = 2000
"""CPU of a node, in thousandths: what two have lost finds room on the third, and none has to be started."""


def _output_on(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """As on Kubernetes, where `spec.sink.location` says it; a run on one machine writes below its folder."""
    made = supervisor.services_of

    def services_of(*arguments: Any) -> dict[str, Service]:
        services = made(*arguments)
        command = list(services["driver"].command)
        command[command.index("--sink") + 1] = url
        services["driver"].command = command
        return services

    monkeypatch.setattr(supervisor, "services_of", services_of)


def _fetch(server: S3Server, url: str, folder: Path) -> None:
    """What is shown, into the folder in which a run on one machine has it."""
    client = server.client()
    root = url.partition("://")[2]
    for path in client.find(root):
        target = folder / path.removeprefix(f"{root}/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(client.cat_file(path))


def test_nodes_are_killed_while_the_store_makes_trouble(
    server: S3Server, store: FaultyStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"s3://{BUCKET}/spark"
    _output_on(monkeypatch, f"{url}/sink")
    faults = [
        Fault(What.REFUSED, status=503, code="SlowDown", every=29),
        Fault(What.ANSWER_LOST, "PUT", every=13),
        Fault(What.UPLOAD_CUT, "PUT", every=17),
        Fault(What.BODY_CUT, "GET", every=11),
        Fault(What.SLOW, seconds=0.5, every=19),
    ]
    store.fault(*faults)
    kills = [{"on": "checkpoint", "delay": "1s", "kill": ["n1", "n2"]}]
    # a batch has 15 files, and this store takes one in some tenths of a second
    slow = {"batch.interval": "2s", "checkpoint.location": f"{url}/checkpoints"}
    resource = scenario.topology2(NODES, **slow)
    resource, over = scenario.without_end(resource, tmp_path), scenario.quiet_again(kills)
    with scenario.cluster(NODES, cpu_milli=ROOM) as cluster:
        result = scenario.run(resource, cluster, tmp_path / "out", kills, until=over)
    store.fault()
    assert all(fault.met for fault in faults)
    _fetch(server, f"{url}/sink", tmp_path / "out" / "sink")
    local = override(resource, {"checkpoint.location": str(tmp_path / "unused")})
    scenario.assert_exactly_once(result, scenario.write_expected(local, tmp_path / "expected"))
    whole(url)
    said = "".join(
        path.read_text(errors="replace") for path in sorted((tmp_path / "out").rglob("*")) if path.is_file()
    )
    assert object_stores.SECRET_KEY not in said and object_stores.ACCESS_KEY not in said
