"""Standbys are refused where they were not built or tried, with field and reason."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest

from reprise.controller.topology_view import policy_of, view_of
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.topology import StreamTopology, check, expand, from_object, load_text, make_operator
from reprise.spark_jobs.topology.availability import (
    MOST_BACKED,
    backed_beside_standbys,
    passive_standbys,
    skip_fits,
    standby_domains,
    waiting_for_standbys,
)
from reprise.spark_jobs.topology.binding import unbound
from reprise.spark_jobs.topology.guarantees import described, guarantees, with_an_oldest_input
from reprise.spark_jobs.topology.schema import OperatorModel
from tests.support.topologies import document, operator, source

ACTIVE = {"availability": "active-standby"}
PASSIVE = {"availability": "passive-standby"}


def made(*operators: dict[str, Any], **spec: Any) -> StreamTopology:
    resource = from_object(document(source(), *operators, **spec))
    check(resource)
    for wrong in unbound(resource):
        raise wrong
    return resource


def test_it_is_said_who_has_standbys_and_the_output_stays_precise() -> None:
    resource = made(operator("a", "s", **ACTIVE), operator("b", "a", output={}))
    found = guarantees(resource, {o.name: make_operator(o).kind.deterministic for o in resource.operators})
    assert list(described(resource, found)) == [
        "operator a: active-standby, each of its 1 partitions has one on another node; a partition that is lost with its "
        "standby is restored from the checkpoint",
        "output b: precise",
    ]


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (
            {"checkpoint": {"protocol": "uncoordinated", "log": "memory"}},
            "not built for `checkpoint.protocol: uncoordinated`",
        ),
        ({"recovery": {"scope": "global"}}, "`recovery.scope: global` keeps none"),
        ({"recovery": {"scope": "ancestors"}}, "`recovery.scope: ancestors` keeps none"),
        ({"recovery": {"strategy": "blocking"}}, "`recovery.strategy: blocking` keeps none"),
        ({"recovery": {"strategy": "operator-centric"}}, "`recovery.strategy: operator-centric` keeps none"),
        ({"recovery": {"strategy": "best-case"}}, "not tried with `recovery.strategy: best-case`"),
        ({"recovery": {"mode": "recommend"}}, "a standby is promoted at once"),
        ({"nodes": {"count": 1}}, "needs another node"),
    ],
)
def test_where_it_was_not_tried_it_is_refused(spec: dict[str, Any], reason: str) -> None:
    for mode in (ACTIVE, PASSIVE):
        with pytest.raises(SpecError, match=reason) as refused:
            made(operator("a", "s", output={}, **mode), **spec)
        (wrong,) = refused.value.all
        assert wrong.field == "spec.operators[a].availability"
        assert mode["availability"] in str(wrong)


def test_states_in_pages_are_for_passive_ones_alone() -> None:
    paged = {"checkpoint": {"state": "paged"}}
    assert made(operator("a", "s", output={}, **PASSIVE), **paged).checkpoint.paged
    with pytest.raises(SpecError, match=r"not built for `checkpoint\.state: paged`"):
        made(operator("a", "s", output={}, **ACTIVE), **paged)


def test_a_passive_one_is_sent_something_as_often_as_it_is_said() -> None:
    for said, every in (({}, 10), ({"standby": {}}, 10), ({"standby": {"every": 3}}, 3)):
        resource = made(operator("a", "s", output={}, **PASSIVE, **said))
        assert passive_standbys(resource, expand(resource)) == {"a.0": every}
        found = guarantees(
            resource, {o.name: make_operator(o).kind.deterministic for o in resource.operators}
        )
        line, *_ = described(resource, found)
        assert line == (
            "operator a: passive-standby, each of its 1 partitions has one on another node, "
            f"sent what has changed every {every} batches; a partition that is lost with its standby is restored from the "
            "checkpoint"
        )
    resource = made(operator("a", "s", output={}, **ACTIVE))
    assert passive_standbys(resource, expand(resource)) == {}


@pytest.mark.parametrize("mode", [ACTIVE, PASSIVE])
def test_a_failure_domain_is_a_label_for_each_partition_of_the_operator(mode: dict[str, Any]) -> None:
    label = "topology.kubernetes.io/zone"
    resource = made(
        operator("a", "s", standby={"failureDomain": label}, **mode), operator("b", "a", output={}, **mode)
    )
    assert standby_domains(resource, expand(resource)) == {"a.0": label}
    with pytest.raises(SpecError) as refused:
        made(operator("a", "s", output={}, standby={"failureDomain": "two words"}, **mode))
    assert refused.value.field == "spec.operators[a].standby.failureDomain"


@pytest.mark.parametrize("mode", [ACTIVE, PASSIVE])
def test_where_an_operator_names_no_failure_domain_that_of_its_nodes_counts(mode: dict[str, Any]) -> None:
    nodes = {"nodes": {"failureDomain": "rack"}}
    named = operator("a", "s", standby={"failureDomain": "zone"}, **mode)
    resource = made(named, operator("b", "a", output={}, **mode), operator("c", "a", output={}), **nodes)
    topology = expand(resource)
    assert standby_domains(resource, topology) == {"a.0": "zone", "b.0": "rack"}
    assert topology.standbys == {"a": "zone", "b": "rack"}
    assert policy_of(resource, 1.0, 0.0).failure_domain == "rack"
    plain = made(operator("a", "s", output={}, **mode))
    assert policy_of(plain, 1.0, 0.0).failure_domain is None
    with pytest.raises(SpecError) as refused:
        made(operator("a", "s", output={}), nodes={"failureDomain": "two words"})
    assert refused.value.field == "spec.nodes.failureDomain"


@pytest.mark.parametrize(
    ("mode", "standby", "field", "reason"),
    [
        (ACTIVE, {"every": 3}, "standby.every", "an active standby steps every batch"),
        ({}, {"every": 3}, "standby", "no effect with `availability: checkpoint`"),
        (PASSIVE, {"every": 0}, "standby.every", "greater than or equal to 1"),
        (PASSIVE, {"each": 1}, "standby.each", "unknown|not permitted|Extra"),
    ],
)
def test_what_is_said_of_standbys_has_an_effect_or_is_refused(
    mode: dict[str, Any], standby: dict[str, Any], field: str, reason: str
) -> None:
    with pytest.raises(SpecError, match=reason) as refused:
        made(operator("a", "s", output={}, standby=standby, **mode))
    assert refused.value.field == f"spec.operators[a].{field}"


def test_each_operator_chooses_and_each_output_has_the_promise_of_what_it_reads() -> None:
    resource = made(
        operator("pays", "s", output={}, **ACTIVE),
        operator("adds", "s", **PASSIVE),
        operator("board", "s", availability="amnesia", output={}),
        operator("both", "adds", "board", output={}),
        operator("fed", "s", availability="upstream-backup", output={}),
        operator("usual", "adds", output={}),
    )
    found = guarantees(resource, {o.name: make_operator(o).kind.deterministic for o in resource.operators})
    said = {line for line in described(resource, found) if line.startswith("output ")}
    assert {line for line in said if "precise" in line} == {
        f"output {name}: precise" for name in ("pays", "fed", "usual")
    }
    assert {line.partition(":")[0] for line in said if "gap" in line} == {"output board", "output both"}


@pytest.mark.parametrize("mode", [ACTIVE, PASSIVE])
def test_the_output_may_go_to_any_sink(mode: dict[str, Any]) -> None:
    sink = {"class": "reprise.spark_jobs.kafka:KafkaSink", "with": {"topic": "t", "brokers": "h:1"}}
    assert made(operator("a", "s", output={"sink": sink}, **mode)).operators[0].has_standby


@pytest.mark.parametrize("mode", [ACTIVE, PASSIVE], ids=["active", "passive"])
@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_an_operator_in_a_cycle_may_have_standbys(name: str, mode: dict[str, Any]) -> None:
    operators = [
        operator("a", "s", {"from": "c", "feedback": True}),
        operator("b", "a", {"from": "b", "feedback": True}),
        operator("c", "b", output={}),
    ]
    resource = made(*(o | mode if o["name"] == name else o for o in operators))
    assert [o.name for o in resource.operators if o.has_standby] == [name]


def test_one_that_reads_itself_is_not_fed_again_as_what_it_gave_is_lost_with_it() -> None:
    window = operator("b", "a", {"from": "b", "feedback": True}, output={}, **WINDOW, **ACTIVE)
    assert fed(made(operator("a", "s", **WINDOW, **ACTIVE), window)) == {"a"}


def test_behind_or_beside_an_arbitrary_operator_it_is_refused() -> None:
    toss = {"class": "tests.support.coin:Toss", "deterministic": False}
    with pytest.raises(SpecError, match="'b' is arbitrary, so everything goes back at each failure"):
        made(operator("a", "s", **ACTIVE), operator("b", "a", output={}, **toss))
    with pytest.raises(SpecError, match="it could come to another state than its standby"):
        made(operator("a", "s", output={}, **toss, **ACTIVE))


WAYS = get_args(OperatorModel.model_fields["availability"].annotation)


@pytest.mark.parametrize("way", [way for way in WAYS if way != "checkpoint"])
def test_a_class_of_which_nothing_is_said_is_refused_as_the_operator_would_take_everything_back(
    way: str,
) -> None:
    """Which has none of the code, and must take each replay for another one: nothing would come back in its own way."""
    for where in ("b", "a"):  # beside it, and it itself
        mine = {"availability": way, **({"class": "tests.support.coin:Toss"} if where == "a" else {})}
        other = {} if where == "a" else {"class": "tests.support.coin:Toss"}
        resource = from_object(
            document(source(), operator("a", "s", **mine), operator("b", "a", output={}, **other))
        )
        with pytest.raises(SpecError) as refused:
            check(resource)
        assert [
            (e.field, f"told by `deterministic: true` that {where!r}" in e.reason) for e in refused.value.all
        ] == [("spec.operators[a].availability", True)]
        assert not view_of(resource, own_code=False).deterministic


def test_who_skips_by_command_asks_the_classes_and_is_there_to_approve_plans() -> None:
    own = operator("a", "s", **{"class": "tests.support.coin:Toss"})
    reader = operator("b", "a", output={})
    for recovery in ({}, {"mode": "recommend"}, {"scope": "ancestors"}, {"strategy": "best-case"}):
        resource = from_object(document(source(), own, reader, recovery=recovery))
        assert list(skip_fits(resource, {"b"})) == []
    whole = from_object(document(source(), own, reader, recovery={"scope": "global"}))
    assert [e.field for e in skip_fits(whole, {"b"})] == ["spec.operators[b].availability"]


def test_too_many_are_refused() -> None:
    with pytest.raises(
        SpecError, match="at most 200 partitions of a topology may have standbys; here are 201"
    ):
        made(operator("a", {"from": "s", "by": ["hashtags"]}, parallelism=201, output={}, **ACTIVE))


def test_where_not_all_fit_beside_their_partitions_there_is_a_warning() -> None:
    cpu = {"resources": {"cpu": "300m"}}
    spec = {"nodes": {"count": 2, "cpu": "500m"}}
    for parallelism, warned in ((1, []), (2, ["spec.nodes"])):
        reading = operator(
            "a", {"from": "s", "broadcast": True}, parallelism=parallelism, output={}, **cpu, **ACTIVE
        )
        found = check(from_object(document(source(), reading, **spec)))
        assert [warning.field for warning in found] == warned


COUNT = {
    "class": "reprise.spark_jobs.operators:RunningAggregate",
    "with": {"keys": ["k"], "aggregate": {"n": "count()"}},
}
WINDOW = {**COUNT, "with": {**COUNT["with"], "size": "2s", "interval": "1s"}}  # type: ignore[dict-item]


def fed(resource: StreamTopology) -> frozenset[str]:
    """Operators whose partitions are fed again where both copies are lost."""
    operators = {o.name: make_operator(o) for o in resource.operators}
    return with_an_oldest_input(operators, backed_beside_standbys(resource))


@pytest.mark.parametrize("mode", [ACTIVE, PASSIVE], ids=["active", "passive"])
def test_where_both_are_lost_those_are_fed_again_that_say_how_far_back_they_reach(
    mode: dict[str, Any],
) -> None:
    """Not a count without end, and not an operator whose lost partitions come from checkpoints anyway."""
    resource = made(
        operator("window", "s", **WINDOW, **mode),
        operator("count", "s", output={}, **COUNT, **mode),
        operator("map", "window", output={}),
    )
    assert fed(resource) == {"window"}
    lines = described(resource, {}, fed(resource))
    said = {line.partition(":")[0]: line.rpartition("; ")[2] for line in lines}
    assert said["operator window"] == (
        "a partition that is lost with its standby is fed again by what it reads, if that has kept enough, or restored "
        "from the checkpoint"
    )
    assert (
        said["operator count"] == "a partition that is lost with its standby is restored from the checkpoint"
    )


def test_nobody_is_fed_where_upstream_backup_is_not_built_or_for_more_than_may_have_it() -> None:
    paged = made(operator("a", "s", output={}, **WINDOW, **PASSIVE), checkpoint={"state": "paged"})
    assert fed(paged) == set()
    backed, reads = {"availability": "upstream-backup"}, {"from": "s", "by": ["hashtags"]}
    for count, found in ((MOST_BACKED - 3, {"a"}), (MOST_BACKED - 2, set[str]())):
        resource = made(
            operator("a", reads, parallelism=3, output={}, **WINDOW, **ACTIVE),
            operator("b", reads, parallelism=count, output={}, **WINDOW, **backed),
        )
        assert fed(resource) == found


def test_nobody_is_fed_where_a_replay_may_differ() -> None:
    window = make_operator(made(operator("a", "s", output={}, **WINDOW)).operators[0])
    toss = make_operator(
        made(operator("b", "s", output={}, **{"class": "tests.support.coin:Toss"})).operators[0]
    )
    assert with_an_oldest_input({"a": window}, {"a"}) == {"a"}
    assert with_an_oldest_input({"a": window, "b": toss}, {"a"}) == set()


TOSS = {"class": "tests.support.coin:Told", "deterministic": False}


def test_output_of_arbitrary_operators_waits_for_their_passive_standbys() -> None:
    resource = made(
        {**operator("told", "s", **PASSIVE, standby={"every": 3}), **TOSS}, operator("b", "told", output={})
    )
    alike = {o.name: make_operator(o).kind.deterministic for o in resource.operators}
    waits = waiting_for_standbys(resource, expand(resource), lambda spec: alike[spec.name])
    assert waits == {"told.0"}
    lines = list(described(resource, guarantees(resource, alike), waits={"told"}))
    assert "output waits until the standby has it, for up to 3 batches and two jobs" in lines[0]
    assert lines[1] == "output b: precise, by checkpoint (not deterministic: told)"


@pytest.mark.parametrize(
    ("told", "other", "field", "reason"),
    [
        ({}, PASSIVE, "other", "operator 'told' is arbitrary, so everything goes back"),
        (ACTIVE, {}, "told", "with 'passive-standby' its output would wait"),
        (
            PASSIVE,
            ACTIVE,
            "other",
            "'active-standby' was not tried beside operator 'told', which is arbitrary",
        ),
        (PASSIVE, {"availability": "upstream-backup"}, "other", "operator 'told' is arbitrary"),
        (PASSIVE, {"availability": "amnesia"}, "other", "operator 'told' is arbitrary"),
    ],
)
def test_beside_arbitrary_operators_only_what_was_tried(
    told: dict[str, Any], other: dict[str, Any], field: str, reason: str
) -> None:
    with pytest.raises(SpecError, match=reason) as refused:
        made({**operator("told", "s", **told), **TOSS}, operator("other", "told", output={}, **other))
    assert refused.value.field == f"spec.operators[{field}].availability"


@pytest.mark.parametrize("told", [PASSIVE, ACTIVE, {}], ids=["held", "itself", "bare"])
def test_an_active_one_beside_one_that_says_that_a_replay_may_differ_is_refused_without_its_classes(
    told: dict[str, Any],
) -> None:
    """Operator and driver read what an API server has taken, and neither asks the classes then: what the standby keeps of
    batches that its partition has not shown would be lost."""
    mine = {**operator("told", "s", **told), "class": "nobody.has:It", "deterministic": False}
    other = operator("other", "told", output={}, **ACTIVE)
    with pytest.raises(SpecError) as refused:
        check(from_object(document(source(), mine, other)))
    fields = ["told", "other"] if told is ACTIVE else ["other"]
    assert [e.field for e in refused.value.all] == [f"spec.operators[{n}].availability" for n in fields]
    assert all("'told'" in e.reason and "is arbitrary" in e.reason for e in refused.value.all)
    passive = {**other, **PASSIVE}
    check(from_object(document(source(), {**mine, "availability": "passive-standby"}, passive)))


def test_who_reads_a_file_is_told_once_why_it_is_refused() -> None:
    told = {**operator("told", "s", **PASSIVE), **TOSS}
    text = json.dumps(document(source(), told, operator("other", "told", output={}, **ACTIVE)))
    with pytest.raises(SpecError) as refused:
        load_text(text)
    (wrong,) = refused.value.all
    assert wrong.field == "spec.operators[other].availability"


def test_output_waits_only_where_all_of_which_a_replay_may_differ_have_one() -> None:
    spec = [{**operator("told", "s", **PASSIVE), **TOSS}, {**operator("bare", "told", output={}), **TOSS}]
    resource = from_object(document(source(), *spec))
    assert waiting_for_standbys(resource, expand(resource), lambda _: False) == frozenset()


@pytest.mark.parametrize("said", [{"deterministic": False}, {}])
def test_an_arbitrary_operator_in_a_cycle_would_wait_for_itself(said: dict[str, Any]) -> None:
    told = {**operator("told", "s", **PASSIVE), "class": "tests.support.coin:Told", **said}
    told["inputs"] = [*told["inputs"], {"from": "back", "feedback": True}]
    reader = {**operator("back", "told", output={}), "deterministic": True}
    reason = "not for one in a cycle" if said else "needs to be told by `deterministic: true`"
    with pytest.raises(SpecError, match=reason) as refused:
        made(told, reader)
    assert refused.value.field == "spec.operators[told].availability"
