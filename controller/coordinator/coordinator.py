"""The coordinator's loop: read, decide, commit; it keeps nothing that its successor would miss.

One coordinator acts at a time, the one that holds the ephemeral znode `coordinator`; that is for quiet, safety
comes from the versions in each transaction.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from reprise.algorithms import PlanningError
from reprise.controller import logs
from reprise.controller.coordinator import history
from reprise.controller.coordinator.incident_log import log_changes, replay_log
from reprise.controller.coordinator.store import Reading, Store
from reprise.controller.zookeeper.errors import (
    ClientError,
    RecordError,
    SessionError,
    StaleError,
    TooLargeError,
)
from reprise.controller.zookeeper.observation import Observation
from reprise.controller.zookeeper.process_records import ERROR, Leader
from reprise.scheduler import (
    Decision,
    InvariantViolation,
    Outcome,
    Policy,
    PrecomputedPlan,
    Snapshot,
    decide,
    precompute,
    settling,
)
from reprise.scheduler.steps import CloseIncident, RuleName

log = logging.getLogger("reprise.coordinator")

FAILED_TURNS = 20
"""A coordinator ends when so many turns have raised what is not foreseen and none has ended well, after about half a minute:
a successor begins from the records."""
TICK_S = 0.3
"""Between looks when no watch wakes the loop: settling and windows are a matter of time alone."""


@dataclass(slots=True)
class Coordinator:
    """`permits`: asked before a decision is carried out; one that it holds back is taken again at the next look,
    as it may look different by then."""

    store: Store
    policy: Policy
    permits: Callable[[Decision], bool] = lambda _: True
    kept: history.Kept = field(default_factory=history.Kept)
    clock: Callable[[], float] = time.monotonic
    refresh: Callable[[], None] = lambda: None
    """Called before each look: policy and topology may be others from now on."""
    stop: threading.Event = field(default_factory=threading.Event)
    problem: str = ""
    """Why the last look could not decide, or could not carry out what it had decided; empty when it could."""
    seen: Observation | None = None
    """What the last look has read, with what its decision has written; None where that is not known."""
    _leading: bool | None = None
    _said: tuple[str, str] = ("", "")
    _replayed: bool = False
    _settling: tuple[Snapshot, Decision] | None = None
    """The last look, if it found that a burst settles."""
    _precomputed: PrecomputedPlan | None = None
    _ahead: threading.Lock = field(default_factory=threading.Lock)
    """Held while a plan is made ahead: a decision that finds it begun waits, as it would take as long itself."""

    def run(self) -> None:
        """Run until `stop`.  Raises what a turn has raised, after `FAILED_TURNS`."""
        unforeseen = 0
        while not self.stop.is_set():
            self.store.changed.clear()
            try:
                self.refresh()
                self.turn()
                self.precompute()
                unforeseen = 0
            except Exception as error:
                log.exception("event=turn-failed")
                if not isinstance(error, (ClientError, OSError)):
                    unforeseen += 1
                    if unforeseen >= FAILED_TURNS:
                        raise
                    self.stop.wait(min(TICK_S * unforeseen, 2.0))
            self.store.changed.wait(TICK_S)

    def turn(self) -> Decision | None:
        """One look, and one decision at most; None when this coordinator is not the one to act, or could not."""
        self._settling, self.seen, self.problem = None, None, ""
        if not self._lead():
            return None
        try:
            reading = self.store.read()
            if not reading.led:
                self.store.changed.set()
                return None
            self._saw(reading.seen)
            self._look_at(reading)
            with self._ahead:
                precomputed = self._precomputed
            decision = decide(reading.snapshot, self.policy, self.clock, precomputed)
        except (RecordError, InvariantViolation, PlanningError) as error:
            self._refuse(f"{type(error).__name__}: {error}")
            return None
        if decision.outcome is Outcome.ACT and not self.permits(decision):
            self._say("held-back", f"{decision.rule}: {decision.reason}")
            return None
        if decision.outcome is Outcome.ACT:
            if not self._carry_out(reading, decision):
                return None
        else:
            self._say(decision.rule, decision.reason)
        if settling(reading.snapshot, decision):
            self._settling = reading.snapshot, decision
        else:
            self._precomputed = None
        return decision

    def precompute(self) -> None:
        """After a turn that found that a burst settles: make the plan that will be due, so that it need not be made when
        it is.  Nothing else follows from it, so it may be left out; from any thread."""
        with self._ahead:
            found, self._settling = self._settling, None
            if found is not None:
                self._precomputed = precompute(*found, self.policy, self.clock, self._precomputed)

    def _look_at(self, reading: Reading) -> None:
        """The incident whose ids the following lines of the log have."""
        incident = reading.snapshot.incident
        plans = incident.plans if incident else ()
        logs.about(incident=incident.id if incident else None, plan=plans[-1] if plans else None)
        if reading.snapshot.session and not self._replayed:
            self._replayed = True
            replay_log(self.store.client, self.store.root, incident)

    def _carry_out(self, reading: Reading, decision: Decision) -> bool:
        self.seen = None
        try:
            self.store.commit(reading, decision)
        except StaleError as error:
            log.info("event=stale rule=%s reason=%r", decision.rule, str(error))
            self.store.changed.set()
            return False
        except SessionError as error:
            log.warning("event=uncertain rule=%s reason=%r", decision.rule, str(error))
            return False
        except TooLargeError as error:
            self._refuse(f"{decision.rule} cannot be written down: {error}")
            return False
        self._saw(reading.seen, decision)
        _log_decision(reading, decision)
        log_changes(reading.snapshot.incident, decision.incident, [decision.plan] if decision.plan else [])
        if any(isinstance(step, CloseIncident) for step in decision.steps):
            history.prune(self.store.client, self.store.root, self.kept)
        if decision.rule is not RuleName.OBSERVED:
            self._say(decision.rule, decision.reason)
        self.store.changed.set()
        return True

    def _saw(self, seen: Observation | None, decision: Decision | None = None) -> None:
        """Keep what was read, with what a decision has written since."""
        if seen is None:
            return
        incident = (decision and decision.incident) or seen.incident
        self.seen = replace(
            seen,
            desired=(decision and decision.desired) or seen.desired,
            incident=incident if incident is not None and incident.closed_at is None else None,
            poison=(decision and decision.poison) or seen.poison,
            settle_s=self.policy.settle_s,
            driver_grace_s=self.policy.driver_grace_s,
        )

    def _leader(self, rule: str = "", reason: str = "", at: float = 0.0) -> Leader:
        return Leader(os.getpid(), rule, reason, at, self.policy.settle_s, self.policy.driver_grace_s)

    def _lead(self) -> bool:
        leading = self.store.lead(self._leader())
        if leading != self._leading:
            log.info("event=%s pid=%d", "leading" if leading else "standing-by", os.getpid())
            self._replayed = False
        self._leading = leading
        return leading

    def _refuse(self, reason: str) -> None:
        """Nothing can be decided before somebody changes something."""
        self.problem = reason
        self._say(ERROR, reason, logging.ERROR)

    def _say(self, rule: str, reason: str, level: int = logging.INFO) -> None:
        """Write it to the log and to the leader's znode, once; the seconds in a reason are no news."""
        known = (rule, "" if rule == RuleName.SETTLING else reason)
        if known != self._said:
            self._said = known
            log.log(level, "event=%s reason=%r", rule, reason)
            self.store.announce(self._leader(rule, reason, self.store.clock()))


def _log_decision(reading: Reading, decision: Decision) -> None:
    desired = decision.desired or reading.snapshot.desired
    incident = decision.incident or reading.snapshot.incident
    plan = decision.plan
    log.info(
        "event=decided rule=%s incident=%s phase=%s plan=%s seq=%s generation=%s checkpoint=%s assigned=%s reason=%r",
        decision.rule,
        incident.id if incident else "-",
        incident.phase if incident else "-",
        plan.id if plan else "-",
        desired.seq if desired else "-",
        desired.generation if desired else "-",
        desired.checkpoint if desired else "-",
        len(desired.assignment) if desired else 0,
        decision.reason,
    )
