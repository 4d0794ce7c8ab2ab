"""What a metric is, as data: collectors, the reference page and the tests are all made from such values.

Invariant: a value of a metric that is not in the catalogue, or with a label that the catalogue does not allow, cannot be
served (`reprise.controller.observability.metrics.collect`), so the page and the endpoint cannot drift apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

PREFIX = "reprise_"


class Kind(StrEnum):
    """Those of Prometheus' types that are used."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


class Place(StrEnum):
    """Which process serves a metric."""

    CONTROLLER = "controller"
    """The operator, and `reprise run` for its one topology."""
    DRIVER = "driver"


@dataclass(frozen=True, slots=True)
class Label:
    """`values`: all that it can have; empty for one that is bounded in another way, which `bound` says."""

    name: str
    values: tuple[str, ...] = ()
    bound: str = ""

    def allows(self, value: str) -> bool:
        return not self.values or value in self.values


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric family; `unit` is a base unit, empty for a plain number."""

    name: str
    kind: Kind
    unit: str
    help: str
    labels: tuple[Label, ...] = ()
    places: tuple[Place, ...] = (Place.CONTROLLER,)
    buckets: tuple[float, ...] = ()
    """Upper bounds of a histogram's buckets, without infinity."""

    @property
    def label_names(self) -> tuple[str, ...]:
        return tuple(label.name for label in self.labels)

    @property
    def series(self) -> tuple[str, ...]:
        """Names as a query writes them."""
        if self.kind is Kind.HISTOGRAM:
            return tuple(f"{self.name}_{part}" for part in ("bucket", "sum", "count"))
        return (self.name,)


@dataclass(frozen=True, slots=True)
class Sample:
    """One value at one moment; `labels` has the names that the metric declares."""

    metric: str
    labels: Mapping[str, str] = field(default_factory=dict)
    value: float = 0.0
    observations: tuple[float, ...] = ()
    """Of a histogram: everything that was ever observed, in any order."""
