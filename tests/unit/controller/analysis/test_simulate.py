"""What would happen, from what an observer saw: the rules' own answer, with its assumptions."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from reprise.controller.analysis.simulate import SimulationError, parse_arrivals, simulate
from reprise.controller.coordinator.__main__ import _parser as coordinator_parser
from reprise.controller.operator.__main__ import _parser as operator_parser
from reprise.controller.operator.settings import OperatorSettings
from reprise.controller.status import observation, records
from reprise.controller.zookeeper.observation import Observation
from reprise.controller.zookeeper.process_records import parse_leader
from reprise.scheduler import Incident, Kind, PartitionStats, Phase, Policy, QueryTimeline
from tests.support import oncall

ROOT = Path(__file__).parents[4]


def test_a_burst_with_two_arrivals() -> None:
    found = simulate(oncall.resource(), oncall.steady(), ["n2", "n3"], [(30.0, 1), (60.0, 1)])
    assert [plan.trigger for plan in found.plans] == ["first", "arrival", "arrival"]
    assert found.plans[0].placed == ("count.0",)
    assert found.waiting == {}
    assert found.available == ("count.0", "count.1", "count.2", "count.3")
    shares = [stage.share for stage in found.timeline]
    assert 0.0 < min(shares) < 1.0, "a query that lost nothing goes on"
    assert shares[-1] == 1.0
    assert any("never measured" in line for line in found.assumptions)


def test_it_goes_on_from_an_open_incident_with_its_times() -> None:
    found = simulate(oncall.resource(), oncall.after_the_burst(), arrivals=[(10.0, 1)])
    assert [plan.trigger for plan in found.plans] == ["arrival"]
    assert found.waiting == {}
    back = next(stage for stage in found.timeline if stage.queries == ("count.1",))
    assert 16.0 <= back.at <= 17.0  # arrival, restore of 4 s, catching up of 2 s, as measured
    assert any("median of what was measured" in line for line in found.assumptions)


def test_measured_load_counts() -> None:
    """A partition that takes more than declared does not fit any more."""
    stats = {p: PartitionStats(70.0) for p in oncall.PLACES}
    heavy = replace(oncall.steady(), stats=stats)
    assert simulate(oncall.resource(), heavy, ["n3"]).waiting
    assert simulate(oncall.resource(), oncall.steady(), ["n3"], [(5.0, 1)]).waiting == {}


def test_the_deployment_s_own_waits_are_simulated_and_said() -> None:
    """A burst that settles for 20 s has its first plan after 20 s and not after the default."""
    told = replace(oncall.steady(), settle_s=20.0, driver_grace_s=60.0)
    found = simulate(oncall.resource(), observation(json.dumps(records(told)).encode(), "page"), ["n2", "n3"])
    assert 20.0 <= found.plans[0].at < 21.0
    said = next(line for line in found.assumptions if "burst" in line)
    assert "20 s" in said
    assert "60 s, as the coordinator says" in said
    at_once = replace(told, settle_s=0.0, driver_grace_s=0.0)
    assert simulate(oncall.resource(), at_once, ["n2", "n3"]).plans[0].at < Policy().settle_s
    unknown = simulate(oncall.resource(), oncall.steady(), ["n2", "n3"])
    assert unknown.plans[0].at < 2.0
    assert any("no coordinator says" in line for line in unknown.assumptions)
    assert parse_leader(b'{"pid": 1}').settle_s is None, "which is not 0"


@pytest.mark.parametrize("text", ["-1", "nan", "inf", "soon"])
@pytest.mark.parametrize("option", ["--settle", "--driver-grace"])
def test_what_is_no_time_that_can_be_waited_is_refused(
    option: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--zk", "z", "--root", "/r", "--topology", "t"]
    assert coordinator_parser().parse_args([*asked, option, "0"])
    with pytest.raises(SystemExit):
        coordinator_parser().parse_args([*asked, f"{option}={text}"])
    assert f"argument {option}: invalid seconds value: '{text}'" in capsys.readouterr().err


def test_the_defaults_of_waits_are_the_scheduler_s_wherever_they_are_not_set() -> None:
    """The one that differs, on purpose: pods take longer to come than processes."""
    usual = Policy()
    run = coordinator_parser().parse_args(["--zk", "z", "--root", "/r", "--topology", "t"])
    assert (run.settle, run.driver_grace) == (usual.settle_s, usual.driver_grace_s)
    operator = OperatorSettings(namespace="n", identity="i", zk="z", image="i")
    chart = yaml.safe_load((ROOT / "charts" / "reprise" / "values.yaml").read_text(encoding="utf-8"))[
        "operator"
    ]
    asked = operator_parser().parse_args(["--zk", "z", "--image", "i"])
    assert operator.settle_s == asked.settle == chart["settleSeconds"] == usual.settle_s
    assert operator.driver_grace_s == asked.driver_grace == chart["driverGraceSeconds"] > usual.driver_grace_s


@pytest.mark.parametrize(
    ("text", "found"),
    [("2@90s", [(90.0, 2)]), ("1@3m, 2@30s", [(30.0, 2), (180.0, 1)]), ("", []), ("1@1.5", [(1.5, 1)])],
)
def test_arrivals(text: str, found: list[tuple[float, int]]) -> None:
    assert parse_arrivals(text) == found


@pytest.mark.parametrize("text", ["2", "@9s", "x@9s", "1@soon", "0@9s"])
def test_arrivals_that_are_none(text: str) -> None:
    with pytest.raises(SimulationError, match="not written NODES@TIME"):
        parse_arrivals(text)


def test_a_node_that_is_not_there() -> None:
    with pytest.raises(SimulationError, match="no node 'n9' is alive"):
        simulate(oncall.resource(), oncall.steady(), ["n9"])


@pytest.mark.parametrize("asked", [True, False, None])
def test_a_pause_that_holds_is_no_news(asked: bool | None) -> None:
    """Asked for in ZooKeeper, or by the resource alone."""
    paused = asked is not False
    seen = oncall.steady()
    assert seen.desired is not None
    seen = replace(seen, paused=asked, desired=replace(seen.desired, paused=paused))
    found = simulate(replace(oncall.resource(), paused=paused), seen)
    assert found.timeline == ()


def test_nothing_runs() -> None:
    with pytest.raises(SimulationError, match="nothing is at work"):
        simulate(oncall.resource(), Observation(1.0), ["n1"])


def recovered(opened: float, catch_up: float | None, name: str) -> Incident:
    """A closed incident of count.1, which was at work after 4 s and back after `catch_up` more, or not before it closed."""
    back = None if catch_up is None else opened + 4.0 + catch_up
    return Incident(
        id=name,
        kind=Kind.CORRELATED,
        phase=Phase.CLOSED,
        opened_at=opened,
        checkpoint=5,
        generation=1,
        nodes_before=3,
        settle_until=opened,
        queries={"count.1": QueryTimeline(opened, opened + 4.0, back)},
        closed_at=opened + 100.0,
    )


def test_without_a_recovery_on_record_every_time_is_a_lower_bound() -> None:
    found = simulate(oncall.resource(), oncall.steady(), ["n2", "n3"], [(30.0, 2)])
    assert found.at_least == "no past recovery of this topology was measured"


def test_past_incidents_of_the_topology_say_how_long_it_takes_and_what_was_not_measured_makes_it_a_lower_bound() -> (
    None
):
    measured = {"a": recovered(oncall.START - 900, 90.0, "a"), "b": recovered(oncall.START - 500, 92.0, "b")}
    seen = replace(oncall.steady(), closed=measured)
    found = simulate(oncall.resource(), seen, ["n2", "n3"], [(30.0, 2)])
    back = [stage for stage in found.timeline if stage.what == "queries-back"]
    assert back[-1].at >= 30.0 + 91.0  # the median of both, and not of the last alone
    assert found.at_least.startswith("restoring: not measured yet")
    unseen = replace(seen, closed={**measured, "c": recovered(oncall.START - 300, None, "c")})
    found = simulate(oncall.resource(), unseen, ["n2", "n3"], [(30.0, 2)])
    assert "at least 96.0 s in 1 case, not measured to the end" in found.at_least


@pytest.mark.parametrize(
    ("stated", "operated", "everything", "said"),
    [
        (None, True, True, "the operator counts classes of your own as not deterministic"),
        (None, False, False, "classes of your own count as deterministic where the spec is silent (count)"),
        (True, True, False, ""),
        (False, False, True, ""),
    ],
)
def test_a_class_of_ones_own_counts_as_whoever_decides_counts_it(
    stated: bool | None, operated: bool, everything: bool, said: str
) -> None:
    """A further loss takes what runs on the other node back, too, where code is not deterministic."""
    own = [replace(s, class_path="mine:Own", deterministic=stated) for s in oncall.resource().operators]
    resource = replace(oncall.resource(), operators=tuple(own))
    seen = oncall.after_the_burst()
    (second,) = [node.partition("#")[0] for node in seen.nodes if not node.startswith("n1#")]
    found = simulate(resource, seen, [second], [(10.0, 3)], operated)
    down = {query for stage in found.timeline if stage.what == "queries-down" for query in stage.queries}
    assert ("count.0" in down) is everything, "it is on n1"
    lines = [line for line in found.assumptions if "of your own" in line]
    assert [said in line for line in lines] == ([True] if said else [])
