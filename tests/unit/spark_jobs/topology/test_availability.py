"""Standbys are refused where they were not built or tried, with field and reason."""

from __future__ import annotations

from typing import Any

import pytest

from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.topology import StreamTopology, check, expand, from_object, make_operator
from reprise.spark_jobs.topology.availability import passive_standbys, standby_domains
from reprise.spark_jobs.topology.binding import unbound
from reprise.spark_jobs.topology.guarantees import described, guarantees
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
        "operator a: active-standby, each of its 1 partitions has one on another node",
        "output b: precise",
    ]


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (
            {"checkpoint": {"protocol": "uncoordinated", "log": "memory"}},
            "not built for `checkpoint.protocol: uncoordinated`",
        ),
        ({"spark": {"exchange": "continuous"}}, "not built for `spark.exchange: continuous`"),
        ({"spark": {"exchange": "auto"}}, "not built for `spark.exchange: auto`"),
        ({"recovery": {"scope": "global"}}, "`recovery.scope: global` keeps none"),
        ({"recovery": {"scope": "ancestors"}}, "`recovery.scope: ancestors` keeps none"),
        ({"recovery": {"strategy": "blocking"}}, "`recovery.strategy: blocking` keeps none"),
        ({"recovery": {"strategy": "operator-centric"}}, "`recovery.strategy: operator-centric` keeps none"),
        ({"recovery": {"mode": "recommend"}}, "a standby is promoted at once"),
        ({"nodes": {"count": 1}}, "needs another node"),
    ],
)
def test_where_it_was_not_tried_it_is_refused(spec: dict[str, Any], reason: str) -> None:
    for mode in (ACTIVE, PASSIVE):
        with pytest.raises(SpecError, match=reason) as refused:
            made(operator("a", "s", output={}, **mode), **spec)
        assert refused.value.field == "spec.operators[a].availability"
        assert mode["availability"] in str(refused.value)


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
            f"sent what has changed every {every} batches"
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


def test_beside_amnesia_and_with_other_sinks_it_is_refused() -> None:
    with pytest.raises(SpecError, match="not built beside `amnesia`, which operator 'b' has"):
        made(operator("a", "s", output={}, **ACTIVE), operator("b", "s", availability="amnesia", output={}))
    sink = {"class": "reprise.spark_jobs.kafka:KafkaSink", "with": {"topic": "t", "servers": "h:1"}}
    with pytest.raises(SpecError, match="not tried with a sink other than files"):
        made(operator("a", "s", output={"sink": sink}, **ACTIVE))


@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_on_a_cycle_it_is_refused(name: str) -> None:
    operators = [
        operator("a", "s", {"from": "c", "feedback": True}),
        operator("b", "a"),
        operator("c", "b", output={}),
    ]
    with pytest.raises(SpecError, match="'active-standby' was not tried on a cycle"):
        made(*(o | ACTIVE if o["name"] == name else o for o in operators))


def test_behind_or_beside_an_arbitrary_operator_it_is_refused() -> None:
    toss = {"class": "tests.support.coin:Toss", "deterministic": False}
    with pytest.raises(SpecError, match="'b' is arbitrary, so everything goes back at each failure"):
        made(operator("a", "s", **ACTIVE), operator("b", "a", output={}, **toss))
    with pytest.raises(SpecError, match="it could come to another state than its standby"):
        made(operator("a", "s", output={}, **toss, **ACTIVE))


def test_a_class_of_which_nothing_is_said_is_refused_as_the_operator_would_never_place_a_standby() -> None:
    said = {"class": "tests.support.coin:Toss"}
    with pytest.raises(SpecError, match="told by `deterministic: true` that 'b' is deterministic") as refused:
        made(operator("a", "s", **ACTIVE), operator("b", "a", output={}, **said))
    assert refused.value.field == "spec.operators[a].availability"


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
