"""Was it me or ZooKeeper? What an agent whose session has expired does with what still runs on its node.

A session expires in two ways that look the same to the client. (a) The node was frozen (SIGSTOP, a paused VM)
or starved while ZooKeeper ran: the others have seen it leave and gave its work to somebody, so everything on
it is a zombie and must be killed. (b) ZooKeeper was away: nobody saw anything, the node has done nothing
wrong, and killing it would turn an outage of the store into an outage of all nodes. (Mostly a session even
survives (b), as a server that comes back restarts its session timers; not if it comes back slowly, or busy.)

The agent tells them apart by a clock tick of its own. While a process is frozen its ticks stop but the
monotonic clock runs on, so a long gap between two ticks means "I was away". Time without a connection,
counted in ticks that were really lived, means "ZooKeeper was away". Only a session lost with the second and
without the first is forgiven; in all doubt the node is fenced, which costs a restart, while a spared zombie
could cost correctness. (An executor pod need not guess: a record says whether it was given up,
`reprise.controller.agent.pod_agent`.)
"""

import enum
from dataclasses import dataclass, field


class Verdict(enum.Enum):
    """What to do when the session has expired."""

    FENCE = "fence"
    REGISTER_AGAIN = "register again"


@dataclass(slots=True)
class LifeRecord:
    """Ticks, gaps and connection of one agent. Times are monotonic seconds, given by the caller."""

    session_timeout: float
    last_tick: float
    suspended_at: float | None = None
    lived_suspended: float = 0.0
    gap_ends: list[float] = field(default_factory=list)

    @property
    def long_gap(self) -> float:
        """A gap between ticks from which on the agent counts as frozen: below what can make a session
        expire."""
        return self.session_timeout / 2

    def tick(self, now: float) -> bool:
        """Record a tick; True if the agent was frozen since the last one."""
        gap = now - self.last_tick
        self.last_tick = max(now, self.last_tick)
        if gap >= self.long_gap:
            self.gap_ends.append(now)
            self.gap_ends = [end for end in self.gap_ends if end >= self._relevant_since(now)]
            return True
        if self.suspended_at is not None:
            self.lived_suspended += max(gap, 0.0)
        return False

    def suspended(self, now: float) -> None:
        """The connection is gone; the session may still live."""
        if self.suspended_at is None:
            self.suspended_at = now
            self.lived_suspended = 0.0

    def connected(self) -> None:
        """Connected again, in the same session or a new one."""
        self.suspended_at = None

    def judge(self, now: float) -> Verdict:
        """The session has expired: why? Call `tick` first, so that the time since the last tick is known."""
        frozen = any(end >= self._relevant_since(now) for end in self.gap_ends)
        outage = self.suspended_at is not None and self.lived_suspended >= self.long_gap
        return Verdict.REGISTER_AGAIN if outage and not frozen else Verdict.FENCE

    def _relevant_since(self, now: float) -> float:
        """A freeze that ended more than a session timeout before the connection went did not end the
        session."""
        return (now if self.suspended_at is None else self.suspended_at) - self.session_timeout
