"""Recovery planning: which failed partitions to restore now, where, and which queries that brings back.

The law of this package: instances in, plans out. No clock (time limits come with an injected one), no I/O,
nothing but the standard library, numpy, numba (whose cache of compiled kernels is its own) and the solver.

What plans is imported with its first use.  It brings numpy, PuLP and HiGHS, and who needs the model alone starts often and
in a hurry: each partition host of a recovery.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from reprise.algorithms.errors import (
    InstanceError,
    PlanFormatError,
    PlanningError,
    TooLarge,
    UnknownAlgorithm,
)
from reprise.algorithms.model import (
    Choice,
    Exclusion,
    FailedQuery,
    Instance,
    NodeCapacity,
    PartitionCost,
    Plan,
)
from reprise.algorithms.parse import loads_instance, parse_instance, validate
from reprise.algorithms.plan_json import plan_from_json, plan_to_json
from reprise.algorithms.plan_table import plan_table
from reprise.algorithms.union_set import UnionSet

if TYPE_CHECKING:
    from reprise.algorithms.registry import ALGORITHMS, solve
    from reprise.algorithms.strict import solve_strict

__all__ = [
    "ALGORITHMS",
    "Choice",
    "Exclusion",
    "FailedQuery",
    "Instance",
    "InstanceError",
    "NodeCapacity",
    "PartitionCost",
    "Plan",
    "PlanFormatError",
    "PlanningError",
    "TooLarge",
    "UnionSet",
    "UnknownAlgorithm",
    "loads_instance",
    "parse_instance",
    "plan_from_json",
    "plan_table",
    "plan_to_json",
    "solve",
    "solve_strict",
    "validate",
]

_HOMES = {"ALGORITHMS": "registry", "solve": "registry", "solve_strict": "strict"}
"""Modules of the names that are imported with their first use."""

if not TYPE_CHECKING:  # a type checker would take any name to be here

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        return value
