"""What settings of sources and sinks give up is said with the promise of each output that depends on them."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, ClassVar

import pytest

from reprise import kafka, sources
from reprise.controller.topology_view import promises_of, with_promises
from reprise.spark_jobs.contract import Source
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.sinks import Sink
from reprise.spark_jobs.topology import StreamTopology, from_object
from reprise.spark_jobs.topology.given_up import given_up
from reprise.spark_jobs.topology.guarantees import described, guarantees
from reprise.spark_jobs.topology.promise import Guarantee, Promise
from tests.support.topologies import document, operator, source

CONNECTORS = [
    cls
    for module in (kafka, sources)
    for cls in (getattr(module, name) for name in module.__all__)
    if isinstance(cls, type) and issubclass(cls, Source | Sink)
]
LEFT_OUT = "on_offsets_lost: earliest of {}, messages that Kafka has removed are left out"
UNREAD = "on_bad_record: skip of {}, messages that cannot be read are left out"
TWICE = "on_marker_lost: continue of {}, batches behind the checkpoint may be written twice"


def reads(name: str, **given: Any) -> dict[str, Any]:
    parameters = {"brokers": "h:1", "topics": ["t"], "columns": {"v": "int64"}, **given}
    return source(name, **{"class": "reprise.kafka:KafkaSource", "with": parameters})


def writes(**given: Any) -> dict[str, Any]:
    return {"sink": {"class": "reprise.kafka:KafkaSink", "with": {"brokers": "h:1", "topic": "o", **given}}}


def made() -> StreamTopology:
    return from_object(
        document(
            reads("in", on_offsets_lost="earliest"),
            reads("other", on_bad_record="skip", on_offsets_lost="earliest"),
            reads("clean", on_bad_record="fail"),
            operator("a", "in", output=writes(on_marker_lost="continue")),
            operator("b", "a", output={}),
            operator("c", "other", output={}),
            operator("d", "b", "other", availability="amnesia", output=writes(gaps="g")),
            operator("e", "clean", output=writes()),
        )
    )


def test_each_output_says_what_is_given_up_at_its_sources_and_its_own_sink() -> None:
    both = (LEFT_OUT.format("other"), UNREAD.format("other"))
    promised = promises_of(made())
    assert promised == {
        "a": Promise(Guarantee.PRECISE, given_up=(LEFT_OUT.format("in"), TWICE.format("a"))),
        "b": Promise(Guarantee.PRECISE, given_up=(LEFT_OUT.format("in"),)),
        "c": Promise(Guarantee.PRECISE, given_up=both),
        "d": Promise(Guarantee.GAP, ("d",), given_up=(LEFT_OUT.format("in"), *both)),
        "e": Promise(Guarantee.PRECISE),
    }
    assert with_promises(made()).promises == promised
    assert [name for name, promise in promised.items() if promise.whole] == ["e"]
    lines = list(described(made(), promised))
    assert f"output b: precise ({LEFT_OUT.format('in')})" in lines
    assert f"output d: gap (amnesia of d; {LEFT_OUT.format('in')}; {both[0]}; {both[1]})" in lines


class Lossy(Source):
    """A class of one's own."""

    gives_up: ClassVar = {"at": {"once": "half of it"}}

    def __init__(self, at: str = "once") -> None:
        self.at = at


def test_a_class_of_ones_own_is_asked_where_its_code_may_be_imported() -> None:
    """Its defaults count, too."""
    for given, said in (({}, ("at: once of s, half of it",)), ({"at": "twice"}, ())):
        lossy = source("s", **{"class": f"{__name__}:Lossy", "with": given})
        resource = from_object(document(lossy, operator("a", "s", output={})))
        assert given_up(resource, own_code=True).get("s", ()) == said
        assert given_up(resource, own_code=False) == {}
        assert guarantees(resource, {"a": True}, given_up(resource, own_code=True))["a"].given_up == said


@pytest.mark.parametrize("cls", CONNECTORS)
def test_what_connectors_can_be_told_to_do_instead_of_failing_is_declared_and_listed(cls: Any) -> None:
    """Every parameter `on_...` fails by default, and takes no other value than those that say what they give up."""
    parameters = inspect.signature(cls).parameters
    choices = {name for name in parameters if name.startswith("on_")}
    assert cls.gives_up.keys() == choices
    assert {parameters[name].default for name in choices} <= {"fail"}
    topics = {"topics": ["t"], "columns": {"v": "int64"}} if issubclass(cls, Source) else {"topic": "t"}
    given = {"brokers": "h:1", **topics}
    page = Path("docs/recovery.md").read_text()
    for name, values in cls.gives_up.items():
        with pytest.raises(SpecError, match="is not one of its values"):
            cls(**given, **{name: "something else"})
        for value in values:
            letters = {"dead_letters": "d"} if value == "dead-letter" else {}
            cls(**given, **{name: value}, **letters)
            assert f"`{name}: {value}`" in page


def test_the_connectors_that_have_such_settings_are_among_them() -> None:
    assert {cls.__name__ for cls in CONNECTORS if cls.gives_up} == {"KafkaSource", "KafkaSink"}
