"""The protocols that a topology could have: what would be refused is said with its field, and what runs is as it is."""

from __future__ import annotations

import pytest

from reprise.controller.analysis import protocols
from reprise.controller.analysis.protocols import VARIANTS, Variant, variants
from reprise.controller.zookeeper.observation import Observation
from reprise.scheduler.model import Progress
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.topology import StreamTopology, load_text, override
from tests.unit.spark_jobs.engine.test_eventual import WINDOWS

SEEN = Observation(1.0, True, progress=Progress("1"))
OWN = {"checkpoint.protocol": "uncoordinated", "checkpoint.log": "memory"}


@pytest.fixture(scope="module")
def resource() -> StreamTopology:
    return load_text(WINDOWS)


def by_name(resource: StreamTopology, seen: Observation = SEEN) -> dict[tuple[str, str], Variant]:
    return {(one.protocol, one.log): one for one in variants(resource, seen)}


def test_each_protocol_is_there_once_and_the_current_one_as_it_is(resource: StreamTopology) -> None:
    assert tuple(by_name(resource)) == VARIANTS
    for changes in ({}, OWN):
        now = override(resource, changes)
        (current,) = [one for one in variants(now, SEEN) if one.current]
        assert current.resource is now
        assert (current.protocol, current.log) == (now.checkpoint.protocol, now.checkpoint.log)


def test_another_one_changes_nothing_but_protocol_and_log(resource: StreamTopology) -> None:
    found = by_name(resource)["uncoordinated", "memory"]
    assert found.resource == override(resource, OWN)
    assert found.refused == ()


def test_the_pace_of_eventual_goes_with_it(resource: StreamTopology) -> None:
    eventual = override(
        resource,
        {
            "checkpoint.protocol": "eventual",
            "checkpoint.log": "checkpointed",
            "checkpoint.eventual": {"spend": "1s"},
        },
    )
    for name, one in by_name(eventual).items():
        assert one.resource is not None, (name, one.refused)
        assert (one.resource.checkpoint.eventual_pace is not None) == (name[0] == "eventual")


def test_what_runs_is_shown_though_this_version_would_refuse_it(
    resource: StreamTopology, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_: object) -> None:
        raise SpecError("spec", "not any more")

    monkeypatch.setattr(protocols, "check", refused)
    assert by_name(resource)["coordinated", "none"].warnings == ()
