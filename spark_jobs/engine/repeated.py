"""A job that fails again and again for one and the same reason: trouble that no further attempt will mend.

A job may fail because a node is being lost; the next one, without it, succeeds.  What fails the same way several times in
a row is a fault that somebody must be told of, with the node that it was heard from.  Invariant: `stuck` is empty unless
the last `LIMIT` jobs or more have all failed with equal reasons, numbers apart: how long a step has not returned, or a job's
number, makes no other reason.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

LIMIT = 5
"""Equal failures in a row from which they are told of."""
_NUMBER = re.compile(r"\d+(\.\d+)?")


@dataclass(slots=True)
class Repeated:
    """The newest reason and how often in a row it was heard."""

    reason: str = ""
    times: int = 0

    def failed(self, reason: str) -> bool:
        """Take in a failure; whether it is the one with which it becomes worth telling."""
        alike = _NUMBER.sub("#", reason) == _NUMBER.sub("#", self.reason)
        self.times = self.times + 1 if alike else 1
        self.reason = reason
        return self.times == LIMIT

    def succeeded(self) -> None:
        """Begin anew."""
        self.reason, self.times = "", 0

    @property
    def stuck(self) -> str:
        """One line for a person; empty when nothing is wrong."""
        return f"{self.times} jobs in a row have failed: {self.reason}" if self.times >= LIMIT else ""
