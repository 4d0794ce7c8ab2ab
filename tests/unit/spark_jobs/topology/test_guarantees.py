"""What a failure may do to each output, and where skipping batches is refused, with field and reason."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reprise.controller.topology_view import promises_of, with_promises
from reprise.spark_jobs.engine.local_lines import _changing
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.node.installing import replayable
from reprise.spark_jobs.topology import (
    StreamTopology,
    check,
    expand,
    from_object,
    is_deterministic,
    load_text,
    make_operator,
)
from reprise.spark_jobs.topology.binding import unbound
from reprise.spark_jobs.topology.guarantees import described, guarantees, last_marked
from reprise.spark_jobs.topology.promise import Guarantee, Promise
from tests.support.topologies import document, operator, source

LIBRARY = "reprise.spark_jobs.operators"
WINDOW = {"keys": [], "aggregate": {"n": "count()"}, "size": "1s", "interval": "250ms"}


def made(*operators: dict[str, Any], **spec: Any) -> StreamTopology:
    return from_object(document(source(), *operators, **spec))


def of(name: str, upstream: str, kind: str = "Sink", **more: Any) -> dict[str, Any]:
    return operator(name, upstream, **{"class": f"{LIBRARY}:{kind}", **more})


def required(*operators: dict[str, Any], **spec: Any) -> None:
    resource = made(*operators, **spec)
    check(resource)
    for wrong in unbound(resource):
        raise wrong


def kinds(resource: StreamTopology) -> dict[str, bool | None]:
    return {o.name: make_operator(o).kind.deterministic for o in resource.operators}


def found(resource: StreamTopology) -> dict[str, Promise]:
    return guarantees(resource, kinds(resource))


def test_the_weakest_of_all_that_is_upstream_decides() -> None:
    resource = made(
        of("a", "s", availability="amnesia"),
        of("b", "a", output={}),
        of("c", "s", output={}),
        operator("d", "s", output={}, **{"class": "tests.support.coin:Toss"}),
        of("e", "d", output={}),
    )
    assert found(resource) == {
        "b": Promise(Guarantee.GAP, ("a",)),
        "c": Promise(Guarantee.PRECISE),
        "d": Promise(Guarantee.PRECISE_BY_CHECKPOINT, ("d",)),
        "e": Promise(Guarantee.PRECISE_BY_CHECKPOINT, ("d",)),
    }
    assert list(described(resource, found(resource))) == [
        "output b: gap (amnesia of a)",
        "output c: precise",
        "output d: precise, by checkpoint (not deterministic: d)",
        "output e: precise, by checkpoint (not deterministic: d)",
    ]


def test_what_is_not_known_is_no_promise_and_no_denial() -> None:
    resource = made(of("a", "s"), of("b", "a", output={}), of("c", "s", output={}))
    promised = guarantees(resource, {**kinds(resource), "a": None})
    assert promised == {"b": Promise(None, ("a",)), "c": Promise(Guarantee.PRECISE)}
    assert str(promised["b"]) == "precise, perhaps by checkpoint (no word whether they are deterministic: a)"
    assert guarantees(resource, {**kinds(resource), "a": None, "b": False})["b"] == Promise(
        Guarantee.PRECISE_BY_CHECKPOINT, ("b",)
    ), "what is known to be less stands, whatever is not known"


def test_those_who_import_no_code_say_as_much_as_the_resource_and_the_library() -> None:
    own = "tests.support.coin:Toss"
    resource = made(
        of("a", "s", output={}),
        operator("b", "s", output={}, **{"class": own}),
        operator("c", "s", output={}, deterministic=True, **{"class": own}),
        operator("d", "s", output={}, deterministic=False, **{"class": own}),
    )
    promised = promises_of(resource)
    assert promised == {
        "a": Promise(Guarantee.PRECISE),
        "b": Promise(None, ("b",)),
        "c": Promise(Guarantee.PRECISE),
        "d": Promise(Guarantee.PRECISE_BY_CHECKPOINT, ("d",)),
    }
    assert with_promises(resource).promises == promised
    silent = found(resource)
    assert silent["b"] == Promise(Guarantee.PRECISE_BY_CHECKPOINT, ("b",)), "its class says so"
    assert {n: p for n, p in silent.items() if n != "b"} == {n: p for n, p in promised.items() if n != "b"}


def test_the_order_of_arrival_limits_all_outputs_alike() -> None:
    promised = found(made(of("a", "s", output={}), batch={"interval": "1s", "order": "arrival"}))
    assert promised == {"a": Promise(Guarantee.PRECISE_BY_CHECKPOINT)}
    assert str(promised["a"]) == "precise, by checkpoint (batch.order: arrival)"


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"recovery": {"scope": "global"}}, "with `recovery.scope: global` everything goes back"),
        ({"recovery": {"strategy": "blocking"}}, "with `recovery.strategy: blocking` everything goes back"),
        ({"recovery": {"strategy": "operator-centric"}}, "with `recovery.strategy: operator-centric`"),
        ({"recovery": {"strategy": "best-case"}}, "not tried with `recovery.strategy: best-case`"),
        ({"recovery": {"mode": "recommend"}}, "what waits for a plan would wait for a person"),
        ({"recovery": {"scope": "ancestors"}}, "not built for `recovery.scope: ancestors`"),
        (
            {"checkpoint": {"protocol": "uncoordinated", "log": "memory"}},
            "not built for `checkpoint.protocol: uncoordinated`",
        ),
        (
            {"checkpoint": {"protocol": "communication-induced", "log": "checkpointed"}},
            "not built for `checkpoint.protocol: communication-induced`",
        ),
        ({"checkpoint": {"state": "paged"}}, "not built for `checkpoint.state: paged`"),
    ],
)
def test_where_nothing_would_ever_be_skipped_or_it_is_not_built_it_is_refused(
    spec: dict[str, Any], reason: str
) -> None:
    with pytest.raises(SpecError, match=rf"spec.operators\[a\].availability.*{reason}"):
        required(of("a", "s", output={}, availability="amnesia"), **spec)


def test_before_a_cycle_it_is_refused() -> None:
    again = {"from": "c", "feedback": True}
    with pytest.raises(SpecError, match="'b' reads 'c' over a feedback edge, so a gap would never end"):
        required(
            of("a", "s", availability="amnesia"),
            {**of("b", "a"), "inputs": [{"from": "a"}, again]},
            of("c", "b", output={}),
        )


@pytest.mark.parametrize(
    ("reader", "reason"),
    [
        (
            of("b", "a", "KeyedCount", **{"with": {"keys": ["k"]}}),
            "operator 'b', which reads it, is deterministic",
        ),
        (
            of("b", "a", "RunningAggregate", **{"with": {"keys": [], "aggregate": {"n": "count()"}}}),
            "operator 'b'",
        ),
        (
            operator("b", "a", deterministic=False, **{"class": "tests.support.coin:Toss"}),
            "operator 'b' is arbitrary",
        ),
    ],
)
def test_behind_it_are_only_operators_that_forget(reader: dict[str, Any], reason: str) -> None:
    with pytest.raises(SpecError, match=rf"spec.operators\[a\].availability.*{reason}"):
        required(of("a", "s", availability="amnesia"), {**reader, "output": {}})
    required(
        of("a", "s", availability="amnesia"), of("b", "a", "RunningAggregate", output={}, **{"with": WINDOW})
    )


def test_an_operator_that_remembers_everything_is_refused_itself() -> None:
    with pytest.raises(SpecError, match="it is deterministic, so all later output could differ"):
        required(of("a", "s", "Latest", output={}, availability="amnesia", **{"with": {"keys": ["k"]}}))


def test_an_output_that_cannot_be_marked_is_refused() -> None:
    sink = {"sink": {"class": "tests.support.scripted:Shown"}}
    with pytest.raises(SpecError, match="the sink Shown of 'b' does not"):
        required(of("a", "s", availability="amnesia"), of("b", "a", output=sink))


def test_kafka_needs_a_topic_for_the_marks() -> None:
    def kafka(**more: str) -> dict[str, Any]:
        parameters = {"brokers": "127.0.0.1:1", "topic": "t", **more}
        return of("b", "a", output={"sink": {"class": "reprise.kafka:KafkaSink", "with": parameters}})

    reason = r"the sink KafkaSink of 'b' does not: it needs `gaps`, the name of a topic"
    with pytest.raises(SpecError, match=rf"spec.operators\[a\].availability.*{reason}"):
        required(of("a", "s", availability="amnesia"), kafka())
    required(of("a", "s", availability="amnesia"), kafka(gaps="gaps"))


def test_what_lacks_rows_does_so_until_the_last_window_that_held_some_is_over() -> None:
    resource = made(
        of("a", "s", availability="amnesia"),
        of("b", "a", "RunningAggregate", **{"with": WINDOW}),  # 1-4, 5-8, ...
        of("c", "b", output={}),
        of(
            "d", "b", "RunningAggregate", output={}, **{"with": WINDOW | {"interval": "100ms"}}
        ),  # 1-10, 11-20, ...
        of("e", "s", output={}),
    )
    operators = {o.name: make_operator(o) for o in resource.operators}
    assert last_marked(resource, operators, "a", 6) == {"a": 6, "b": 8, "c": 8, "d": 10}
    assert last_marked(resource, operators, "b", 8) == {"b": 8, "c": 8, "d": 10}


CHAIN = """
apiVersion: reprise.dev/v1alpha1
kind: StreamTopology
metadata: {name: chain}
spec:
  batch: {interval: 100ms}
  sources: [{name: in, class: "tests.support.scripted:Numbers"}]
  operators:
    - {name: first, class: "tests.support.scripted:Passing", inputs: [{from: in}]}
    - {name: last, class: "reprise.spark_jobs.operators:Sink", inputs: [{from: first}], output: {}}
    - {name: other, class: "reprise.spark_jobs.operators:Sink", inputs: [{from: in}], output: {}}
"""


@pytest.mark.parametrize("change", [{"class_path": "nowhere:Nothing"}, {"deterministic": False}])
def test_who_says_so_and_who_cannot_be_asked_may_differ_in_a_replay_everywhere_alike(
    change: dict[str, Any],
) -> None:
    resource = load_text(CHAIN)
    topology = expand(resource)
    assert all(map(is_deterministic, resource.operators))
    assert replayable("last.0", resource, topology)
    first, *others = resource.operators
    changed = replace(resource, operators=(replace(first, **change), *others))
    assert [is_deterministic(o) for o in changed.operators] == [False, True, True]
    assert not replayable("last.0", changed, topology), (
        "its output is shown with the checkpoint that covers it"
    )
    assert replayable("other.0", changed, topology)
    assert _changing(changed) == {"first", "last"}
