"""Base class and shared parts of what the controller writes into the API server.

Everything has a longest length: the status of a large topology must not grow with it, and the API server must be able
to bound the cost of a rule.  Where a list is cut, a count beside it says how long it was.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

MAX_LISTED = 50
"""Of anything that grows with a topology or a cluster: the first so many, the most valuable or newest first."""
MAX_REASON = 512
"""Characters of a reason; longer ones are cut."""

Time = Annotated[str, Field(max_length=32, json_schema_extra={"format": "date-time"})]
"""RFC 3339 with microseconds, UTC."""
Label = Annotated[str, Field(max_length=253)]
"""A name: of a query, a node, a plan."""
ObjectName = Annotated[str, Field(max_length=253)]
Reason = Annotated[str, Field(max_length=MAX_REASON)]
LARGEST = 2**53
"""Largest integer that every JSON reader has exactly."""
Count = Annotated[int, Field(ge=0, le=LARGEST)]
Summary = Annotated[str, Field(max_length=32)]
"""`available/total`, for a column."""


class Written(BaseModel):
    """Base of what the controller writes: camelCase, nothing unknown."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        alias_generator=to_camel,
        populate_by_name=True,
        use_attribute_docstrings=True,
    )


class Condition(Written):
    """A condition with the fields of `metav1.Condition`."""

    type: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Z][A-Za-z]*$")]
    """What is claimed."""
    status: Literal["True", "False", "Unknown"]
    """Whether it holds; Unknown when nobody can say, which is not False."""
    reason: Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Z][A-Za-z0-9]*$")]
    """One word for programs."""
    message: Annotated[str, Field(max_length=1024)] = ""
    """One sentence for people."""
    last_transition_time: Time
    """When `status` last changed."""
    observed_generation: Annotated[int, Field(ge=0)] | None = None
    """The generation of the object that this is said of."""


Priority = Annotated[int, Field(ge=1, le=10)]
Conditions = Annotated[
    list[Condition],
    Field(
        max_length=16,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    ),
]


class TopologyReference(Written):
    name: Annotated[str, Field(min_length=1, max_length=40)]
    """Name of the StreamTopology, in the same namespace."""
    uid: Annotated[str, Field(max_length=64)] | None = None
    """Its uid, so that a topology of the same name made later is not taken for it."""


class WaitingQuery(Written):
    query: Label
    """Id of its output partition."""
    priority: Priority
    """1 to 10."""
    reason: Reason
    """Why it waits, or what is being done."""
