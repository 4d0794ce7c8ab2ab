"""`reprise skip`: a query does without what it has missed, because a person says so."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

import click

from reprise.controller.cli import exits
from reprise.controller.cli.complete import queries
from reprise.controller.cli.target import Address, query_of, target_options
from reprise.controller.plural import counted
from reprise.controller.status.query_state import Status, state_of
from reprise.controller.topology_view import policy_of, view_of
from reprise.controller.zookeeper.observation import Observation, snapshot_of
from reprise.scheduler import skips
from reprise.scheduler.view import View, look
from reprise.scheduler.wishes import pending
from reprise.spark_jobs.errors import SpecError, raise_all
from reprise.spark_jobs.topology import StreamTopology
from reprise.spark_jobs.topology.availability import skip_fits
from reprise.spark_jobs.topology.binding import able_to_skip
from reprise.spark_jobs.topology.class_path import of_library


@click.command("skip")
@click.argument("words", nargs=-1, required=True, metavar="[NAME] QUERY", shell_complete=queries)
@target_options
@click.option("--yes", is_flag=True, help="Do it without a question.")
@click.option("--undo", is_flag=True, help="Take the wish back, as long as nobody has taken it up.")
def command(address: Address, words: tuple[str, ...], yes: bool, undo: bool) -> None:
    """Let QUERY do without what it has missed: rows are lost for good, and each batch that may lack some is marked.

    For a query that cannot come back: its code raises at some batch, its stored state cannot be read, or reading and
    replaying it would take too long. Those of its partitions that are not at work begin anew, with their initial state,
    behind the newest batch; what reads them goes on without their rows of the batches in between. This happens once, as if
    their operators had `availability: amnesia`; what that is refused for is refused here: outputs that would never be right
    again, or cannot be marked.

    It is said first which partitions these are, and which queries besides need them and will lack rows, too. Without
    --yes it is asked then; where nobody can be asked nothing is done, and the exit code is 1.

    \b
    Examples:
      reprise skip count.1 --out out/eight
      reprise skip count.1 --out out/eight --undo
      reprise skip flights by-carrier.0 -n streams --yes
    """
    address, query = query_of(address, words)
    with address.open() as target:
        seen, resource = target.observation(), target.resource()
        topology = view_of(resource, own_code=False)
        if (
            not address.on_cluster
        ):  # a coordinator that has the code asks it; its driver says what it has found
            topology = replace(topology, deterministic=True)
        view = look(snapshot_of(topology, seen), policy_of(resource, 0.0, 0.0))
        _require_query(view, query)
        asked = query in pending(seen.wishes, seen.desired.skips if seen.desired else {})
        if undo:
            click.echo(target.skip(query, False))
            if waiting := _under_way(seen, view, query):
                exits.fail(f"it is under way already and goes on: {', '.join(waiting)} begin anew", exits.NO)
            return
        if asked:
            click.echo(f"{query} is to be skipped already, and nobody has taken that up yet")
            return
        partitions = skips.would_begin_anew(
            view, next(q for q in view.snapshot.topology.queries if q.id == query)
        )
        _require_once(seen, view, query)
        _require_use(view, query, partitions)
        _require_able(resource, partitions)
        _say(seen, view, query, partitions)
        if not yes and not _confirmed():
            exits.fail("nothing was asked for; --yes asks for it", exits.NO)
        click.echo(target.skip(query, True))


def _require_query(view: View, query: str) -> None:
    known = [q.id for q in view.snapshot.topology.queries]
    if query not in known:
        raise click.BadParameter(f"no query {query!r}; there are {', '.join(known)}", param_hint="QUERY")


def _require_use(view: View, query: str, partitions: Sequence[str]) -> None:
    """Where nothing would come of it the person on call is better told now."""
    if not partitions:
        exits.fail(f"nothing of {query} can be skipped: all of its operators are at work", exits.NO)
    if whole := skips.why_whole(view):
        exits.fail(f"nothing of {query} can be skipped now: {whole}, so all of it is restored", exits.NO)


def _under_way(seen: Observation, view: View, query: str) -> tuple[str, ...]:
    """What begins anew because somebody has asked for this query, as far as it is not at work, and has not raised again."""
    order = [p.id for p in view.snapshot.topology.partitions if p.id not in view.poison]
    return tuple(skips.under_way(seen.desired, order, view.at_work).get(query, ()))


def _require_once(seen: Observation, view: View, query: str) -> None:
    """Asked for again, it would begin later.  Where the driver has refused it that is what somebody may want."""
    waiting = _under_way(seen, view, query)
    if waiting and not _refused(seen, waiting):
        exits.fail(f"it is under way already: {', '.join(waiting)} begin anew", exits.NO)


def _refused(seen: Observation, partitions: Sequence[str]) -> bool:
    """Whether the driver has refused what was asked last for one of these."""
    if seen.progress is None or seen.desired is None:
        return False
    wishes, refused = seen.desired.anew, seen.progress.refused
    return any(p in refused and refused[p] == wishes.get(p) for p in partitions)


def _require_able(resource: StreamTopology, partitions: Sequence[str]) -> None:
    """What the driver would refuse.  Classes that are not of the library may not be here: the driver asks them."""
    names = frozenset(p.rpartition(".")[0] for p in partitions)
    stages = [*resource.stages, *(o.output.sink for o in resource.operators if o.output and o.output.sink)]
    try:
        raise_all(skip_fits(resource, names))
        if all(of_library(stage.class_path) for stage in stages):
            able_to_skip(resource, names)
    except SpecError as error:
        exits.fail(f"it cannot be skipped: {'; '.join(map(str, error.all))}", exits.NO)


def _say(seen: Observation, view: View, query: str, partitions: Sequence[str]) -> None:
    """What would happen, before it does."""
    states = {state.id: state for state in state_of(view.snapshot.topology.queries, seen).queries}
    click.echo(f"begin anew, without what they knew: {', '.join(partitions)}")
    others = [q for q in skips.lacking(view, partitions) if q != query]
    click.echo(f"rows will be missing in {query}, in batches that are marked; nothing brings them back")
    if not others:
        return
    click.echo(
        f"so they will in {counted(len(others), 'other query that needs', 'other queries that need')} these:"
    )
    for other in others:
        state = states[other]
        healthy = "" if state.status is not Status.AVAILABLE else ", which is well"
        click.echo(f"  {other} (priority {state.priority}, {state.status.value}{healthy})")


def _confirmed() -> bool:
    """False where there is nobody to ask."""
    return sys.stdin.isatty() and click.confirm("go on?", default=False)
