"""Records that are removed while ZooKeeper goes away: what is left is never taken for those of another object."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from reprise.controller.operator.records import Records
from reprise.controller.operator.settings import OperatorSettings
from reprise.controller.simulated_world.memory_zookeeper import MemoryAnswer, MemoryClient, MemoryServer
from reprise.controller.topology_view import view_of
from reprise.controller.zookeeper import paths
from reprise.controller.zookeeper.errors import SessionError
from reprise.controller.zookeeper.session import ZooKeeperSession
from reprise.spark_jobs.topology import from_json

EXAMPLE = Path(__file__).parents[4] / "examples" / "minimal.yaml"
SETTINGS = OperatorSettings(namespace="ops", identity="op-1", zk="-", image="i", session_s=0.1)


class Leaving(MemoryClient):
    """A session whose server is silent after so many removals."""

    def __init__(self, server: MemoryServer, removals: int) -> None:
        super().__init__(server, 7)
        self.left = removals

    def delete_async(self, path: str, version: int = -1) -> MemoryAnswer:
        if self.left == 0:
            self.server.silent = True
        self.left -= 1
        return super().delete_async(path, version)


def records_of(client: MemoryClient, uid: str) -> Records:
    resource = from_json(json.dumps(yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))))
    session = ZooKeeperSession(cast(Any, client))
    return Records(session, resource, view_of(resource), uid, SETTINGS, lambda _: True, lambda: None)


def with_records() -> tuple[MemoryServer, str]:
    """A server with the records of an object, and their root."""
    server = MemoryServer()
    records = records_of(server.session(), "uid-1")
    records.open()
    client = ZooKeeperSession(cast(Any, server.session()))
    for name in ("desired", "progress", "stats"):
        client.create(f"{records.root}/{name}", b"{}")
    return server, records.root


@pytest.mark.parametrize("removals", range(12))
def test_a_removal_that_is_interrupted_is_gone_on_with(removals: int) -> None:
    server, root = with_records()
    if removals < sum(path.startswith(f"{root}/") for path in server.znodes):
        with pytest.raises(SessionError):
            records_of(Leaving(server, removals), "uid-1").remove()
        assert root in server.znodes
        server.silent = False
    records_of(server.session(), "uid-1").remove()
    assert not [path for path in server.znodes if path.startswith(root)]


@pytest.mark.parametrize("removals", range(12))
def test_the_next_object_of_that_name_never_has_the_records_of_the_one_before(removals: int) -> None:
    server, root = with_records()
    if removals < sum(path.startswith(f"{root}/") for path in server.znodes):
        with pytest.raises(SessionError):
            records_of(Leaving(server, removals), "uid-2").open()
        server.silent = False
    records_of(server.session(), "uid-2").open()
    assert server.znodes[f"{root}/{paths.OWNER}"].data == b"uid-2"
    assert not {"desired", "progress", "stats"} & set(server.below(root))
