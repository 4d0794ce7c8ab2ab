"""What a decision consists of: typed steps, carried out together or not at all.

An adapter turns the steps of one decision into one transaction that checks that nothing on which the decision
rests has been rewritten. So a coordinator that is killed leaves a decision done or not begun, and of two that
act on the same records one is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from reprise.scheduler.incident import Incident, PlanRecord
from reprise.scheduler.model import Desired, Poison


@dataclass(frozen=True, slots=True)
class WriteDesired:
    desired: Desired


@dataclass(frozen=True, slots=True)
class WriteIncident:
    """Create or rewrite the open incident."""

    incident: Incident


@dataclass(frozen=True, slots=True)
class CloseIncident:
    """File the incident under its id; none is open then."""

    incident: Incident


@dataclass(frozen=True, slots=True)
class AddPlan:
    plan: PlanRecord


@dataclass(frozen=True, slots=True)
class WritePoison:
    poison: Poison


@dataclass(frozen=True, slots=True)
class TakeSkip:
    """A wish to skip is taken: its znode goes, and has to be there still."""

    query: str


Step = WriteDesired | WriteIncident | CloseIncident | AddPlan | WritePoison | TakeSkip


class Outcome(StrEnum):
    """What came of looking at a snapshot."""

    UNKNOWN = "unknown"  # the snapshot says nothing: no session
    WAIT = "wait"  # nothing to do, or not yet
    ACT = "act"  # carry out the steps


class RuleName(StrEnum):
    """What a decision was: the rule that made it, as people see it in logs, metrics and the record `coordinator`."""

    NO_SESSION = "no-session"
    """It was read without a session: nothing is known."""
    NO_DRIVER = "no-driver"
    """No driver has reported yet."""
    NOTHING_TO_DO = "nothing-to-do"
    """No rule applies."""
    OBSERVED = "observed"
    """Nothing is decided, and what was seen of the incident is written down."""
    START_WAITS = "start-waits"
    """The first start waits for nodes."""
    START = "start"
    """Everything is placed for the first time."""
    START_PARTIAL = "start-partial"
    """The most valuable queries are placed first, as not everything fits."""
    FAILURE_DETECTED = "failure-detected"
    """An incident is opened."""
    SETTLING = "settling"
    """The rest of a burst, a driver's answer or a new driver's nodes are waited for."""
    STANDBYS_AWAITED = "standbys-awaited"
    """A driver's answer is waited for: whether standbys of operators that are not deterministic can go on."""
    SETTLED = "settled"
    """The burst is over, and no plan follows at once."""
    FALSE_ALARM = "false-alarm"
    """What seemed lost has come back as it was."""
    DRIVER_RESTARTED = "driver-restarted"
    """A new driver has no state."""
    CHECKPOINT_DAMAGED = "checkpoint-damaged"
    """Everything goes back to another checkpoint."""
    NO_WHOLE_CHECKPOINT = "no-whole-checkpoint"
    """No checkpoint can be used."""
    BUFFERS_DROPPED = "buffers-dropped"
    """Everything goes back to the checkpoint, as output was dropped for want of room."""
    QUARANTINE = "quarantine"
    """Partitions whose code raised are put aside."""
    SKIP_ASKED = "skip-asked"
    """Somebody wants a query to do without what it has missed."""
    TAKEN_OFF = "taken-off"
    """What failed on usable nodes is taken from them."""
    STOP = "stop"
    """Everything stops until as many nodes are there as before."""
    WAIT_FOR_CAPACITY = "wait-for-capacity"
    """A blocking recovery waits for nodes."""
    PLAN_FIRST = "plan-first"
    """The first plan of a correlated failure."""
    PLAN_ARRIVAL = "plan-arrival"
    """A plan for a node that has arrived."""
    PLAN_LOSS = "plan-loss"
    """A plan for what was lost meanwhile."""
    PLAN_BLOCKING = "plan-blocking"
    """Everything that failed is restored at once."""
    RESTORED = "restored"
    """Everything is at work again."""
    CLOSED = "closed"
    """The incident is over."""
    PROMOTED = "standby-promoted"
    """Lost partitions go on where their standbys are."""
    STANDBYS_PLACED = "standbys-placed"
    """Partitions are given standbys, or other ones."""
    MOVE_PREPARED = "move-prepared"
    """A checkpoint is asked for, from which partitions go on elsewhere."""
    MOVED = "moved"
    """Partitions go on on other nodes: from a checkpoint, or where their standbys are."""
    MOVE_GIVEN_UP = "move-given-up"
    """What a move was prepared for does not hold any more."""
    MOVES_OVER = "moves-over"
    """Everything that could be moved is at work elsewhere."""
    MOVES_WAIT = "moves-wait"
    """A node is to be emptied, and something is waited for."""
    REBALANCE_DUE = "rebalance-due"
    """Load is to be levelled over the nodes that are there now, if it is far from level."""
    REBALANCE_WAITS = "rebalance-waits"
    """Load is to be levelled, and something is waited for."""
    REBALANCED = "rebalanced"
    """Nothing more is moved to level load, before another incident or node."""
    PAUSE = "pause"
    """The topology is to pause."""
    RESUME = "resume"
    """The topology is to go on."""


PLAN_RULES = frozenset(
    {RuleName.PLAN_FIRST, RuleName.PLAN_ARRIVAL, RuleName.PLAN_LOSS, RuleName.PLAN_BLOCKING}
)
"""Those that come with a plan that restores something."""


@dataclass(frozen=True, slots=True)
class Decision:
    outcome: Outcome
    rule: RuleName
    """The rule of the table that decided."""
    reason: str
    steps: tuple[Step, ...] = ()
    until: float = 0.0
    """Nothing comes of looking earlier than this, by the clock of snapshots, while the records are the same: infinite where
    time alone changes nothing, 0 where nobody knows."""

    @property
    def desired(self) -> Desired | None:
        """What the driver is told, if anything new."""
        return next((s.desired for s in self.steps if isinstance(s, WriteDesired)), None)

    @property
    def plan(self) -> PlanRecord | None:
        """The plan of this decision, if there is one."""
        return next((s.plan for s in self.steps if isinstance(s, AddPlan)), None)

    @property
    def poison(self) -> Poison | None:
        """Partitions that are set aside with this decision, and before; None where none were added."""
        return next((s.poison for s in self.steps if isinstance(s, WritePoison)), None)

    @property
    def incident(self) -> Incident | None:
        """The incident as this decision leaves it, if it touches it."""
        found = (s.incident for s in self.steps if isinstance(s, WriteIncident | CloseIncident))
        return next(found, None)


def act(rule: RuleName, reason: str, *steps: Step, until: float = 0.0) -> Decision:
    return Decision(Outcome.ACT, rule, reason, steps, until)


def wait(rule: RuleName, reason: str, until: float = 0.0) -> Decision:
    return Decision(Outcome.WAIT, rule, reason, until=until)
