"""Upstream backup is refused where it was not built or tried, with field and reason."""

from __future__ import annotations

from typing import Any

import pytest

from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.operators import RunningAggregate
from reprise.spark_jobs.topology import check, from_object, make_operator
from reprise.spark_jobs.topology.guarantees import described, guarantees
from tests.support.topologies import document, operator, source
from tests.unit.spark_jobs.topology.test_availability import made

BACKED = {"availability": "upstream-backup"}
COUNT = {
    "class": "reprise.spark_jobs.operators:RunningAggregate",
    "with": {"keys": ["k"], "aggregate": {"n": "count()"}},
}
WINDOW = {**COUNT, "with": {**COUNT["with"], "size": "2s", "interval": "1s"}}  # type: ignore[dict-item]


def test_it_is_said_how_a_lost_partition_comes_back_and_what_is_behind_it() -> None:
    resource = made(operator("a", "s", output={}, **WINDOW, **BACKED))
    found = guarantees(resource, {o.name: make_operator(o).kind.deterministic for o in resource.operators})
    assert list(described(resource, found)) == [
        "operator a: upstream-backup, a lost partition is fed again by what it reads; where two in a row are lost, or what "
        "is kept did not fit, it comes from the checkpoint",
        "output a: precise",
    ]


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (
            {"checkpoint": {"protocol": "uncoordinated", "log": "memory"}},
            "not built for `checkpoint.protocol: uncoordinated`",
        ),
        ({"checkpoint": {"state": "paged"}}, "not built for `checkpoint.state: paged`"),
        ({"recovery": {"scope": "global"}}, "`recovery.scope: global` keeps none"),
        ({"recovery": {"scope": "ancestors"}}, "`recovery.scope: ancestors` keeps none"),
        ({"recovery": {"strategy": "blocking"}}, "`recovery.strategy: blocking` keeps none"),
        ({"recovery": {"strategy": "best-case"}}, "not tried with `recovery.strategy: best-case`"),
        ({"recovery": {"mode": "recommend"}}, "what waits for a plan would wait for a person"),
    ],
)
def test_where_it_was_not_tried_it_is_refused(spec: dict[str, Any], reason: str) -> None:
    with pytest.raises(SpecError, match=reason) as refused:
        made(operator("a", "s", output={}, **BACKED), **spec)
    assert refused.value.field == "spec.operators[a].availability"


def test_an_operator_that_depends_on_all_its_input_is_refused() -> None:
    with pytest.raises(SpecError, match="depend on all input before: this one is deterministic") as refused:
        made(operator("a", "s", output={}, **COUNT, **BACKED))
    assert refused.value.field == "spec.operators[a].availability"
    assert made(operator("a", "s", **BACKED), operator("b", "a", output={}, **COUNT))


@pytest.mark.parametrize("mode", ["upstream-backup", "amnesia"])
def test_code_that_raises_when_it_is_asked_is_refused_with_its_field(
    monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    def raises(self: RunningAggregate, batch: int) -> int:
        raise RuntimeError("no idea")

    monkeypatch.setattr(RunningAggregate, "oldest_needed", raises)
    with pytest.raises(SpecError, match=r"RunningAggregate.oldest_needed\(1\)` raises .*no idea") as refused:
        made(operator("a", "s", output={}, **WINDOW, availability=mode))
    assert refused.value.field == "spec.operators[a].availability"


def test_the_output_may_go_to_any_sink() -> None:
    sink = {"class": "reprise.spark_jobs.kafka:KafkaSink", "with": {"topic": "t", "brokers": "h:1"}}
    assert made(operator("a", "s", output={"sink": sink}, **BACKED)).operators[0].backed_upstream


@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_in_a_cycle_an_operator_is_fed_again_by_the_others(name: str) -> None:
    operators = [
        operator("a", "s", {"from": "c", "feedback": True}),
        operator("b", "a"),
        operator("c", "b", output={}),
    ]
    resource = made(*(o | BACKED if o["name"] == name else o for o in operators))
    assert [o.name for o in resource.operators if o.backed_upstream] == [name]


def test_one_that_reads_itself_is_refused_as_what_it_gave_is_lost_with_it() -> None:
    with pytest.raises(SpecError, match="it reads its own output, and what a lost partition") as refused:
        made(operator("a", "s", {"from": "a", "feedback": True}, output={}, **BACKED))
    assert refused.value.field == "spec.operators[a].availability"


def test_beside_an_arbitrary_operator_it_is_refused() -> None:
    toss = {"class": "tests.support.coin:Toss"}
    with pytest.raises(SpecError, match="'b' is arbitrary, so everything goes back at each failure"):
        made(operator("a", "s", **BACKED), operator("b", "a", output={}, **toss, deterministic=False))
    with pytest.raises(SpecError, match="told by `deterministic: true` that 'b' is deterministic"):
        check(
            from_object(
                document(source(), operator("a", "s", **BACKED), operator("b", "a", output={}, **toss))
            )
        )


def test_too_many_are_refused_as_each_node_is_told_of_all_with_each_job() -> None:
    reads = {"from": "s", "by": ["hashtags"]}
    assert made(operator("a", reads, parallelism=200, output={}, **BACKED))
    with pytest.raises(
        SpecError, match=r"at most 200 partitions .* upstream backup; here are 201"
    ) as refused:
        made(operator("a", reads, parallelism=200, **BACKED), operator("b", "a", output={}, **BACKED))
    assert refused.value.field == "spec.operators"
