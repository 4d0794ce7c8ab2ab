"""What the loss of a node would take back, against what the coordinator then decides."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reprise.scheduler import Policy, Scope, Strategy, moves, standby_placement
from reprise.scheduler.loss import Loss, loss_of
from tests.support.recovery_simulator import World, diamond


def started(deterministic: bool = True, **policy: Any) -> World:
    return World(diamond(3, 50, deterministic), Policy(nodes_wanted=4, **policy)).started(4)


def foretold(w: World, node: str) -> Loss:
    return loss_of(w.snapshot(), w.policy, f"{node}#1")


def taken_back(w: World, node: str) -> tuple[set[str], set[str]]:
    """What was lost with a node, and what lived and goes back with it, by the first plan."""
    assert w.desired is not None
    before = w.desired
    w.kill(node)
    for _ in range(30):
        if w.plans:
            break
        w.run(0.3)
    after = w.desired
    lost = {p for p, n in before.assignment.items() if n == f"{node}#1"}
    back = {
        p
        for p in before.assignment.keys() - lost
        if after.origin(p).generation != before.origin(p).generation
    }
    return lost, back


def test_who_goes_on_where_its_standby_is_takes_nobody_back() -> None:
    """Neither do others that are lost with it, though a replay of it may differ: for their plan it has not failed."""
    waits = frozenset({"left.0", "left.1"})
    topology = replace(diamond(2, 100, deterministic=False), standbys=waits, passive=waits)
    seen = set[str]()
    for node in ("n1", "n2", "n3", "n4"):
        w = World(topology, Policy(nodes_wanted=4), output_waits=waits).started(4)
        w.run(3)
        found = foretold(w, node)
        assert w.desired is not None
        taken = {p for p, n in w.desired.assignment.items() if n == f"{node}#1"}
        assert set(found.promoted) == taken & waits
        assert {*found.lost, *found.promoted} == taken
        _, back = taken_back(w, node)
        assert w.plans, "more than what was promoted was lost"
        assert set(w.promoted) == set(found.promoted)
        assert found.back is not None
        assert (set(found.back), found.everything) == (back, False)
        assert back == set()
        seen.update(found.promoted)
    assert seen == waits


CASES: dict[str, dict[str, Any]] = {
    "kept": {},
    "ancestors": {"scope": Scope.ANCESTORS},
    "global": {"scope": Scope.GLOBAL},
    "not deterministic": {"deterministic": False},
    "blocking": {"strategy": Strategy.BLOCKING},
    "operator-centric": {"strategy": Strategy.OPERATOR_CENTRIC},
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("node", ["n1", "n2", "n3", "n4"])
def test_it_is_what_is_decided_then(case: str, node: str) -> None:
    w = started(**CASES[case])
    found = foretold(w, node)
    lost, back = taken_back(w, node)
    assert set(found.lost) == lost and found.promoted == ()
    assert found.back is not None
    assert found.everything is (case not in ("kept", "ancestors"))
    assert set(found.back) == back and bool(back) is (case != "kept")


def test_what_queries_are_worth_is_asked_for_passive_standbys_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each loss would ask it of each partition of each query, of which a wide topology has millions."""

    def asked(*_: object) -> None:
        raise AssertionError("nobody has a passive standby")

    monkeypatch.setattr(standby_placement, "most_lost_first", asked)
    monkeypatch.setattr(moves, "by_worth", asked)
    assert foretold(started(), "n1").lost


def test_where_the_driver_finds_the_line_it_is_known_only_while_all_output_is_kept() -> None:
    w = started(scope=Scope.PARTITION, by_driver=True)
    snapshot = w.snapshot()
    assert snapshot.progress is not None
    backs = []
    for stored in ({}, {"dropped": 0}, {"dropped": 2}):
        told = replace(snapshot, progress=replace(snapshot.progress, stored=stored))
        backs.append(loss_of(told, w.policy, "n1#1").back)
    assert backs == [None, (), None]
