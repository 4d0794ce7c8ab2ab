"""Plans made ahead: while a burst settles, the plan for what is known of it can be computed already.

If nothing more is lost, it is the plan that the end of settling asks for, and a failure that hits many topologies, or one
with a plan that takes a second, does not wait for it.  Decisions stay functions of the snapshot: a planner answers the
same instance in the same way, so it does not matter when it was asked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from algorithms import Instance, Plan, solve

Clock = Callable[[], float] | None


@dataclass(frozen=True, slots=True)
class Foreseen:
    """A plan, and what it is the answer to."""

    instance: Instance
    algorithm: str
    time_limit_s: float
    plan: Plan


@dataclass(slots=True)
class Planner:
    """`algorithms.solve` with a clock (monotonic seconds; None: plans count work instead), which does not ask twice."""

    clock: Clock = None
    known: Foreseen | None = None
    """The last answer: made ahead, or by this planner."""

    def plan(self, instance: Instance, algorithm: str, time_limit_s: float) -> Plan:
        """Raises what `algorithms.solve` raises."""
        known = self.known
        if known and (known.instance, known.algorithm, known.time_limit_s) == (
            instance,
            algorithm,
            time_limit_s,
        ):
            return known.plan
        plan = solve(instance, algorithm, time_limit_s, self.clock)
        self.known = Foreseen(instance, algorithm, time_limit_s, plan)
        return plan
