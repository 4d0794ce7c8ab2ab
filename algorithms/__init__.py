"""Recovery planning: which failed partitions to restore now, where, and which queries that brings back.

The law of this package: instances in, plans out. No clock (time limits come with an injected one), no I/O,
nothing but the standard library, numpy, numba (whose cache of compiled kernels is its own) and the solver.
"""

from algorithms.errors import InstanceError, PlanFormatError, PlanningError, TooLarge, UnknownAlgorithm
from algorithms.model import (
    Choice,
    Exclusion,
    FailedQuery,
    Instance,
    NodeCapacity,
    PartitionCost,
    Plan,
)
from algorithms.parse import loads_instance, parse_instance, validate
from algorithms.plan_json import plan_from_json, plan_to_json
from algorithms.plan_table import plan_table
from algorithms.solve import ALGORITHMS, solve
from algorithms.strict import solve_strict
from algorithms.union_set import UnionSet

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
