"""The step from the records of one graph to those of another: all of it or nothing, and nobody decides by the former one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from kazoo.exceptions import ConnectionLoss

from reprise.controller.driver.channel import Channel
from reprise.controller.operator import graph_step
from reprise.controller.operator.records import Records
from reprise.controller.operator.settings import OperatorSettings
from reprise.controller.simulated_world.memory_zookeeper import MemoryServer
from reprise.controller.topology_view import view_of
from reprise.controller.zookeeper import paths
from reprise.controller.zookeeper.errors import ClientError, SessionError, StaleError
from reprise.controller.zookeeper.observation import Observation
from reprise.controller.zookeeper.process_records import Spec
from reprise.controller.zookeeper.records import encode_desired, encode_progress
from reprise.controller.zookeeper.recovery_records import encode_incident
from reprise.controller.zookeeper.session import ZooKeeperSession
from reprise.controller.zookeeper.settings_record import encode_settings
from reprise.scheduler import Decision, Desired, Outcome, WriteDesired
from reprise.scheduler.incident import Incident, Kind, Phase
from reprise.scheduler.model import Progress
from reprise.scheduler.steps import CloseIncident, RuleName, Step, WriteIncident
from reprise.spark_jobs.errors import SupersededError
from reprise.spark_jobs.topology import StreamTopology, from_json, override
from reprise.spark_jobs.topology.changes import settings_of

DOCUMENT = yaml.safe_load(
    (Path(__file__).parents[4] / "examples" / "minimal.yaml").read_text(encoding="utf-8")
)
LEAF = {"name": "leaf", "class": "reprise.operators:Map", "inputs": [{"from": "count", "forward": True}], "parallelism": 2,
        "output": {"priority": 3}}  # fmt: skip
BEFORE = from_json(json.dumps(DOCUMENT))
AFTER = from_json(
    json.dumps(
        {**DOCUMENT, "spec": {**DOCUMENT["spec"], "operators": [*DOCUMENT["spec"]["operators"], LEAF]}}
    )
)
ROOT = f"/reprise/{BEFORE.namespace}/{BEFORE.name}"
SETTINGS = OperatorSettings(namespace="ops", identity="op-1", zk="-", image="i", session_s=0.1)
OPEN = Incident("inc-1", Kind.CORRELATED, Phase.SETTLING, 1.0, 30, 1, 3, 2.0)
DRAINED = Progress("1", horizon=40, checkpoint=40, drained=40)
OF_THE_FORMER = {
    paths.DESIRED: encode_desired(Desired(5, 1, 0, "1", assignment={"count.0": "e1#1"})),
    paths.PROGRESS: encode_progress(DRAINED),
    paths.STATS: b"{}",
    paths.SETTINGS: encode_settings({**settings_of(BEFORE), "recovery.cpuCap": 61}),
}
STAYS = {
    f"{paths.INCIDENTS}/inc-0": encode_incident(OPEN),
    paths.checkpoint(40): b"{}",
    paths.PAUSED: b"false",
}


class Place:
    """Records of a topology that was started, and has drained; and operators that come one after the other."""

    def __init__(self) -> None:
        self.server = MemoryServer()
        self.records = self.operator(BEFORE)
        self.records.started(Spec(BEFORE.document, "i"))
        for name, data in (OF_THE_FORMER | STAYS).items():
            self.server.put(f"{ROOT}/{name}", data)

    def operator(self, resource: StreamTopology) -> Records:
        client = ZooKeeperSession(cast(Any, self.server.session()))
        view = view_of(resource, own_code=False)
        found = Records(client, resource, view, "u", SETTINGS, lambda _: True, lambda: None)
        found.open()
        return found

    def wants(self, resource: StreamTopology, records: Records | None = None) -> None:
        (records or self.records).adopt(resource, view_of(resource, own_code=False), resource.paused)

    def there(self) -> set[str]:
        """Which of the records that are of the former graph, or stay, there are."""
        return {name for name in OF_THE_FORMER | STAYS if f"{ROOT}/{name}" in self.server.records}


@pytest.fixture
def place() -> Place:
    return Place()


def queries(records: Records) -> set[str]:
    """Those that the coordinator decides about."""
    return {query.id for query in records.coordinator.store.topology.queries}


def test_until_the_step_the_former_graph_is_decided_and_shown(place: Place) -> None:
    wanted = override(AFTER, {"operators[count].output.priority": 7})
    place.wants(wanted)
    assert queries(place.records) == {"count.0", "count.1"}
    assert 7 in {q.priority for q in place.records.shown[1].queries}, "what takes effect in place does so"
    assert [one.name for one in place.records.shown[0].operators] == ["parser", "count"]


def test_the_records_of_the_former_graph_go_with_its_spec(place: Place) -> None:
    place.wants(AFTER)
    former = place.records.coordinator
    place.records.started(Spec(AFTER.document, "i"))
    assert place.there() == set(STAYS)
    assert place.records.former() == Spec(AFTER.document, "i")
    assert queries(place.records) == {"count.0", "count.1", "leaf.0", "leaf.1"}
    assert place.records.coordinator is not former
    assert place.records.shown[0] is not None and len(place.records.shown[0].operators) == 3
    place.records.tell_settings()
    assert f"{ROOT}/{paths.SETTINGS}" not in place.server.records, (
        "a driver that was told nothing follows its own"
    )


def test_a_spec_of_the_same_graph_leaves_them(place: Place) -> None:
    wanted = override(BEFORE, {"nodes.count": 9})
    place.wants(wanted)
    former = place.records.coordinator
    place.records.started(Spec(wanted.document, "i"))
    assert place.there() == set(OF_THE_FORMER | STAYS)
    assert place.records.coordinator is former


def test_with_an_incident_that_is_open_nothing_is_done(place: Place) -> None:
    place.server.put(f"{ROOT}/{paths.INCIDENT}", encode_incident(OPEN))
    place.wants(AFTER)
    with pytest.raises(StaleError, match="an incident is open"):
        place.records.started(Spec(AFTER.document, "i"))
    assert place.there() == set(OF_THE_FORMER | STAYS)
    assert place.records.former() == Spec(BEFORE.document, "i")
    assert queries(place.records) == {"count.0", "count.1"}
    place.server.remove(f"{ROOT}/{paths.INCIDENT}")
    place.records.started(Spec(AFTER.document, "i"))
    assert place.there() == set(STAYS)
    assert f"{ROOT}/{paths.INCIDENT}" not in place.server.znodes, "that none was open was found by making one"


def test_what_another_operator_has_put_on_record_is_not_overwritten(place: Place) -> None:
    other = place.operator(BEFORE)
    other.started(Spec(override(BEFORE, {"nodes.count": 9}).document, "i"))
    place.wants(AFTER)
    with pytest.raises(StaleError, match="BadVersionError"):
        place.records.started(Spec(AFTER.document, "i"))
    assert place.there() == set(OF_THE_FORMER | STAYS)


@pytest.mark.parametrize("done", [True, False])
def test_an_answer_that_is_lost_is_asked_for_again(place: Place, done: bool) -> None:
    place.wants(AFTER)
    client: Any = place.records._client._client

    def lost(verb: str) -> None:
        if verb == "commit":
            client.before = client.after = lambda _: None
            raise ConnectionLoss

    if done:
        client.after = lost
    else:
        client.before = lost
    with pytest.raises((SessionError, ConnectionLoss)):
        place.records.started(Spec(AFTER.document, "i"))
    found = place.records.former()
    assert found == Spec((AFTER if done else BEFORE).document, "i")
    assert len(queries(place.records)) == (4 if done else 2), "who reads the spec goes by its graph"
    place.records.started(Spec(AFTER.document, "i"))
    assert place.there() == set(STAYS)


def test_an_operator_that_was_stopped_before_the_step_writes_nothing_behind_it(place: Place) -> None:
    stopped = place.operator(BEFORE)
    reading = stopped.coordinator.store.read()
    place.wants(AFTER)
    place.records.started(Spec(AFTER.document, "i"))
    start = Decision(
        Outcome.ACT,
        RuleName.START,
        "",
        (WriteDesired(Desired(1, 1, 0, "1", assignment={"count.0": "e1#1"})),),
    )
    for seen in (
        reading,
        stopped.coordinator.store.read(),
    ):  # also where it finds that nothing has started yet
        with pytest.raises((StaleError, ClientError)):
            stopped.coordinator.store.commit(seen, start)
    assert f"{ROOT}/{paths.DESIRED}" not in place.server.records


OPENS: tuple[Step, ...] = (WriteIncident(OPEN),)
CLOSES: tuple[Step, ...] = (CloseIncident(OPEN),)


@pytest.mark.parametrize(
    ("wanted", "progress", "incident", "steps", "permitted"),
    [
        (AFTER, DRAINED, None, OPENS, False),
        (AFTER, DRAINED, None, (), True),
        (AFTER, DRAINED, OPEN, OPENS, True),
        (AFTER, DRAINED, OPEN, CLOSES, True),
        (AFTER, Progress("1", horizon=40), None, OPENS, True),
        (AFTER, None, None, OPENS, True),
        (BEFORE, DRAINED, None, OPENS, True),
    ],
)
def test_the_end_of_executors_whose_driver_has_drained_is_no_incident(
    place: Place,
    wanted: StreamTopology,
    progress: Progress | None,
    incident: Incident | None,
    steps: tuple[Step, ...],
    permitted: bool,
) -> None:
    """Else each drain would be followed by a recovery, and that by a drain."""
    place.wants(wanted)
    coordinator = place.records.coordinator
    coordinator.seen = Observation(0.0, connected=True, progress=progress, incident=incident)
    assert coordinator.permits(Decision(Outcome.ACT, RuleName.FAILURE_DETECTED, "", steps)) == permitted


def test_what_a_driver_follows_is_what_it_was_started_with_and_told_since(place: Place) -> None:
    later = place.operator(AFTER)
    followed = later.followed()
    assert followed is not None
    assert settings_of(followed)["recovery.cpuCap"] == 61
    assert [one.name for one in followed.operators] == ["parser", "count"]
    place.server.remove(f"{ROOT}/{paths.SETTINGS}")
    assert later.followed() == later.started_with


def test_what_differs_between_two_graphs_are_operators_and_not_settings() -> None:
    assert graph_step.other_graph(BEFORE, AFTER)
    assert not graph_step.other_graph(BEFORE, override(BEFORE, {"operators[count].output.priority": 7}))
    assert not graph_step.other_graph(None, AFTER), "what there was is not known"
    assert graph_step.is_of_other(BEFORE, AFTER.document)
    assert not graph_step.is_of_other(BEFORE, '{"kind": "Other"}'), (
        "a document of another version cannot be told"
    )


def test_records_whose_spec_was_not_read_are_not_open(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the wanted graph would decide over the records of the former one."""
    get, lost = ZooKeeperSession.get, []

    def once(self: ZooKeeperSession, path: str, *more: Any) -> Any:
        if path == f"{ROOT}/{paths.SPEC}" and not lost:
            lost.append(path)
            raise SessionError(path)
        return get(self, path, *more)

    monkeypatch.setattr(ZooKeeperSession, "get", once)
    client = ZooKeeperSession(cast(Any, place.server.session()))
    view = view_of(AFTER, own_code=False)
    records = Records(client, AFTER, view, "u", SETTINGS, lambda _: True, lambda: None)
    with pytest.raises(SessionError, match=paths.SPEC):
        records.open()
    assert not records.opened
    records.open()
    assert records.opened
    assert records.started_with == BEFORE


# -- drivers of the former graph that live ---------------------------------------------------------------------------------


def driver_of(place: Place, resource: StreamTopology) -> Channel:
    """The channel of a driver process that was started with this, and has no number yet."""
    session = ZooKeeperSession(cast(Any, place.server.session()))
    return Channel("", ROOT, session=session, resource=resource)


def test_a_driver_of_the_former_graph_that_has_not_reported_is_not_heard_behind_the_step(
    place: Place,
) -> None:
    """As where its pod was removed by force: its report would be the newest, and it would be given work."""
    former = driver_of(place, BEFORE)
    number = former.next_epoch()
    assert not former.superseded
    place.wants(AFTER)
    place.records.started(Spec(AFTER.document, "i"))
    assert not former.publish(paths.PROGRESS, encode_progress(Progress(str(number), horizon=41)))
    assert f"{ROOT}/{paths.PROGRESS}" not in place.server.records
    assert former.superseded, "it ends"
    later = driver_of(place, AFTER)
    assert later.next_epoch() > number
    assert later.publish(paths.PROGRESS, encode_progress(Progress("9")))
    with pytest.raises(SupersededError):
        former.next_epoch(99)


@pytest.mark.parametrize("others", [0, 3], ids=["no-driver-before", "drivers-before"])
def test_a_driver_of_the_former_graph_that_has_no_number_takes_none_behind_the_step(
    place: Place, others: int
) -> None:
    for _ in range(others):
        driver_of(place, BEFORE).next_epoch()
    former = driver_of(place, BEFORE)
    place.wants(AFTER)
    place.records.started(Spec(AFTER.document, "i"))
    before = place.server.records[f"{ROOT}/{paths.DRIVER}"]
    with pytest.raises(SupersededError, match="other queries"):
        former.next_epoch()
    assert place.server.records[f"{ROOT}/{paths.DRIVER}"] == before
    assert driver_of(place, AFTER).next_epoch() == others + 2


def test_a_driver_whose_number_and_the_step_meet_has_none_that_holds(place: Place) -> None:
    """The step is taken between its look at the spec and its writing."""
    former = driver_of(place, BEFORE)
    place.wants(AFTER)
    client: Any = former._zk._client

    def meanwhile(verb: str) -> None:
        if verb == "commit":
            client.before = lambda _: None
            place.records.started(Spec(AFTER.document, "i"))

    client.before = meanwhile
    with pytest.raises(SupersededError, match="other queries"):
        former.next_epoch()


def test_a_driver_that_has_looked_at_the_spec_before_the_step_takes_no_number_behind_it(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step is taken between its look at the spec and that at the newest number."""
    former = driver_of(place, BEFORE)
    former.next_epoch()
    place.wants(AFTER)
    get, taken = ZooKeeperSession.get, []

    def meanwhile(self: ZooKeeperSession, path: str, *more: Any) -> Any:
        if self is late._zk and path == f"{ROOT}/{paths.DRIVER}" and not taken:
            taken.append(path)
            place.records.started(Spec(AFTER.document, "i"))
        return get(self, path, *more)

    late = driver_of(place, BEFORE)
    monkeypatch.setattr(ZooKeeperSession, "get", meanwhile)
    with pytest.raises(SupersededError, match="other queries"):
        late.next_epoch()
    assert taken


def test_the_step_and_a_driver_that_takes_its_number_meanwhile_do_not_both_happen(place: Place) -> None:
    driver_of(place, BEFORE).next_epoch()
    place.wants(AFTER)
    client: Any = place.records._client._client

    def meanwhile(verb: str) -> None:
        if verb == "commit":
            client.before = lambda _: None
            driver_of(place, BEFORE).next_epoch()

    client.before = meanwhile
    with pytest.raises(StaleError, match="BadVersionError"):
        place.records.started(Spec(AFTER.document, "i"))
    assert place.there() == set(OF_THE_FORMER | STAYS)
    place.records.started(Spec(AFTER.document, "i"))
    assert place.there() == set(STAYS)


def test_a_driver_goes_by_a_spec_of_the_same_queries_or_one_that_it_cannot_read(place: Place) -> None:
    driver = driver_of(place, override(BEFORE, {"nodes.count": 9}))
    assert driver.next_epoch() == 1
    place.server.put(f"{ROOT}/{paths.SPEC}", b"{")
    assert driver.next_epoch() == 2


@pytest.mark.parametrize("name", [paths.PROGRESS, paths.DESIRED])
@pytest.mark.parametrize("there", [True, False])
def test_a_driver_of_the_former_graph_that_begins_to_work_meanwhile_comes_before_the_step(
    place: Place, name: str, there: bool
) -> None:
    """Its report and what it was told are of partitions that are in no graph behind the step; and what it has released would
    keep each driver of the other graph from beginning."""
    wanted = {
        paths.PROGRESS: encode_progress(Progress("2", horizon=41)),
        paths.DESIRED: OF_THE_FORMER[paths.DESIRED],
    }
    if not there:
        for one in wanted:
            place.server.remove(f"{ROOT}/{one}")
    place.wants(AFTER)
    client: Any = place.records._client._client

    def meanwhile(verb: str) -> None:
        if verb == "commit":
            client.before = lambda _: None
            place.server.put(f"{ROOT}/{name}", wanted[name])

    client.before = meanwhile
    if there and name == paths.DESIRED:  # it goes with the others, however new
        place.records.started(Spec(AFTER.document, "i"))
        assert place.there() == set(STAYS)
        return
    with pytest.raises(StaleError, match="queries do not come or go now"):
        place.records.started(Spec(AFTER.document, "i"))
    assert place.records.former() == Spec(BEFORE.document, "i")
    assert place.server.records[f"{ROOT}/{name}"][0] == wanted[name]


@pytest.mark.parametrize("at_work", [True, False])
def test_the_step_is_not_taken_where_a_driver_of_the_former_graph_works(place: Place, at_work: bool) -> None:
    """Whoever takes it may have looked at the records a while ago."""
    report = Progress("2", horizon=41, drained=None if at_work else 41)
    place.server.put(f"{ROOT}/{paths.PROGRESS}", encode_progress(report))
    place.wants(AFTER)
    if not at_work:
        place.records.started(Spec(AFTER.document, "i"))
        assert place.there() == set(STAYS)
        return
    with pytest.raises(StaleError, match="has not drained"):
        place.records.started(Spec(AFTER.document, "i"))
    assert place.there() == set(OF_THE_FORMER | STAYS)
    assert place.records.former() == Spec(BEFORE.document, "i")
