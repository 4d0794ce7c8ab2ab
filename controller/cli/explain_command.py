"""`reprise explain`: why one query is where it is, and when it comes back; or what checkpoints cost and a loss would."""

from __future__ import annotations

import click
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from reprise.controller.analysis.explain import Capacity, Expected, Explanation, explain
from reprise.controller.analysis.recovery import Recovery
from reprise.controller.cli.checkpoint_page import explain_checkpoints
from reprise.controller.cli.complete import queries
from reprise.controller.cli.queries_table import state_text
from reprise.controller.cli.render import for_programs, output_option, plain_console, plain_table, span
from reprise.controller.cli.target import Address, query_of, target_options
from reprise.controller.plural import counted
from reprise.controller.status.incidents import MAX_MISSING
from reprise.controller.status.model import AimView
from reprise.controller.status.query_state import Status

_LEVEL = (
    "a lost partition by what it reads, without its stored state, for one failure along a path (level 1); where two in a "
    "row are lost, or what is kept did not fit, it comes from the checkpoint"
)
"""Up to where upstream backup goes, in the words of `reprise validate`."""

MOST_TIMES = 10
"""Partitions of which it is printed what they would have to do; the JSON has all."""


@click.command("explain")
@click.argument("words", nargs=-1, metavar="[NAME] QUERY", shell_complete=queries)
@click.option(
    "--checkpoint",
    "of_checkpoints",
    is_flag=True,
    help="Of all of it instead of a query: what each checkpointing protocol would cost, and a loss of each node.",
)
@target_options
@output_option
def command(address: Address, words: tuple[str, ...], of_checkpoints: bool, output: str) -> None:
    """What a query misses, what each partition needs and waits for, at which capacity it comes back, and when.

    The time is a range that rests on what this topology has measured so far: the pace at which nodes came, and how long
    restoring and catching up took. It is unknown where one of these was never seen.

    What is promised of its output when something fails, and which operators limit it, is as `reprise validate` has it. Where
    operators that it needs have upstream backup, it says up to where that goes, and what follows then.

    While all of it is at work: in how many seconds it would be back if a node were lost now, and what each of its partitions
    would have to read and to replay.

    With --checkpoint, and no query: what each checkpointing protocol would cost this topology, by its own figures, and what
    the loss of each node would take to recover. Each figure says whether it was measured, or by which formula it follows.

    \b
    Examples:
      reprise explain count.1 --out out/eight
      reprise explain --checkpoint --out out/eight
      reprise explain flights --checkpoint -n streams -o wide
      reprise explain flights by-carrier.0 -n streams -o json
    """
    if of_checkpoints:
        explain_checkpoints(address, words, output)
        return
    if not words:
        raise click.MissingParameter(param_hint="'[NAME] QUERY'", param_type="argument")
    address, query = query_of(address, words)
    with address.open() as target:
        document = target.document()
    try:
        found = explain(document, query)
    except LookupError as error:
        raise click.BadParameter(str(error.args[0]), param_hint="QUERY") from error
    if not for_programs(found, output):
        plain_console().print(explanation_page(found))


def explanation_page(found: Explanation) -> RenderableType:
    """Everything that is known, the answer first."""
    head = Text(f"{found.query}  priority {found.priority}  ", style="bold")
    head.append(state_text(found.state))
    head.append(f"  lag {found.lag}", style="default")
    parts: list[RenderableType] = [head, _labelled("waits for", found.waits_for)]
    if found.state is not Status.AVAILABLE or found.expected.low is None:  # else it is back
        parts.append(_labelled("back in", _when(found.expected)))
        parts.append(_labelled("", f"({found.expected.basis})"))
    if found.capacity is not None:
        parts += [_labelled(*line) for line in _capacity(found.capacity)]
    parts += [_labelled("slower", text) for text in found.slower]
    if found.promise is not None:
        parts.append(_labelled("output", str(found.promise)))
    if found.fed_again:
        parts.append(_labelled("fed again", f"{', '.join(found.fed_again)}: {_LEVEL}"))
    if found.missing:
        parts += [Text(), _missing(found)]
    if found.recovery is not None:
        parts += [*_recovery(found.recovery), Text(), _times(found.recovery)]
    return Group(*parts)


def _recovery(recovery: Recovery) -> list[RenderableType]:
    there = counted(recovery.partitions_there, "partition", "partitions")
    parts = (
        f"{recovery.detection_s:.1f} s until its loss is noticed, {recovery.plan_s:.1f} s until it is planned for, "
        f"{recovery.install_s:.1f} s to install, {recovery.load_s:.1f} s to read states, {recovery.replay_s:.1f} s to replay"
    )
    lines = [("if lost", f"{recovery.seconds:.1f} s for {recovery.node} with its {there}: {parts}")]
    if recovery.assumed:
        lines.append(("", f"(assumed, as it was not measured here yet: {', '.join(recovery.assumed)})"))
    lines.append(("", "(with room on another node; without catching up with what comes in meanwhile)"))
    if recovery.objective_s is not None:
        said = "held" if recovery.held else f"not held: {recovery.why}"
        lines.append(("objective", f"{recovery.objective_s:g} s, {said}"))
    return [_labelled(*line) for line in lines]


def _times(recovery: Recovery) -> Table:
    table = plain_table()
    table.add_column("partition")
    table.add_column("on")
    for name in ("if lost alone", "state", "to read", "rows", "to replay"):
        table.add_column(name, justify="right")
    if aims := any(one.aim is not None for one in recovery.partitions):
        for name in ("may take", "slots back (Q)", "rows (U)"):
            table.add_column(name, justify="right")
    for one in recovery.partitions[:MOST_TIMES]:
        marks = {part: " ?" if part in one.assumed else "" for part in ("load", "replay")}
        table.add_row(
            one.partition,
            one.node,
            f"{one.seconds:.1f} s",
            f"{one.state_bytes / 2**20:.1f} MiB",
            f"{one.load_s:.2f} s{marks['load']}",
            f"{one.rows:,}",
            f"{one.replay_s:.2f} s{marks['replay']}",
            *(_aim(one.aim) if aims else ()),
        )
    if (more := len(recovery.partitions) - MOST_TIMES) > 0:
        table.add_row(f"and {more} more", *[""] * (len(table.columns) - 1))
    return table


def _aim(aim: AimView | None) -> tuple[str, str, str]:
    return ("-", "-", "-") if aim is None else (f"{aim.within_s:.1f} s", f"{aim.extent:,}", f"{aim.replay:,}")


def _labelled(label: str, text: str) -> RenderableType:
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=12, style="bold")
    grid.add_column(overflow="fold")
    grid.add_row(label, Text(text))
    return grid


def _when(expected: Expected) -> str:
    if expected.low is None:
        return "unknown"
    if expected.high is None:
        return f"at least {span(expected.low)}"
    low, high = span(expected.low), span(expected.high)
    return low if low == high else f"{low} to {high}"


def _capacity(capacity: Capacity) -> list[tuple[str, str]]:
    free = "unknown" if capacity.free is None else f"{capacity.free}m"
    lines = [("needs", f"{capacity.needs}m CPU; {free} is free beside the newest plan")]
    in_sum = capacity.missing == 0  # there is enough, and no node has room for its largest partition
    if capacity.enters_at is not None and not in_sum:
        how = "exactly" if capacity.exact else "at the latest, beside all that is chosen now"
        lines.append(("comes in at", f"{capacity.enters_at}m free in sum, {how}"))
    if capacity.missing is not None:
        nodes = ""
        if capacity.nodes_needed is not None:
            nodes = f": {capacity.nodes_needed} more of {capacity.node_size}m each"
        lines.append(("missing", f"{'room on one node' if in_sum else f'{capacity.missing}m'}{nodes}"))
    if capacity.competes_with:
        lines.append(("competes", f"with {', '.join(capacity.competes_with)}"))
    return lines


def _missing(found: Explanation) -> Table:
    table = plain_table()
    for name in ("missing partition", "state", "needs", "on", "shared by", "why"):
        table.add_column(name, justify="right" if name == "needs" else "left")
    for entry in found.missing[:MAX_MISSING]:
        others = entry.shared_with
        table.add_row(
            entry.partition,
            entry.state.value,
            f"{entry.cost}m",
            entry.node or "-",
            f"{others} other{'s' if others > 1 else ''}" if others else "-",
            Text(entry.reason),
        )
    if (more := len(found.missing) - MAX_MISSING) > 0:
        table.add_row(f"and {more} more", "", "", "", "", "")
    return table
