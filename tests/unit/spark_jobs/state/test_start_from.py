"""A location that is made a stream out of a savepoint: whole at last, whatever interrupts it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

from reprise.controller.cli import main
from reprise.spark_jobs.contract import Range, Tables
from reprise.spark_jobs.errors import DamagedError, SpecError
from reprise.spark_jobs.state.checkpoints import CheckpointStore
from reprise.spark_jobs.state.epochs import claim_epoch
from reprise.spark_jobs.state.graphs import Graphs
from reprise.spark_jobs.state.ledger import Ledger
from reprise.spark_jobs.state.release import Anchor, Release
from reprise.spark_jobs.state.rescaling import Change
from reprise.spark_jobs.state.savepoints import Savepoint, Savepoints, stages_of
from reprise.spark_jobs.state.start_from import begin_stream, misfits
from reprise.spark_jobs.storage.files import Files
from reprise.spark_jobs.topology import StreamTopology, expand, from_object, load_topology, override
from tests.unit.spark_jobs.state.test_savepoints import TABLES

MINIMAL = load_topology(Path("examples/minimal.yaml"))
STATES = ("count.0", "count.1")


def saved(folder: Path, name: str = "before", position: int = 12) -> Savepoint:
    fence = claim_epoch(str(folder), lambda least: least)
    ranges = {"tweets.0": Range(1100, 1200)}
    wanted = Savepoint(name, "default", "minimal", position, 1.0, 2.0, stages_of(MINIMAL), ranges)
    return Savepoints(str(folder)).keep(wanted, ((p, TABLES, 1) for p in STATES), fence)


def starting(folder: Path, name: str = "before") -> StreamTopology:
    return override(MINIMAL, {"checkpoint.startFrom": {"location": str(folder), "savepoint": name}})


def begun(folder: Path, resource: StreamTopology, savepoint: Savepoint) -> None:
    """As a driver finds it."""
    begin_stream(CheckpointStore(str(folder)), resource)
    fence = claim_epoch(str(folder), lambda least: least)
    store = CheckpointStore(str(folder))
    assert store.begin(fence) == savepoint.position
    manifest = store.verify(savepoint.position)
    assert set(manifest.files) == set(savepoint.states)
    assert store.read_state(manifest.files["count.0"]) == TABLES
    assert manifest.offsets == {"tweets.0": 1200}
    ledger = Ledger(str(folder), resource, expand(resource), fence)
    assert (ledger.begins, ledger.trimmed, ledger.written) == (12, 11, 12)
    ledger.require(12)
    assert ledger.at(12) == savepoint.ranges
    ledger.reach(13)
    assert ledger.ranges["tweets.0"][13] == Range(1200, 1300), "the generator goes on with the next batch"


@pytest.mark.parametrize("writes", range(6))
def test_a_beginning_that_is_interrupted_anywhere_is_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    savepoint, resource, left = saved(tmp_path / "a"), starting(tmp_path / "a"), writes
    create = Files.create

    def ends(self: Files, relative: str, data: bytes) -> bool:
        nonlocal left
        if left == 0:
            raise KeyboardInterrupt
        left -= 1
        return create(self, relative, data)

    with monkeypatch.context() as patch:
        patch.setattr(Files, "create", ends)
        with pytest.raises(KeyboardInterrupt):
            begin_stream(CheckpointStore(str(tmp_path / "b")), resource)
    assert not (tmp_path / "b" / "stream.json").exists()
    begun(tmp_path / "b", resource, savepoint)


def test_it_is_taken_over_once_and_needed_no_more(tmp_path: Path) -> None:
    savepoint, resource = saved(tmp_path / "a"), starting(tmp_path / "a")
    begun(tmp_path / "b", resource, savepoint)
    Savepoints(str(tmp_path / "a")).delete("before")
    begin_stream(CheckpointStore(str(tmp_path / "b")), resource)
    begin_stream(CheckpointStore(str(tmp_path / "b")), MINIMAL)
    with pytest.raises(SpecError, match="has begun already, from savepoint 'before' in"):
        begin_stream(CheckpointStore(str(tmp_path / "b")), starting(tmp_path / "a", "other"))
    with pytest.raises(SpecError, match="no savepoint 'before'"):
        begin_stream(CheckpointStore(str(tmp_path / "c")), resource)


def test_a_stream_that_has_begun_keeps_its_partitions_though_no_batch_was_released(tmp_path: Path) -> None:
    """The first driver has ended right after the beginning; the next one, of a changed topology, divides nothing."""
    savepoint, resource = saved(tmp_path / "a"), starting(tmp_path / "a")
    begun(tmp_path / "b", resource, savepoint)
    with pytest.raises(SpecError, match="has begun from the savepoint with 2") as error:
        begin_stream(
            CheckpointStore(str(tmp_path / "b")), override(resource, {"operators[count].parallelism": 3})
        )
    assert error.value.field == "spec.operators[count].parallelism"
    begin_stream(CheckpointStore(str(tmp_path / "b")), resource)


def test_a_query_that_went_and_came_again_has_no_states_of_the_savepoint(tmp_path: Path) -> None:
    """So it may have other partitions than there; while it stays it may not."""
    savepoint, resource = saved(tmp_path / "a"), starting(tmp_path / "a")
    location = str(tmp_path / "b")
    begun(tmp_path / "b", resource, savepoint)
    store, wider = CheckpointStore(location), override(resource, {"operators[count].parallelism": 3})

    def drives(wanted: StreamTopology) -> None:
        Graphs(store, claim_epoch(location, lambda least: least)).begin(wanted, savepoint.position, True)

    drives(resource)
    with pytest.raises(SpecError, match="has begun from the savepoint with 2"):
        begin_stream(store, wider)
    document = json.loads(resource.document)
    document["spec"]["operators"] = [o for o in document["spec"]["operators"] if o["name"] != "count"]
    drives(from_object(document))
    begin_stream(store, wider)
    drives(wider)
    begin_stream(store, wider)
    with pytest.raises(SpecError, match=r"operators\[count\].parallelism"):
        drives(resource)


def test_what_is_left_of_another_beginning_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint of that one would be taken for this one's, if it is newer."""
    saved(tmp_path / "a", "late", position=40)
    saved(tmp_path / "a")
    with monkeypatch.context() as patch:
        patch.setattr("reprise.spark_jobs.state.start_from.written_before", lambda *_: {"x": 1 / 0})
        with pytest.raises(ZeroDivisionError):
            begin_stream(CheckpointStore(str(tmp_path / "b")), starting(tmp_path / "a", "late"))
    with pytest.raises(DamagedError, match="there are checkpoints up to batch 40"):
        begin_stream(CheckpointStore(str(tmp_path / "b")), starting(tmp_path / "a"))
    with pytest.raises(DamagedError, match="there are checkpoints up to batch 40"):
        begin_stream(CheckpointStore(str(tmp_path / "b")), MINIMAL)


@pytest.mark.parametrize("edge", [None, {"from": "echo", "by": ["word"]}])
def test_what_is_under_way_on_a_feedback_edge_is_not_lost(edge: dict[str, object] | None) -> None:
    """The edge is gone, or none of feedback any more; with one of its ends named anew that is meant."""

    def looped(inputs: list[dict[str, object]], name: str = "echo") -> StreamTopology:
        document = json.loads(MINIMAL.document)
        spec = document["spec"]
        first, union = spec["operators"][0]["inputs"][0], "reprise.operators:Union"
        spec["operators"] += [
            {"name": "loop", "class": union, "parallelism": 2, "inputs": [first, *inputs]},
            {"name": name, "class": union, "parallelism": 2, "inputs": [first]},
        ]
        start = {
            "location": "/tmp/nobody",
            "savepoint": "before",
            "allowNew": ["other"],
            "allowGone": ["echo"],
        }
        spec["checkpoint"]["startFrom"] = {
            **start,
            **({} if name == "other" else {"allowNew": [], "allowGone": []}),
        }
        return from_object(document)

    fed: dict[str, object] = {"from": "echo", "forward": True, "feedback": True}
    savepoint = Savepoint("before", "default", "minimal", 12, 1.0, 2.0, stages_of(looped([fed])), {})
    (error,) = misfits(looped([] if edge is None else [edge]), savepoint)
    assert error.field == "spec.operators[loop].inputs"
    assert "under way on it would be lost" in error.reason
    assert not list(misfits(looped([fed]), savepoint))
    assert not list(misfits(looped([], "other"), savepoint))


def test_another_try_may_have_other_numbers_of_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was stored before the first came to a checkpoint is not in the way of the next, and is not in it."""
    counted = "reprise.spark_jobs.state.start_from.redistributed"
    saved(tmp_path / "a")
    rescaled = [override(starting(tmp_path / "a"), {"operators[count].parallelism": n}) for n in (3, 4)]

    def divided(change: Change, *_: object) -> Iterator[tuple[str, Tables]]:
        for number in range(change.now):
            yield f"count.{number}", {**TABLES, "parts": pa.table({"of": [change.now]})}
            if change.now == 3 and number == 1:
                raise KeyboardInterrupt

    monkeypatch.setattr(counted, divided)
    with pytest.raises(KeyboardInterrupt):
        begin_stream(CheckpointStore(str(tmp_path / "b")), rescaled[0])
    begin_stream(CheckpointStore(str(tmp_path / "b")), rescaled[1])
    store = CheckpointStore(str(tmp_path / "b"))
    states = store.manifest(12).files
    assert sorted(states) == [f"count.{number}" for number in range(4)]
    assert {store.read_state(file)["parts"]["of"][0].as_py() for file in states.values()} == {4}


def test_a_stream_that_is_in_a_mirror_is_taken_over_and_not_begun_again(tmp_path: Path) -> None:
    savepoint, resource = saved(tmp_path / "a"), starting(tmp_path / "a")
    begun(tmp_path / "mirror", resource, savepoint)
    Savepoints(str(tmp_path / "a")).delete("before")
    mirrored = override(resource, {"checkpoint.standby": [str(tmp_path / "mirror")]})
    store = CheckpointStore(str(tmp_path / "b"), mirrored.checkpoint.standby)
    begin_stream(store, mirrored)
    assert json.loads((tmp_path / "b" / "stream.json").read_text())["startedFrom"]["position"] == 12


def test_a_mirror_of_another_stream_is_not_taken_over_in_place_of_a_savepoint(tmp_path: Path) -> None:
    """The first topology's mirror was left in the resource: its ledger would be in the location, for good."""
    begun(tmp_path / "mirror", starting(tmp_path / "old", "before"), saved(tmp_path / "old"))
    saved(tmp_path / "a")
    resource = override(starting(tmp_path / "a"), {"checkpoint.standby": [str(tmp_path / "mirror")]})
    store = CheckpointStore(str(tmp_path / "b"), resource.checkpoint.standby)
    with pytest.raises(
        SpecError, match=r"the stream in .*mirror has begun already, from savepoint 'before' in .*old"
    ):
        begin_stream(store, resource)
    assert not (tmp_path / "b").exists()


def test_a_damaged_savepoint_makes_no_stream(tmp_path: Path) -> None:
    savepoint = saved(tmp_path / "a")
    (tmp_path / "a" / savepoint.states["count.1"].path).write_bytes(b"other")
    with pytest.raises(SpecError, match=r"startFrom\.savepoint: .*SHA-256"):
        begin_stream(CheckpointStore(str(tmp_path / "b")), starting(tmp_path / "a"))
    assert not (tmp_path / "b" / "stream.json").exists()


def test_the_clock_owes_no_batches_of_before(tmp_path: Path) -> None:
    release = Release(str(tmp_path), 0.5, wall=lambda: 1000.0, elapsed=lambda: 0.0, epoch=1)
    assert release.begin(12, 256) == []
    assert release.due(1000.0, 12) == 0, "it has not begun"
    release.start(1000.0)
    assert release.anchors == [Anchor(13, 1000.0, 0.5)]
    assert (release.due(1000.0, 12), release.due(1001.0, 12)) == (13, 15)


def test_its_own_location_and_another_protocol_are_refused(tmp_path: Path) -> None:
    from reprise.spark_jobs.topology import check

    resource = starting(tmp_path / "a")
    own = override(resource, {"checkpoint.location": f"{tmp_path}/a/"})
    with pytest.raises(SpecError, match=r"startFrom\.location: is this topology's own"):
        check(own)
    mirrored = override(resource, {"checkpoint.standby": [f"{tmp_path}/a/"]})
    with pytest.raises(SpecError, match=r"startFrom\.location: is in `standby`, too"):
        check(mirrored)
    alone = override(resource, {"checkpoint.protocol": "uncoordinated", "checkpoint.log": "memory"})
    with pytest.raises(SpecError, match="startFrom: needs `protocol: coordinated`"):
        check(alone)


def test_validate_says_what_becomes_of_each_state(tmp_path: Path) -> None:
    saved(tmp_path / "a")
    start = f"checkpoint.startFrom={{location: {tmp_path / 'a'}, savepoint: before}}"
    words = [
        "validate",
        "-f",
        "examples/minimal.yaml",
        "--set",
        start,
        "--set",
        "operators[count].parallelism=3",
    ]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    assert "begins from savepoint before of default/minimal, after batch 12" in result.output
    assert "  count: 2 partitions, now 3; its state is divided by tag" in result.output
    refused = CliRunner().invoke(main, [*words, "--set", "sources[tweets].parallelism=2"])
    assert refused.exit_code != 0
    assert "spec.sources[tweets].parallelism: HashtagSource does not say" in refused.output


def test_a_state_that_is_not_what_its_class_says_begins_nothing(tmp_path: Path) -> None:
    saved(tmp_path / "a")
    resource = override(starting(tmp_path / "a"), {"operators[count].parallelism": 3})
    with pytest.raises(SpecError, match="cannot be divided") as error:
        begin_stream(CheckpointStore(str(tmp_path / "b")), resource)
    assert error.value.field == "spec.operators[count].parallelism"
    assert not (tmp_path / "b" / "stream.json").exists()
