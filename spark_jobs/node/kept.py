"""What the partitions of a node keep of their output for those that may be lost, and begin again at the checkpoint.

Sources keep no rows for that, only what they need to read them again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from reprise.algorithms.positions import Positions
from reprise.spark_jobs.node.command import Command
from reprise.spark_jobs.node.runtime import Runtime, SourceRuntime


def wanted(runtime: Runtime, command: Command, keeps: bool) -> Callable[[str], bool]:
    """Which targets get what a partition makes next.  `keeps`: also one that is not at work will need it."""
    routes, positions = command.routes, command.positions
    if not isinstance(runtime, SourceRuntime):
        return (lambda _: True) if keeps else routes.__contains__
    # who is not as far yet is sent it when it is, read once more
    first = runtime.position + 1 - command.window
    return lambda target: target in routes and positions.get(target, first) >= first


def relieve(runtimes: Iterable[Runtime], positions: Mapping[str, int], absent: bool = False) -> None:
    """Drop what partitions at work have applied: there is no room, and a full node would never reach the checkpoint that
    empties it.  Should one of them be lost before that, others go back to the checkpoint with it.

    `positions`: of those at work.  `absent`: drop all for those that are not, too: no plan waits for it, and one that is set
    aside for good would fill the node."""
    for runtime in runtimes:
        for target in runtime.buffers.keys() & positions.keys():
            runtime.trim(target, positions[target])
        for target in runtime.buffers.keys() - positions.keys() if absent else ():
            runtime.trim(target, runtime.position)


def lacking(runtimes: Iterable[Runtime], covered: Positions) -> dict[str, int]:
    """The least batch from which each target of a partition could begin again, of partitions that have dropped, or never
    had, what a target that begins at what is `covered` would need."""
    found = ((r.partition.id, r.lacks(covered)) for r in runtimes)
    return {partition: since for partition, since in found if since}


def kept_since(runtimes: Iterable[Runtime]) -> int:
    """The least batch from which each target could begin again with what is here."""
    return max((r.kept_since for r in runtimes), default=0)
