"""Who fetches its state first, over all nodes; and that snapshots wait for what is fetched, and for nothing that hangs."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from reprise.spark_jobs.engine import capacity, transfers
from reprise.spark_jobs.engine.transfers import Granted, Transfers, Wanted
from reprise.spark_jobs.node import restoring
from reprise.spark_jobs.node.command import GRANT_S
from reprise.spark_jobs.node.snapshots import SnapshotWriter
from reprise.spark_jobs.platform import PLATFORM
from reprise.spark_jobs.state.checkpoints import CheckpointStore
from reprise.spark_jobs.storage.files import Files
from tests.support.engine_worlds import begun
from tests.support.losses import lose_at_any_stage
from tests.unit.spark_jobs.engine.test_paged import resource_of as paged
from tests.unit.spark_jobs.engine.test_restore_value import PRIORITIES, world
from tests.unit.spark_jobs.engine.test_scope import in_the_middle, lose, to_the_end
from tests.unit.spark_jobs.engine.test_uncoordinated import restore
from tests.unit.spark_jobs.engine.test_uncoordinated import to_the_end as to_the_end_of
from tools.testbed.local_engine import tick
from tools.testbed.waiting import until

GIB = 2**30


def asked(*rows: tuple[str, str, int, float]) -> dict[tuple[str, str], Wanted]:
    """Name, node, bytes and value of each."""
    return {(name, f"{name}'s"): Wanted(node, size, value) for name, node, size, value in rows}


def test_the_most_valuable_come_first_as_many_as_the_store_serves_and_as_a_node_takes() -> None:
    many = [(f"p.{k}", f"n{k % 20}", GIB, float(k)) for k in range(30)]
    one_node = [(f"q.{k}", "n99", GIB, 100.0 + k) for k in range(6)]
    waits = Transfers().decide(asked(*many, *one_node), 0.0).waits
    granted = {name for name, *_ in (*many, *one_node)} - waits
    assert len(granted) == transfers.AT_ONCE
    assert {"q.5", "q.4", "q.3", "q.2"} <= granted
    assert {"q.1", "q.0"} <= waits
    assert granted - {"q.5", "q.4", "q.3", "q.2"} == {f"p.{k}" for k in range(18, 30)}


def test_what_is_small_waits_for_nobody() -> None:
    rows = [(f"p.{k}", "n1", 1000, float(k)) for k in range(500)]
    assert Transfers().decide(asked(*rows), 0.0) == Granted()
    large = [(f"l.{k}", "n2", GIB, 1000.0 + k) for k in range(transfers.OF_A_NODE)]
    found = Transfers().decide(asked(*rows, *large), 0.0)
    assert found == Granted(frozenset(), True)
    more = {**asked(*rows, *large), **asked(("m.0", "n2", GIB, 1.0))}
    assert Transfers().decide(more, 0.0).waits == {"m.0"}


def test_who_has_begun_goes_on_and_what_hangs_takes_nobody_s_turn() -> None:
    held = Transfers()
    first = asked(*((f"p.{k}", "n1", GIB, 1.0) for k in range(transfers.OF_A_NODE)))
    assert held.decide(first, 100.0) == Granted(frozenset(), True)
    more = {**first, **asked(("v.0", "n1", GIB, 9.0))}
    assert held.decide(more, 101.0).waits == frozenset(), "it is worth more; those under way are not stopped"
    late = {**more, **asked(("w.0", "n1", GIB, 0.5))}
    assert held.decide(late, 102.0).waits == {"w.0"}
    patience = held.capacity.patience(5 * GIB)
    assert held.decide(late, 100.0 + patience).waits == {"w.0"}, "the node has all of it to read"
    after = held.decide(late, 101.0 + patience + 0.1)
    assert after == Granted(frozenset(), True)
    nobody = held.decide(late, 102.0 + patience + held.capacity.patience(GIB))
    assert nobody == Granted(frozenset(), False), "no snapshot waits for a store that hangs"
    again = {(p, "another"): one for (p, _), one in first.items()}
    assert held.decide(again, 300.0).hold, "another installation is asked for anew"


def test_snapshots_wait_for_bytes_that_take_longer_than_they_do() -> None:
    assert not Transfers().decide(asked(("p.0", "n", transfers.HOLD - 1, 1.0)), 0.0).hold
    assert Transfers().decide(asked(("p.0", "n", transfers.HOLD, 1.0)), 0.0).hold
    assert not Transfers().decide({}, 0.0).hold


def test_what_grants_assume_follows_what_was_measured() -> None:
    held = Transfers()
    for k in range(4):  # four at once, of 10 MiB/s each
        held.capacity.measured(100 << 20, 10.0, 10.0 + k / 100)
    large = [(f"l.{k}", "n2", GIB, 1000.0 + k) for k in range(transfers.OF_A_NODE)]
    small = [(f"p.{k}", "n2", 5 << 20, 1.0 + k) for k in range(8)]
    assert held.decide(asked(*large, *small), 20.0).waits == {f"p.{k}" for k in range(5)}, (
        "19 MiB, and not 64"
    )
    assert Transfers().decide(asked(*large, *small), 20.0).waits == frozenset()
    held = Transfers(capacity=held.capacity)
    assert held.decide(asked(("p.0", "n", 3 << 20, 1.0)), 20.0).hold, "of 8 MiB"
    assert not held.decide(asked(("p.0", "n", 2 << 20, 1.0)), 20.0).hold
    for k in range(40):  # another store, or another time: 400 MiB/s, one after the other
        held.capacity.measured(400 << 20, 1.0, 100.0 + k)
    assert not held.decide(asked(("q.0", "n", 24 << 20, 1.0)), 200.0).hold
    assert held.decide(asked(("q.0", "n", 26 << 20, 1.0)), 200.0).hold


def test_a_state_of_gigabytes_is_waited_for_as_long_as_it_takes() -> None:
    held, wanted = Transfers(), asked(("p.0", "n1", 4 * GIB, 1.0))
    assert held.decide(wanted, 0.0).hold
    assert held.decide(wanted, 250.0).hold, "16 MiB/s are assumed"
    assert not held.decide(wanted, 260.0).hold
    held = Transfers()
    held.capacity.measured(GIB, 64.0, 0.0)
    assert held.decide(wanted, 0.0).hold
    assert held.decide(wanted, 500.0).hold, "twice the 256 s that follow from what was measured"
    assert not held.decide(wanted, 520.0).hold


def test_states_of_gigabytes_that_a_node_reads_one_after_the_other_do_not_hang() -> None:
    """Four of 4 GiB at 16 MiB/s: the last one is there after 17 minutes, and something comes every four."""
    held, comes = Transfers(), 256.0
    states = asked(*((f"p.{k}", "n1", 4 * GIB, 9.0 - k) for k in range(4)))
    more = asked(("v.0", "n1", GIB, 1.0))
    for k, key in enumerate(sorted(states)):
        left = {one: states[one] for one in sorted(states)[k:]}
        for at in (0.0, 100.0, comes - 1):
            said = held.decide({**left, **more}, k * comes + at)
            if k * comes + at < capacity.MOST_PATIENCE_S:
                assert (said.hold, said.waits) == (True, {"v.0"} if k == 0 else set()), (k, at)
        held.came(key, (k + 1) * comes)
    assert Transfers().decide(states, 0.0).hold


def test_a_node_that_has_nothing_for_longer_than_all_of_it_takes_hangs() -> None:
    held = Transfers()
    states = asked(("p.0", "n1", GIB, 2.0), ("p.1", "n1", GIB, 1.0), ("q.0", "n2", GIB, 1.0))
    assert held.decide(states, 0.0).hold
    assert held.decide(states, 100.0).hold, "n1 has two to read; n2's hangs"
    held.came(("p.0", "p.0's"), 100.0)
    left = {key: one for key, one in states.items() if key[0] != "p.0"}
    assert held.decide(left, 163.0).hold, "64 s from the last one that came"
    assert not held.decide(left, 165.0).hold
    assert not held.decide(left, 166.0).hold, "what hangs does so until it is there"


def test_the_driver_measures_what_it_has_restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity, "LEAST_S", 0.0)
    made = world(tmp_path, PRIORITIES)
    newest = in_the_middle(made)
    assert made.engine.transfers.capacity.of_all is None
    stays = lose(made, "b")
    back = {f"count.{k}": "c" for k in range(5)}
    made.want(1, newest, {**stays, **back}, retain=True)
    made.run(lambda e: not e.installing)
    to_the_end(made, newest)
    measured = made.engine.transfers.capacity
    assert measured.of_one is not None
    assert 1 <= len(measured._last) <= len(back), "each once"


@pytest.mark.parametrize("together", [True, False])
def test_states_are_fetched_by_value_over_all_nodes(
    together: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two nodes, one state at a time.  Without grants each node takes its own best: the second best of one comes before."""
    read: list[str] = []
    real = Files.read

    def noted(files: Files, relative: str) -> bytes | None:
        if relative.endswith(".state") and (
            named := [x for x in Path(relative).parts if x.startswith("count")]
        ):
            read.append(named[0][: len("count.0")])
        return real(files, relative)

    made = world(tmp_path, PRIORITIES)
    newest = in_the_middle(made)
    stays = lose(made, "b")
    best, rest = ["count.1", "count.3", "count.4"], ["count.0", "count.2"]
    with monkeypatch.context() as patched:
        patched.setattr(restoring, "PARALLEL", 1)
        patched.setattr(transfers, "AT_ONCE", 1)
        patched.setattr(transfers, "SMALL", 0)
        patched.setattr(Files, "read", noted)
        if not together:
            patched.setattr(Transfers, "decide", lambda *_: Granted())
        made.want(1, newest, {**stays, **dict.fromkeys(best, "c"), **dict.fromkeys(rest, "a")}, retain=True)
        made.run(lambda e: not e.installing)
    to_the_end(made, newest)
    assert sorted(read) == sorted([*best, *rest])
    assert (read[:3] == ["count.3", "count.4", "count.1"]) == together


def test_snapshots_that_wait_are_stored_when_states_are_there(tmp_path: Path) -> None:
    now = [0.0]
    platform = replace(PLATFORM, elapsed=lambda: now[0])
    store = CheckpointStore(str(tmp_path))
    for ends in (False, True):
        writer = SnapshotWriter(store, f"host-{ends}", platform)
        writer.hold(True)
        writer.submit("p.0", "1.1.1", 3, dict)
        until(lambda writer=writer: writer._jobs.empty())  # type: ignore[misc]
        assert writer.collect()[0] == []
        now[0] += GRANT_S - 0.01
        assert not list(tmp_path.glob(f"**/*host-{ends}*"))
        if ends:  # nobody says anything any more
            now[0] += 0.02
        else:
            writer.hold(False)
        until(lambda writer=writer: writer.collect()[0])  # type: ignore[misc]
        assert list(tmp_path.glob(f"**/*host-{ends}*"))
        writer.close()


def test_a_writer_that_is_closed_waits_for_nothing(tmp_path: Path) -> None:
    writer = SnapshotWriter(CheckpointStore(str(tmp_path)), "host")
    writer.hold(True)
    writer.submit("p.0", "1.1.1", 3, dict)
    writer.close()
    assert writer.collect()[0]


@pytest.mark.wide
@pytest.mark.parametrize("seed", range(4))
def test_losses_change_no_byte_where_everything_waits_for_everything(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One state at a time over all nodes, and snapshots never beside one; a driver is replaced with what it granted."""
    monkeypatch.setattr(transfers, "AT_ONCE", 1)
    monkeypatch.setattr(transfers, "SMALL", 0)
    monkeypatch.setattr(transfers, "HOLD", 1)
    dice = random.Random(seed)
    plain = begun(paged("coordinated", "arrays"), tmp_path / "plain")
    plain.run(lambda e: e.done)
    made, said = begun(paged("coordinated"), tmp_path / "lossy"), set[Granted]()
    real = Transfers.decide

    def decide(self: Transfers, wanted: Mapping[tuple[str, str], Wanted], now: float) -> Granted:
        said.add(found := real(self, wanted, now))
        return found

    monkeypatch.setattr(Transfers, "decide", decide)
    tick(made, dice.randint(8, 20))
    for k in range(4):
        lose_at_any_stage(made, dice)
        tick(made, dice.randint(0, 3))
        made.nodes.start(f"new{k}")
        restore(made, f"new{k}", made.engine.desired.generation + 1)
        tick(made, dice.randint(2, 12))
        if k == 1:
            newest = made.engine.punctuations.newest
            made.driver()
            made.engine.begin(newest)
            nodes = sorted(made.nodes.hosts)
            made.want(made.epochs + 10, newest, made.spread(*nodes), retain=True)
    to_the_end_of(made)
    assert any(one.waits for one in said)
    assert any(one.hold for one in said)
    assert made.output() == plain.output()
