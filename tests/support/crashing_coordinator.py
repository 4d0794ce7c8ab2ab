"""The coordinator's process, which dies at once before or after the commit of a rule's first decision.

`python -m tests.support.crashing_coordinator decide:RULE ...`: further arguments are those of the coordinator.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from dataclasses import dataclass

from reprise.controller.coordinator.__main__ import main
from reprise.controller.coordinator.store import Reading, Store
from reprise.scheduler import Decision

log = logging.getLogger("reprise.coordinator")


@dataclass(frozen=True, slots=True)
class CrashPoint:
    """A fault for tests: die at once before or after the commit of a rule's first decision."""

    when: str
    """decide | commit"""
    rule: str
    """A rule's name, or * for any."""

    @staticmethod
    def parse(text: str) -> CrashPoint:
        """`decide:RULE` or `commit:RULE`; ValueError otherwise."""
        when, mark, rule = text.partition(":")
        if when not in ("decide", "commit") or not mark or not rule:
            raise ValueError(f"{text!r} is not written decide:RULE or commit:RULE")
        return CrashPoint(when, rule)

    def hit(self, when: str, rule: str) -> None:
        if when == self.when and self.rule in ("*", rule):
            log.warning("event=crash when=%s rule=%s", when, rule)
            os.kill(os.getpid(), signal.SIGKILL)


def crash_at(point: CrashPoint) -> None:
    """Every store of this process crashes it there."""
    commit = Store.commit

    def committed(self: Store, reading: Reading, decision: Decision) -> None:
        point.hit("decide", decision.rule)
        commit(self, reading, decision)
        point.hit("commit", decision.rule)

    Store.commit = committed  # type: ignore[method-assign]


if __name__ == "__main__":
    crash_at(CrashPoint.parse(sys.argv.pop(1)))
    sys.exit(main())
