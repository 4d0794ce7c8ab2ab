"""`reprise drain`: a node gives what it has to the others, before it is taken away."""

from __future__ import annotations

import time

import click

from reprise.controller.cli import exits
from reprise.controller.cli.arguments import name_argument
from reprise.controller.cli.complete import nodes
from reprise.controller.cli.options import DURATION
from reprise.controller.cli.target import Address, Target, target_options
from reprise.controller.plural import counted
from reprise.controller.topology_view import policy_of, view_of
from reprise.controller.zookeeper.observation import Observation, snapshot_of
from reprise.scheduler.moves import Room, room
from reprise.scheduler.view import look, taken_over

LOOK_S = 0.5
STUCK_S = 5.0
"""After so long without any move, what has no room is said to have none."""


@click.command("drain")
@click.argument("node", shell_complete=nodes)
@name_argument
@target_options
@click.option("--undo", is_flag=True, help="Take the wish back: the node may be used again.")
@click.option(
    "--wait", is_flag=True, help="Say how it goes, and end when the node is empty, or cannot be emptied."
)
@click.option(
    "--timeout", type=DURATION, default="10m", show_default=True, help="The longest time for --wait."
)
def command(address: Address, node: str, undo: bool, wait: bool, timeout: float) -> None:
    """Empty NODE: what it has moves to the other nodes, and it gets nothing new.

    Nothing is lost and no row is shown twice: a checkpoint is taken, and each partition goes on from it elsewhere. A query
    stands still for some batches while one of its partitions moves; the most valuable queries are disturbed last. Nothing
    moves while an incident is open; it goes on by itself afterwards. A topology that is paused takes no checkpoint, so
    there it waits until that goes on, unless all that was read is in the newest one.

    What finds no room under the CPU cap of the others stays where it is until a node comes, or its driver is started
    anew, which puts nothing on a node that is to be empty: `--wait` then ends with 1 and
    says which partitions, and how much room is missing. When the node is empty it can be taken away, and no incident
    follows. The wish stays until it is taken back with --undo, also for a node that comes back under its name.

    NODE is the name as `reprise status` has it: n3 on one machine, a pod on Kubernetes. To empty a whole machine of a
    Kubernetes cluster use `kubectl cordon`: its pods are emptied by themselves.

    \b
    Examples:
      reprise drain n3 --out out/eight --wait
      reprise drain n3 --out out/eight --undo
      reprise drain flights-exec-3 flights -n streams --wait
    """
    if undo and wait:
        raise click.BadParameter("there is nothing to wait for with --undo", param_hint="--wait")
    with address.open() as target:
        if not undo:
            _require_node(target.observation(), node)
        click.echo(target.drain(node, not undo))
        if undo:
            return
        if wait:
            _wait(target, node, timeout)
            return
        seen = target.observation()
        found = _room(target, seen)
        if found.staying:
            click.echo(f"not all of it can go: {found}", err=True)


def _require_node(seen: Observation, node: str) -> None:
    """A name that no living node has is most likely a slip."""
    names = sorted({n.name for n in seen.nodes.values()})
    if node not in names:
        raise click.BadParameter(
            f"there is no node {node!r}; there are {', '.join(names) or 'none'}", param_hint="NODE"
        )


def _wait(target: Target, node: str, timeout_s: float) -> None:
    before, since, end = -1, time.monotonic(), time.monotonic() + timeout_s
    while True:
        seen = target.observation()
        left = _left(seen, node)
        empty = not left and taken_over(seen.desired, seen.progress)
        if left != before and (left or empty):
            before, since = left, time.monotonic()
            click.echo(f"{node} is empty" if empty else f"{node}: {_partitions(left)} left")
        if empty:
            return
        if not any(n.name == node for n in seen.nodes.values()):
            exits.fail(
                f"{node} is gone, with {_partitions(left)} on it"
                if left
                else f"{node} is gone before the driver had taken over that it is empty",
                exits.NO,
            )
        found = _room(target, seen)
        moving = seen.desired is not None and seen.desired.moving is not None
        if left and found.staying and not found.placed and not moving and time.monotonic() - since > STUCK_S:
            exits.fail(
                f"{node} cannot be emptied: {found}. It goes on when a node comes; --undo takes the wish back",
                exits.NO,
            )
        if time.monotonic() > end:
            exits.fail(
                f"{node} still has {_partitions(left)} after {timeout_s:g} s{_why(seen)}"
                if left
                else f"nothing is to run on {node}, but after {timeout_s:g} s the driver has not taken that over",
                exits.TIMED_OUT,
            )
        time.sleep(LOOK_S)


def _why(seen: Observation) -> str:
    if seen.incident is not None:
        return f": incident {seen.incident.id} is open, and nothing moves meanwhile"
    if seen.desired is not None and seen.desired.paused:
        return ": the topology is paused, and takes no checkpoint"
    if not taken_over(seen.desired, seen.progress):
        return ": the driver has not taken over what was decided last"
    if aside := sorted(seen.progress.poisoned) if seen.progress else []:
        return f": no checkpoint is complete while partitions are set aside ({', '.join(aside)})"
    return ""


def _partitions(number: int) -> str:
    return counted(number, "partition", "partitions")


def _left(seen: Observation, node: str) -> int:
    assignment = seen.desired.assignment if seen.desired else {}
    return sum(n.rpartition("#")[0] == node for n in assignment.values())


def _room(target: Target, seen: Observation) -> Room:
    """Room for what is on nodes that are to be emptied, as the coordinator counts it."""
    resource = target.resource()
    return room(look(snapshot_of(view_of(resource, own_code=False), seen), policy_of(resource, 0.0, 0.0)))
