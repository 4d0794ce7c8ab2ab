"""Upstream backup on a node: what senders keep for partitions that would begin anew, and what such a partition does then.

The driver says up to which batch nothing is needed of the input of each (`Command.causes`); what follows is kept like output
that no checkpoint covers.  Where memory is short everything else that is kept for a failure goes first; what is kept
for them moves to disk, and is dropped only where that is full, too: no backup stops the stream, and the driver hears of
it (`Report.dropped`).  docs/decisions/0042-upstream-backup.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from polars.exceptions import PanicException

from reprise.spark_jobs.node.command import Command
from reprise.spark_jobs.node.runtime import OperatorRuntime, Runtime


def with_causes(positions: Mapping[str, int], causes: Mapping[str, int]) -> Mapping[str, int]:
    """The last batch that each target needs no more: what it has applied, and of the input of one that would be fed again
    what is the cause of nothing that is wanted."""
    return (
        {**positions, **{p: min(k, positions.get(p, k)) for p, k in causes.items()}} if causes else positions
    )


def dropped(runtimes: Iterable[Runtime], command: Command) -> dict[str, int]:
    """Partitions that would be fed again and cannot be sent from here all that is not covered, with the batch behind which
    they can."""
    found: dict[str, int] = {}
    for runtime in runtimes if command.causes else ():
        for target in runtime.buffers.keys() & command.causes.keys():
            here = runtime.since(target)
            if here > max(command.covered.of(target), found.get(target, 0)):
                found[target] = here
    return found


def oldest(
    runtimes: Mapping[str, Runtime], command: Command, problems: list[str]
) -> dict[str, tuple[int, int | None]]:
    """The last batch that each partition has applied which would be fed again and whose state says how far back it reaches,
    and what it says then; nothing of one that has stepped a batch and could not give it yet.  User code that raises has
    harmed no batch: that is one of `problems`."""
    found: dict[str, tuple[int, int | None]] = {}
    for partition in command.causes:
        runtime = runtimes.get(partition)
        if not isinstance(runtime, OperatorRuntime) or command.silent(partition):
            continue
        batch = runtime.position
        if batch < runtime.replays_to:  # its state lacks what the input before it was the cause of
            continue
        if runtime.unfinished is not None:  # its state is behind a batch that is not given yet
            continue
        try:
            if not runtime.operator.reaches_by_state:
                continue
            said = runtime.operator.oldest_needed_behind(runtime.state, batch)
            if type(said) is not int or not 0 <= said <= batch + 1:
                raise ValueError(f"{said!r} is no batch up to {batch + 1}")
            found[partition] = batch, said
        except (Exception, PanicException) as error:
            problems.append(f"{partition}: oldest_needed_behind: {type(error).__name__}: {error}")
            found[partition] = batch, None
    return found


def begin_again(runtime: OperatorRuntime, replays_to: int) -> None:
    """Let a partition with its initial state step up to a batch without giving anything: what it makes there may not be what
    it gave then."""
    runtime.replays_to = replays_to
    for buffer in runtime.buffers.values():
        buffer.floor = buffer.cursor = replays_to + 1
