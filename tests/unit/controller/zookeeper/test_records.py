"""Records survive the way through JSON, and whatever is wrong with one is said with znode and field."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.algorithms.positions import Origin
from reprise.algorithms.recovery_time import Aim, RestoreWork
from reprise.controller.zookeeper.errors import RecordError
from reprise.controller.zookeeper.fields import loads
from reprise.controller.zookeeper.membership import Member, State, encode_member, parse_member
from reprise.controller.zookeeper.node_record import NodeRecord, encode_node, parse_node
from reprise.controller.zookeeper.process_records import (
    ERROR,
    Leader,
    Spec,
    Waits,
    encode_drain,
    encode_leader,
    encode_number,
    encode_paused,
    encode_spec,
    encode_waits,
    parse_drain,
    parse_leader,
    parse_number,
    parse_paused,
    parse_spec,
    parse_waits,
)
from reprise.controller.zookeeper.records import (
    CheckpointRecord,
    encode_checkpoint,
    encode_desired,
    encode_poison,
    encode_progress,
    encode_stats,
    node_of,
    parse_checkpoint,
    parse_desired,
    parse_poison,
    parse_progress,
    parse_stats,
)
from reprise.controller.zookeeper.recovery_records import (
    encode_incident,
    encode_plan,
    parse_incident,
    parse_plan,
)
from reprise.scheduler import Node, PartitionStats, QueryTimeline
from reprise.scheduler.incident import Trigger
from reprise.scheduler.node_start import NodeStart, StartPhase
from tests.support.record_samples import DESIRED, INCIDENT, PLAN, POISON, PROGRESS, replace

CHECKPOINT = CheckpointRecord(4, 9.5, 100, 0.5, {"source.0": 7})
PARSERS: dict[str, tuple[Callable[[bytes, str], Any], bytes]] = {
    "progress": (parse_progress, encode_progress(PROGRESS)),
    "desired": (parse_desired, encode_desired(DESIRED)),
    "poison": (parse_poison, encode_poison(POISON)),
    "incident": (parse_incident, encode_incident(INCIDENT)),
    "plan": (parse_plan, encode_plan(PLAN)),
    "stats": (parse_stats, encode_stats({"sink.0": PartitionStats(1.5, 3)})),
    "checkpoint": (parse_checkpoint, encode_checkpoint(CHECKPOINT)),
    "waits": (parse_waits, encode_waits(Waits("1", "a store"))),
    "spec": (parse_spec, encode_spec(Spec("{}", "app:1"))),
    "coordinator": (parse_leader, encode_leader(Leader(1, "start", "so", 2.5, 1.5, 45.0))),
    "drain": (parse_drain, encode_drain("2")),
    "member": (parse_member, encode_member(Member(State.FENCED, 1.5, "lost"))),
    "node": (parse_node, encode_node(NodeRecord("n1", "127.0.1.1", 2, 17, 1000, 9.5))),
}


def test_round_trips() -> None:
    assert parse_checkpoint(encode_checkpoint(CHECKPOINT)) == CHECKPOINT
    assert parse_waits(encode_waits(Waits("1", "a store"))) == Waits("1", "a store")
    assert parse_spec(encode_spec(Spec("{}", "app:1"))) == Spec("{}", "app:1")
    leader = Leader(1, "start", "so", 2.5, 1.5, 45.0)
    assert parse_leader(encode_leader(leader)) == leader
    assert parse_drain(encode_drain("2")) == "2"
    member = Member(State.FENCED, 1.5, "lost")
    assert parse_member(encode_member(member)) == member
    assert [parse_paused(encode_paused(said)) for said in (True, False)] == [True, False]
    assert parse_number(encode_number(17), "driver") == 17
    assert parse_progress(encode_progress(PROGRESS)) == PROGRESS
    assert parse_desired(encode_desired(DESIRED)) == DESIRED
    assert parse_poison(encode_poison(POISON)) == POISON
    assert parse_incident(encode_incident(INCIDENT)) == INCIDENT
    assert parse_incident(encode_incident(replace(INCIDENT, considered=None, closed_at=3.0))).closed_at == 3.0
    assert parse_plan(encode_plan(PLAN)) == PLAN
    stats = {"sink.0": PartitionStats(1.5, 3)}
    assert parse_stats(encode_stats(stats)) == stats


LINES = {"sink.0": Origin(4, 7), "source.1": Origin(3, 0)}


@pytest.mark.parametrize(
    ("parse", "encode", "record"),
    [
        (parse_desired, encode_desired, DESIRED),
        (parse_progress, encode_progress, PROGRESS),
        (parse_incident, encode_incident, INCIDENT),
        (parse_checkpoint, encode_checkpoint, CHECKPOINT),
    ],
    ids=["desired", "progress", "incident", "checkpoint"],
)
def test_partitions_that_differ_from_the_global_line_come_back(
    parse: Callable[[bytes], Any], encode: Callable[[Any], bytes], record: Any
) -> None:
    lines = {"source.1": 3} if record in (CHECKPOINT, PROGRESS) else LINES
    other = replace(record, lines=lines)
    assert parse(encode(other)) == other


@pytest.mark.parametrize(
    "wrong", [7, [7], [1, 2, 3], [True, 2], [1, False], [1, "2"], {"generation": 1}, None]
)
def test_an_origin_is_two_whole_numbers(wrong: Any) -> None:
    text = json.dumps({**json.loads(encode_desired(DESIRED)), "lines": {"sink.0": wrong}})
    with pytest.raises(RecordError, match=r"lines\.sink\.0"):
        parse_desired(text.encode())


def test_a_query_that_was_just_lost_takes_little_room_in_its_record() -> None:
    written = json.loads(encode_incident(replace(INCIDENT, queries={"sink.0": QueryTimeline(10.0)})))
    assert written["queries"] == {"sink.0": {"lost_at": 10.0}}


def test_the_node_agents_record_is_understood() -> None:
    assert node_of(parse_node(PARSERS["node"][1])) == Node("n1", 2, 1000)


STARTS = {"n1#1": NodeStart({StartPhase.REQUESTED: 7.0, StartPhase.READY: 12.625})}


@pytest.mark.parametrize(
    ("parse", "encode", "record"),
    [(parse_progress, encode_progress, PROGRESS), (parse_incident, encode_incident, INCIDENT)],
    ids=["progress", "incident"],
)
def test_starts_of_nodes_come_back(
    parse: Callable[[bytes], Any], encode: Callable[[Any], bytes], record: Any
) -> None:
    told = replace(record, starts=STARTS)
    assert parse(encode(told)) == told
    written = json.loads(encode(told))
    assert written["starts"] == {"n1#1": {"requested": 7.0, "ready": 12.625}}
    written["starts"]["n1#1"]["another phase"] = "x"
    assert parse(json.dumps(written).encode()) == told
    written["starts"]["n1#1"]["ready"] = "soon"
    with pytest.raises(RecordError, match=r"starts\.n1#1\.ready"):
        parse(json.dumps(written).encode())


@pytest.mark.parametrize(
    ("parse", "encode", "record"),
    [(parse_progress, encode_progress, PROGRESS), (parse_incident, encode_incident, INCIDENT)],
    ids=["progress", "incident"],
)
def test_what_was_skipped_comes_back(
    parse: Callable[[bytes], Any], encode: Callable[[Any], bytes], record: Any
) -> None:
    told = replace(record, skipped={"mid.0": ((3, 9),)}, marked={"sink.0": ((3, 12), (20, 24))})
    assert parse(encode(told)) == told
    written = json.loads(encode(told))
    for wrong in ("3-9", [3, 9], [[3]]):
        with pytest.raises(RecordError, match=r"marked_spans\.sink\.0"):
            parse(json.dumps(written | {"marked_spans": {"sink.0": wrong}}).encode())


def test_what_an_agent_says_of_its_start_is_known_and_what_it_does_not_say_is_not() -> None:
    labels = {"zone": "a"}
    record = NodeRecord("n1", "127.0.1.1", 2, 17, 1000, 9.5, requested=9.0, heartbeat=11.5, labels=labels)
    assert node_of(record).labels == labels
    assert parse_node(encode_node(record)) == record
    assert node_of(record).start.at == {
        StartPhase.REQUESTED: 9.0,
        StartPhase.AGENT: 9.5,
        StartPhase.HEARTBEAT: 11.5,
    }
    less = {k: v for k, v in json.loads(encode_node(record)).items() if v not in (9.0, 11.5)}
    assert node_of(parse_node(json.dumps(less).encode())).start.at == {StartPhase.AGENT: 9.5}


@pytest.mark.parametrize("raw", [b"1", b'"true"', b"", b"yes", b"[" * 100_000])
def test_a_pause_is_true_or_false(raw: bytes) -> None:
    with pytest.raises(RecordError, match=r"^/r/commands/paused: \$: must be true or false$"):
        parse_paused(raw, "/r/commands/paused")


@pytest.mark.parametrize("raw", [b"true", b"1.5", b"x", b"{}"])
def test_a_count_is_a_whole_number(raw: bytes) -> None:
    assert parse_number(b"", "/r/driver") == 0, "nobody has counted yet"
    with pytest.raises(RecordError, match=r"^/r/driver: \$: must be a whole number$"):
        parse_number(raw, "/r/driver")


def test_only_an_error_keeps_a_leader_from_deciding() -> None:
    assert Leader(1, ERROR, "too large").undecided == "too large"
    assert Leader(1, "start-waits", "for nodes").undecided == ""


def test_a_driver_may_say_little() -> None:
    assert parse_progress(b'{"driver": "1"}').positions == {}


@pytest.mark.parametrize(
    ("name", "change", "field"),
    [
        ("desired", {"seq": "3"}, "$.seq"),
        ("desired", {"seq": True}, "$.seq"),
        ("desired", {"assignment": {"sink.0": "n1"}}, "$.assignment.sink.0"),
        ("desired", {"assignment": ["sink.0"]}, "$.assignment"),
        ("desired", {"retain": None}, "$.retain"),
        ("progress", {"positions": {"sink.0": 1.5}}, "$.positions.sink.0"),
        ("progress", {"nodes": ["n1#1", 2]}, "$.nodes[1]"),
        ("progress", {"driver": 1}, "$.driver"),
        ("incident", {"kind": "odd"}, "$.kind"),
        ("incident", {"lost": [{"node": "n1#1"}]}, "$.lost[0].time"),
        ("incident", {"queries": {"sink.0": {"lost_at": "now"}}}, "$.queries.sink.0.lost_at"),
        ("incident", {"considered": {"nodes": []}}, "$.considered.waiting"),
        ("plan", {"candidates": [{"query": "q"}]}, "$.candidates[0].priority"),
        ("plan", {"plan": "none"}, "$.plan"),
        ("stats", {"sink.0": {"cpu_milli": -1}}, "$.sink.0.cpu_milli"),
        ("node", {"node": "n#1"}, "$.node"),
        ("node", {"cpu_milli": -5}, "$.cpu_milli"),
    ],
)
def test_what_is_wrong_is_named(name: str, change: dict[str, Any], field: str) -> None:
    parse, good = PARSERS[name]
    with pytest.raises(RecordError) as caught:
        parse(json.dumps({**json.loads(good), **change}).encode(), f"/root/{name}")
    assert caught.value.path == f"/root/{name}"
    assert caught.value.field == field


def test_what_a_plan_was_made_for_is_one_of_few_things_also_in_older_records() -> None:
    for trigger in ("start", "first", "arrival", "loss", "blocking"):  # as the first version wrote them
        plan = parse_plan(encode_plan(PLAN).replace(b'"trigger":"first"', f'"trigger":"{trigger}"'.encode()))
        assert plan.trigger is Trigger(trigger)
    with pytest.raises(RecordError, match=r"\$\.trigger: must be one of start, first, .* not 'luck'"):
        parse_plan(encode_plan(PLAN).replace(b'"trigger":"first"', b'"trigger":"luck"'))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(sorted(PARSERS)), st.data())
def test_any_bytes_give_a_value_or_a_record_error(name: str, data: st.DataObject) -> None:
    parse, good = PARSERS[name]
    value = json.loads(good)
    field = data.draw(st.sampled_from(sorted(value)))
    raw = data.draw(
        st.binary(max_size=20)
        | st.builds(lambda new: json.dumps({**value, field: new}).encode(), JSON)
        | st.just(json.dumps({k: v for k, v in value.items() if k != field}).encode())
    )
    try:
        parse(raw, "/root")
    except RecordError as error:
        assert error.reason


def test_statistics_say_how_many_rows_come() -> None:
    stats = {
        "sink.0": PartitionStats(1.5, 3, RestoreWork(7, 1.0, 2.5), 12.5),
        "source.0": PartitionStats(1.0),
    }
    assert parse_stats(encode_stats(stats)) == stats
    assert parse_stats(b'{"sink.0": {"cpu_milli": 1.5, "input_rows_s": 4}}')["sink.0"].input_rows_s == 4
    for wrong in (-1.0, "7", True):
        with pytest.raises(RecordError, match=r"input_rows_s"):
            parse_stats(
                json.dumps({"sink.0": {"cpu_milli": 1.5, "state_bytes": 3, "input_rows_s": wrong}}).encode()
            )


def test_statistics_say_the_watermark_and_where_the_input_has_ended() -> None:
    stats = {
        "sink.0": PartitionStats(1.5, 3, watermark=1_700_000_000_000_000),
        "map.0": PartitionStats(1.0, watermark=-1),
        "source.0": PartitionStats(1.0, input_ended=True),
        "other.0": PartitionStats(1.0),
    }
    assert parse_stats(encode_stats(stats)) == stats
    assert b"null" not in encode_stats(stats) and encode_stats(stats).count(b"input_ended") == 1
    for wrong in (1.5, "7", True):
        with pytest.raises(RecordError, match=r"watermark"):
            parse_stats(
                json.dumps({"a.0": {"cpu_milli": 1.5, "state_bytes": 3, "watermark": wrong}}).encode()
            )


@pytest.mark.parametrize(
    "work",
    [
        RestoreWork(7),
        RestoreWork(7, rows_s=2.5),
        RestoreWork(7, bytes_s=2.5),
        RestoreWork(7, 1.0, 2.5),
        RestoreWork(7, 1.0, 2.5, Aim(20, 30, 1.5, 4.0)),
        RestoreWork(7, aim=Aim(1, 1, 1.5, 0.0)),
    ],
)
def test_statistics_say_what_a_recovery_would_have_to_do(work: RestoreWork) -> None:
    stats = {"sink.0": PartitionStats(1.5, 3, work), "source.0": PartitionStats(1.0)}
    assert parse_stats(encode_stats(stats)) == stats
    assert b"null" not in encode_stats(stats)


@pytest.mark.parametrize(
    "restore",
    [
        7,
        {},
        {"rows": "7"},
        {"rows": 7, "rows_s": 0.0},
        {"rows": 7, "rows_s": 1.0, "bytes_s": -1.0},
        {"rows": 7, "rows_s": 1.0, "bytes_s": 1.0, "aim": {"extent": 3}},
    ],
)
def test_what_a_recovery_would_have_to_do_is_refused_by_field(restore: object) -> None:
    raw = json.dumps({"sink.0": {"cpu_milli": 1.5, "state_bytes": 3, "restore": restore}}).encode()
    with pytest.raises(RecordError, match="restore"):
        parse_stats(raw)


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
def test_what_only_python_reads_as_json_is_refused(constant: str) -> None:
    """It could not be written back, and nobody else could read it."""
    with pytest.raises(RecordError, match=rf"^/x: \$: is not JSON: {constant} is no number of JSON"):
        loads(f'{{"anything": [{constant}]}}'.encode(), "/x")
