"""What the operator's coordinator decides by while a spec is not in effect yet, and what the driver is told: settings at
once and all of one spec, everything else when a driver is started with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from reprise.controller.operator.records import Records
from reprise.controller.operator.settings import OperatorSettings
from reprise.controller.simulated_world.memory_zookeeper import MemoryServer
from reprise.controller.topology_view import view_of
from reprise.controller.zookeeper import paths
from reprise.controller.zookeeper.process_records import Spec
from reprise.controller.zookeeper.session import ZooKeeperSession
from reprise.controller.zookeeper.settings_record import parse_settings
from reprise.spark_jobs.topology import StreamTopology, load_topology, override
from reprise.spark_jobs.topology.changes import settings_of

FIRST = load_topology(Path(__file__).parents[4] / "examples" / "minimal.yaml", data=False)
ROOT = f"/reprise/{FIRST.namespace}/{FIRST.name}"
RECORD = f"{ROOT}/{paths.SETTINGS}"
SETTINGS = OperatorSettings(namespace="ops", identity="op-1", zk="-", image="i", session_s=0.1)


class Place:
    """One topology's records, and operators that come one after the other."""

    def __init__(self) -> None:
        self.server = MemoryServer()
        self.records = self.operator(FIRST)
        self.records.started(Spec(FIRST.document, "image"))

    def operator(self, resource: StreamTopology) -> Records:
        client = ZooKeeperSession(cast(Any, self.server.session()))
        view = view_of(resource, own_code=False)
        records = Records(client, resource, view, "u", SETTINGS, lambda _: True, lambda: None)
        records.open()
        return records

    def spec(self, **changes: Any) -> StreamTopology:
        wanted = override(FIRST, changes)
        self.records.adopt(wanted, view_of(wanted, own_code=False), wanted.paused)
        self.records.tell_settings()
        return wanted

    @property
    def told(self) -> Any:
        return parse_settings(self.server.records[RECORD][0])


@pytest.fixture
def place() -> Place:
    return Place()


def priorities(records: Records) -> dict[str, int]:
    return {query.id: query.priority for query in records.coordinator.store.topology.queries}


def test_a_topology_that_does_not_change_has_no_record_of_settings(place: Place) -> None:
    place.spec()
    assert RECORD not in place.server.records


def test_settings_reach_coordinator_and_driver_while_a_new_driver_is_waited_for(place: Place) -> None:
    wanted = place.spec(
        **{
            "operators[count].output.priorities": {"0": 9},
            "recovery.cpuCap": 71,
            "nodes.count": 7,
            "batch.order": "arrival",
        }
    )
    coordinator = place.records.coordinator
    assert priorities(place.records)["count.0"] == 9
    assert coordinator.policy.cpu_cap == pytest.approx(0.71)
    assert coordinator.policy.nodes_wanted == FIRST.nodes.count, (
        "there are no others before a driver asks for them"
    )
    assert coordinator.store.topology.deterministic, "the driver that runs applies batches aligned"
    assert place.told == settings_of(wanted)
    place.records.started(Spec(wanted.document, "image"))
    assert place.records.coordinator.policy.nodes_wanted == 7
    assert not place.records.coordinator.store.topology.deterministic


def test_the_next_operator_goes_on_in_the_middle(place: Place) -> None:
    changes = {"recovery.cpuCap": 71, "checkpoint.protocol": "uncoordinated", "checkpoint.log": "memory"}
    wanted = place.spec(**changes)
    place.records = later = place.operator(wanted)
    later.tell_settings()
    assert later.coordinator.policy.cpu_cap == pytest.approx(0.71)
    assert not later.coordinator.policy.by_driver, "the driver that runs takes global checkpoints"
    assert place.told == settings_of(wanted)
    place.spec(**(changes | {"recovery.cpuCap": 72}))
    assert place.told["recovery.cpuCap"] == 72


def test_settings_that_need_what_waits_for_a_driver_wait_with_it(place: Place) -> None:
    changes = {
        "checkpoint.protocol": "uncoordinated",
        "checkpoint.log": "memory",
        "recovery.scope": "partition",
    }
    wanted = place.spec(**changes)
    before = place.records.coordinator.policy.scope
    place.records.started(Spec(wanted.document, "image"))
    assert before != place.records.coordinator.policy.scope == "partition"


def test_a_former_spec_of_another_version_leaves_what_is_wanted(place: Place) -> None:
    place.records.started(Spec('{"kind": "Other"}', "image"))
    place.spec(**{"nodes.count": 7})
    assert place.records.coordinator.policy.nodes_wanted == 7


def test_zookeeper_that_refuses_is_told_of_again(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    from reprise.controller.operator import records as module
    from reprise.controller.zookeeper.errors import ClientError, SessionError

    def refuses(*_: Any) -> None:
        raise ClientError("away")

    with monkeypatch.context() as away:
        away.setattr(module, "write_settings", refuses)
        with pytest.raises(SessionError, match="commands/settings"):
            place.spec(**{"recovery.cpuCap": 71})
    assert RECORD not in place.server.records
    place.records.tell_settings()
    assert place.told["recovery.cpuCap"] == 71


def test_a_record_of_settings_that_nobody_can_read_is_replaced(place: Place) -> None:
    place.server.put(RECORD, b"[]")
    wanted = place.spec()
    assert place.told == settings_of(wanted)
