"""What a host does when a later driver asks what is here: nothing, and it keeps what it has.

Invariants: a host that has answered a survey refuses every request of an earlier driver.  What it had stays as it was, to
the message, until the later driver orders something; what that does not name is dropped then, as ever.  A host that a
driver has not surveyed drops everything at that driver's first order: nobody but a survey knows what it has.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from reprise.spark_jobs.node.command import Command, Report


def why_not(before: Command | None, command: Command, text: str) -> str:
    """Why a host that has the orders `before`, of the resource `text`, cannot go on with what it has when `command` comes;
    empty if it can."""
    if before is None:
        return "it has begun just now"
    if command.topology != text:
        return "it has partitions of another resource"
    if command.epoch == before.epoch:
        return ""
    if not command.survey:
        return "it was not surveyed"
    sites = [(c.sink, c.checkpoints, c.stream) for c in (before, command)]
    return "" if sites[0] == sites[1] else "it has partitions of another stream"


@dataclass(slots=True)
class Survey:
    """What a host says in its answer beside what it reports after each job."""

    released: int = 0
    """The last batch that it was told to be released."""
    led_by: int = 0
    """Epoch of the last driver before the one that it obeys now that has ordered anything: one that has only asked may have
    found that what is here does not fit the stream's records, and what it was to do instead never came here."""
    refused: str = ""

    def heard(self, before: Command | None, command: Command, refused: str) -> None:
        """Orders have come after `before`; `refused`: why what was here is dropped for them."""
        if before is not None and before.epoch != command.epoch and not before.survey:
            self.led_by = before.epoch
        if not command.survey:
            self.released, self.refused = command.horizon, ""
        elif refused:
            self.refused = refused

    def answer(self, report: Report) -> Report:
        """The answer to a survey."""
        return replace(report, horizon=self.released, led_by=self.led_by, refused=self.refused)
