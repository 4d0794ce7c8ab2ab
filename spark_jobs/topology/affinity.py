"""The wire form of which Kubernetes nodes pods go to: node affinities and spreads, with Kubernetes' own names and meaning.

What counts here is that nothing is mistyped: an API server refuses a pod with a wrong affinity, and that of an executor only
when Spark asks for it, in the middle of a recovery.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from reprise.spark_jobs.topology.labels import LabelKey, LabelValue
from reprise.spark_jobs.topology.scalars import Closed, given_twice

_COUNTED = {"Exists": 0, "DoesNotExist": 0, "Gt": 1, "Lt": 1}
"""How many values operators take; those that are not here take some."""


class NodeRequirementModel(Closed):
    key: LabelKey
    """Key of the label."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    """How the label is compared."""
    values: list[LabelValue] = Field(default_factory=list, max_length=32)
    """What it is compared with: nothing for `Exists` and `DoesNotExist`, one number for `Gt` and `Lt`."""

    @model_validator(mode="after")
    def _values_fit(self) -> Self:
        wanted = _COUNTED.get(self.operator)
        if (not self.values) if wanted is None else (len(self.values) != wanted):
            reason = (
                "give some `values` for In and NotIn, one for Gt and Lt, and none for Exists and DoesNotExist"
            )
            raise PydanticCustomError("values", reason)
        if self.operator in ("Gt", "Lt") and not re.fullmatch("[0-9]+", self.values[0]):
            raise PydanticCustomError("values", "Gt and Lt compare with a whole number")
        return self


class NodeTermModel(Closed):
    match_expressions: list[NodeRequirementModel] = Field(min_length=1, max_length=16)
    """What the labels of the Kubernetes node must be; all of it."""


class NodeTermsModel(Closed):
    node_selector_terms: list[NodeTermModel] = Field(min_length=1, max_length=16)
    """One of these must be true of the Kubernetes node."""


class NodePreferenceModel(Closed):
    weight: Annotated[int, Field(ge=1, le=100, strict=True)]
    """How much it counts beside the others."""
    preference: NodeTermModel
    """What a Kubernetes node is preferred for."""


class NodeAffinityModel(Closed):
    required_during_scheduling_ignored_during_execution: NodeTermsModel | None = None
    """Kubernetes nodes without it are not taken."""
    preferred_during_scheduling_ignored_during_execution: list[NodePreferenceModel] = Field(
        default_factory=list, max_length=16
    )
    """Kubernetes nodes with it are taken first."""


class AffinityModel(Closed):
    not_taken: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("podAffinity", "podAntiAffinity"),
        "how the pods of a topology stand to each other is said by `spread` and `topologySpreadConstraints` of executors",
    )

    node_affinity: NodeAffinityModel
    """By labels of the Kubernetes nodes."""


class TopologySpreadModel(Closed):
    not_taken: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("labelSelector", "matchLabelKeys"), "the executors of this topology are counted"
    )

    topology_key: LabelKey
    """Label of Kubernetes nodes, such as `topology.kubernetes.io/zone`: those with the same value count as one place."""
    max_skew: Annotated[int, Field(ge=1, le=10_000, strict=True)] = 1
    """How many more executors of the topology one place may have than another."""
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"] = "ScheduleAnyway"
    """Whether an executor waits that would break it."""


def _each_once(constraints: list[TopologySpreadModel]) -> list[TopologySpreadModel]:
    if twice := given_twice((one.topology_key, one.when_unsatisfiable) for one in constraints):
        raise ValueError(f"{twice[0]!r} is given twice with one `whenUnsatisfiable`")
    return constraints


TopologySpreads = Annotated[list[TopologySpreadModel], AfterValidator(_each_once)]
"""An API server refuses two that differ in their skew alone."""
