"""What a host makes of the orders that it got is what it was meant to be told, whatever it missed before."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.algorithms.positions import Positions
from reprise.spark_jobs.contract import Range
from reprise.spark_jobs.engine.chain import ChainError
from reprise.spark_jobs.engine.dispatch import Dispatch
from reprise.spark_jobs.errors import LateRequestError, MissedOrdersError, WireError
from reprise.spark_jobs.node.command import Command, Install
from reprise.spark_jobs.node.orders import EACH, HELD, Orders
from reprise.spark_jobs.topology import Topology, expand, from_object
from tests.support.engine_worlds import begun
from tests.support.examples import examples
from tests.support.topologies import document, operator, source
from tests.unit.spark_jobs.engine.test_recovery import DIAMOND
from tools.testbed.local_engine import World, tick

NODES = ("a", "b", "c")
TOPOLOGY = expand(
    from_object(
        document(
            source("s", 3),
            operator("far", {"from": "s", "by": ["k"]}, parallelism=4),
            operator("near", {"from": "s", "forward": True}, parallelism=3),
            operator("both", {"from": "near", "forward": True}, {"from": "far", "by": ["k"]}, parallelism=3),
            operator("out", "both", {"from": "near", "broadcast": True}, parallelism=1, output={}),
        )
    )
)


def read_by(topology: Topology, hosted: Any) -> set[str]:
    return {t for p in hosted for d in topology.partitions[p].downstream for t in d.targets}


def meant(command: Command, topology: Topology = TOPOLOGY) -> dict[str, Any]:
    """All of a command, and of routes and positions what the node's partitions send to."""
    targets = read_by(topology, command.hosted)
    return {f.name: getattr(command, f.name) for f in fields(Command)} | {
        "routes": {p: s for p, s in command.routes.items() if p in targets},
        "positions": {p: k for p, k in command.positions.items() if p in targets},
        "resend": tuple(p for p in command.resend if p in targets and p in command.routes),
    }


@st.composite
def jobs(draw: st.DrawFn) -> list[tuple[dict[str, str], dict[str, Any], set[str]]]:
    """For each job: where partitions are, what else it says, and the nodes that its orders do not reach."""
    found = []
    home = {p: draw(st.sampled_from(NODES)) for p in TOPOLOGY.order}
    for _ in range(draw(st.integers(2, 8))):
        if draw(st.booleans()):
            for partition in draw(st.sets(st.sampled_from(TOPOLOGY.order))):
                home = {**home, partition: draw(st.sampled_from((*NODES, "")))}
        ahead = draw(st.sampled_from([0, 3]))
        positions = {p: ahead + draw(st.sampled_from([5, 5, 5, 6])) for p in TOPOLOGY.order if home[p]}
        said = {
            "positions": positions,
            "resend": tuple(sorted(draw(st.sampled_from([[], list(TOPOLOGY.order), ["far.1", "both.0"]])))),
            "covered": Positions(draw(st.integers(0, 2)), draw(st.sampled_from([{}, {"far.2": 9}]))),
            "horizon": draw(st.integers(5, 9)),
            "punctuations": draw(st.sampled_from([(), (8,)])),
            "retain": draw(st.booleans()),
        }
        missed = set(NODES) if draw(st.integers(0, 2)) == 0 else set()
        found.append((home, said, missed & draw(st.sets(st.sampled_from(NODES)))))
    return found


def commands(job: int, home: dict[str, str], said: dict[str, Any]) -> dict[str, Command]:
    nodes = sorted({node for node in home.values() if node})
    routes = {p: nodes.index(node) for p, node in home.items() if node}
    return {
        node: Command(
            job=job, epoch=1, slot=slot, topology="{}", sink="/s", checkpoints="/c", routes=routes,
            hosted={p: f"1.1.{len(p)}{home[p]}" for p, s in routes.items() if s == slot},
            installs={p: Install(3, {"path": p, "size": 1, "sha256": "x"}) for p in ("far.0",) if home[p] == node},
            ranges={p: {job: Range(1, job, {"t/0": (7, 10)})} for p in ("s.1",) if home[p] == node}, **said,
        )
        for slot, node in enumerate(nodes)
    }  # fmt: skip


@pytest.mark.wide
@examples(200)
@given(jobs())
def test_what_a_host_reads_is_what_it_was_meant_to_be_told(
    script: list[tuple[dict[str, str], dict[str, Any], set[str]]],
) -> None:
    """Partitions move and stop, nodes come and go; of a job that fails some hosts have the orders and others have not."""
    dispatch, hosts = Dispatch(TOPOLOGY), {node: Orders() for node in NODES}
    for job, (home, said, missed) in enumerate(script, 1):
        if not (wanted := commands(job, home, said)):
            continue
        for (node, command), order in zip(
            wanted.items(), dispatch.orders(list(wanted), list(wanted.values())), strict=True
        ):
            if node not in missed:
                got = hosts[node].read(order)
                assert meant(got) == meant(command)
                assert got == replace(
                    command, **{n: meant(command)[n] for n in ("routes", "positions", "resend")}
                )
        if missed & wanted.keys():
            dispatch.forget()
        else:
            dispatch.taken()


def steady(**changes: Any) -> tuple[dict[str, str], dict[str, Any]]:
    home = {p: NODES[k % 3] for k, p in enumerate(TOPOLOGY.order)}
    said = {"positions": dict.fromkeys(TOPOLOGY.order, 5), "horizon": 6, **changes}
    return home, said


def told(dispatch: Dispatch, job: int, home: dict[str, str], said: dict[str, Any]) -> dict[str, bytes]:
    wanted = commands(job, home, said)
    return dict(zip(wanted, dispatch.orders(list(wanted), list(wanted.values())), strict=True))


def test_the_resource_and_what_stays_travel_once() -> None:
    dispatch = Dispatch(TOPOLOGY)
    home, said = steady()
    whole = {node: json.loads(order) for node, order in told(dispatch, 1, home, said).items()}
    dispatch.taken()
    later = {node: json.loads(order) for node, order in told(dispatch, 2, home, said).items()}
    for node in NODES:
        assert whole[node]["base"] is None
        assert whole[node]["always"]["topology"] == "{}"
        assert later[node]["base"] == 1
        assert set(later[node]) == {"version", "epoch", "job", "base", "slot", "ranges", "readers", *EACH}
        assert later[node]["readers"] == {}
    assert set(whole["a"]) - set(later["a"]) <= {"always", "near", *HELD}


def test_only_what_changed_is_told_and_only_to_those_who_send_there() -> None:
    dispatch = Dispatch(TOPOLOGY)
    home, said = steady()
    home = {p: {"s": "a", "far": "b"}.get(p.rpartition(".")[0], "c") for p in home}
    told(dispatch, 1, home, said)
    dispatch.taken()
    moved = {**said, "positions": {**said["positions"], "far.2": 9, "both.1": 8, "out.0": 7}}
    found = {node: json.loads(order) for node, order in told(dispatch, 2, home, moved).items()}
    assert found["a"]["readers"] == {"far": {"but": {"2": 9}}}
    assert found["b"]["readers"] == {"both": {"but": {"1": 8}}}
    assert found["c"]["readers"] == {"out": {"at": 7}}
    assert found["c"]["near"] == {"both.1": [2, 8]}
    assert "near" not in found["a"], "its readers over forward edges are where they were"


def test_nothing_of_a_partition_goes_to_a_node_that_sends_it_nothing() -> None:
    home, said = steady(resend=tuple(sorted(TOPOLOGY.order)))
    for node, order in told(Dispatch(TOPOLOGY), 1, home, said).items():
        hosted = {p for p, n in home.items() if n == node}
        got, targets = Orders().read(order), read_by(TOPOLOGY, hosted)
        assert got.routes.keys() == got.positions.keys() == set(got.resend) == targets
        assert got.hosted.keys() == hosted
        raw = json.loads(order)
        named = set(raw["readers"]) | {p.rpartition(".")[0] for p in raw.get("near", {})}
        assert named == {p.rpartition(".")[0] for p in targets}


def test_a_host_refuses_what_changed_since_orders_that_it_has_not_and_is_as_it_was() -> None:
    dispatch, home, said = Dispatch(TOPOLOGY), *steady()
    first = told(dispatch, 1, home, said)["a"]
    dispatch.taken()
    second = told(dispatch, 2, home, said)["a"]
    dispatch.taken()
    third = told(dispatch, 3, home, {**said, "horizon": 7})["a"]
    host = Orders()
    for order in (second, third):
        with pytest.raises(MissedOrdersError, match="and this host has none"):
            host.read(order)
    host.read(first)
    with pytest.raises(MissedOrdersError, match="since job 2, and this host has those of epoch 1, job 1"):
        host.read(third)
    assert host.read(second).job == 2, "what was refused changed nothing"
    assert host.read(third).horizon == 7
    assert host.read(third) is host.read(third), "the same orders again"
    with pytest.raises(LateRequestError, match="job 1 refused: epoch 1, job 3 has begun"):
        host.read(first)


def test_orders_of_another_driver_are_no_base() -> None:
    dispatch, home, said = Dispatch(TOPOLOGY), *steady()
    host = Orders()
    host.read(told(dispatch, 1, home, said)["a"])
    dispatch.taken()
    of_another = json.loads(told(dispatch, 2, home, said)["a"]) | {"epoch": 2}
    with pytest.raises(MissedOrdersError, match=r"epoch 2, job 2 .* those of epoch 1, job 1"):
        host.read(json.dumps(of_another).encode())


@pytest.mark.parametrize(
    "change",
    [{"surprise": 1}, {"installs": 3}, {"ranges": {"s": {"x": [1, 2]}}}, {"always": {}}, {"readers": 1}],
)
def test_orders_with_something_wrong_are_refused_whole(change: dict[str, object]) -> None:
    home, said = steady()
    good = json.loads(told(Dispatch(TOPOLOGY), 1, home, said)["a"])
    host = Orders()
    with pytest.raises(WireError, match="command"):
        host.read(json.dumps(good | change).encode())
    with pytest.raises(MissedOrdersError, match="has none"):
        host.read(json.dumps({**good, "base": 0, "job": 1}).encode())
    assert host.read(json.dumps(good).encode()).hosted


# -- with hosts --------------------------------------------------------------------------------------------------------


def working(folder: Path) -> World:
    world = begun(DIAMOND, folder, ahead=3)
    tick(world, 4)
    assert not world.engine.failures
    return world


@pytest.mark.wide
@pytest.mark.parametrize("stage", [0, 1, 2])
def test_after_a_job_that_some_missed_all_are_told_everything(tmp_path: Path, stage: int) -> None:
    """Of a failed job the driver cannot know who has its orders: here the third node misses them, or all have them."""
    world = working(tmp_path)
    seen: list[list[int | None]] = []
    made = world.engine._dispatch.orders

    def orders(*arguments: Any) -> list[bytes]:
        found = made(*arguments)
        seen.append([json.loads(order)["base"] for order in found])
        return found

    world.engine._dispatch.orders = orders  # type: ignore[method-assign]
    world.nodes.interrupt = cut(stage)
    tick(world, 3)
    assert seen == [[4] * 3, [None] * 3, [6] * 3]
    world.run(lambda e: e.done)
    assert len(world.output()) == 4 * 61


def cut(stage: int) -> Any:
    def interrupt(job: int, at: int, slot: int) -> None:
        if (job, at, slot) == (5, stage, 2):
            raise ChainError("its task was cancelled")

    return interrupt
