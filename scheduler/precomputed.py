"""Plans made ahead: while a burst settles, the plan for what is known of it can be computed already.

If nothing more is lost, it is the plan that the end of settling asks for, and a failure that hits many topologies, or one
with a plan that takes a second, does not wait for it.  Decisions stay functions of the snapshot: a planner answers the
same instance in the same way, so it does not matter when it was asked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from reprise.algorithms import Instance, Plan, solve, solve_strict
from reprise.scheduler.model import Order

Clock = Callable[[], float] | None


@dataclass(frozen=True, slots=True)
class Question:
    """What a planner is asked."""

    instance: Instance
    order: Order
    algorithm: str
    time_limit_s: float


@dataclass(frozen=True, slots=True)
class Answer:
    """A plan, and what it is the answer to."""

    question: Question
    plan: Plan


@dataclass(frozen=True, slots=True)
class PrecomputedPlan:
    """All that a decision asks on its way to one plan, with the answers."""

    answers: tuple[Answer, ...]

    def to(self, question: Question) -> Answer | None:
        """The answer to it, if it was asked."""
        return next((answer for answer in self.answers if answer.question == question), None)


@dataclass(slots=True)
class Planner:
    """The planners with a clock (monotonic seconds; None: plans count work instead), which does not ask twice."""

    clock: Clock = None
    known: PrecomputedPlan | None = None
    """Made ahead."""
    _given: list[Answer] = field(default_factory=list)

    def plan(self, question: Question) -> Plan:
        """Raises what `reprise.algorithms.solve` raises."""
        answer = self.known.to(question) if self.known is not None else None
        if answer is None:
            by = solve_strict if question.order is Order.STRICT else solve
            plan = by(question.instance, question.algorithm, question.time_limit_s, self.clock)
            answer = Answer(question, plan)
        self._given.append(answer)
        return answer.plan

    @property
    def precomputed(self) -> PrecomputedPlan | None:
        """What this planner was asked, for another one to know; None if it was asked nothing."""
        if not self._given:
            return None
        made = PrecomputedPlan(tuple(self._given))
        return self.known if made == self.known else made
