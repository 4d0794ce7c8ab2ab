"""`reprise simulate`: what would happen, from a live snapshot; nothing is touched."""

from __future__ import annotations

import click
from rich.console import Group, RenderableType
from rich.text import Text

from reprise.controller.analysis.simulate import Simulation, SimulationError, parse_arrivals, simulate
from reprise.controller.cli.arguments import name_argument
from reprise.controller.cli.complete import nodes
from reprise.controller.cli.render import for_programs, output_option, plain_console, plain_table, span
from reprise.controller.cli.target import Address, target_options
from reprise.scheduler.simulation.run import Happening
from reprise.scheduler.steps import PLAN_RULES, RuleName

_SHOWN = (*Happening, RuleName.CLOSED)
_STYLES = {
    Happening.LOST: "bold red",
    Happening.ARRIVED: "cyan",
    Happening.QUERIES_DOWN: "red",
    Happening.QUERIES_BACK: "green",
}


@click.command("simulate")
@name_argument
@target_options
@click.option(
    "--lose", metavar="N3,N4", default="", shell_complete=nodes, help="Nodes that are lost now, by name."
)
@click.option("--arrive", metavar="2@90s,...", default="", help="How many nodes arrive when.")
@output_option
def command(address: Address, lose: str, arrive: str, output: str) -> None:
    """What would happen if these nodes were lost now and those arrived then: which queries come back when.

    The coordinator's own rules and planners decide, on the records as they are; only reading is done. With no option it
    says what comes of the state as it is. What the answer assumes is printed with it.

    \b
    Examples:
      reprise simulate --out out/eight --lose n3,n4 --arrive 2@90s
      reprise simulate --out out/eight --lose n3,n4 --arrive 1@30s,1@2m -o json
      reprise simulate flights -n streams --lose flights-exec-3,flights-exec-4
    """
    nodes = [name.strip() for name in lose.split(",") if name.strip()]
    with address.open() as target:
        resource, seen = target.resource(), target.observation()
    try:
        found = simulate(resource, seen, nodes, parse_arrivals(arrive), address.on_cluster)
    except SimulationError as error:
        raise click.UsageError(str(error)) from error
    if not for_programs(found, output):
        plain_console().print(simulation_page(found, output == "wide"))


def simulation_page(found: Simulation, wide: bool) -> RenderableType:
    """The time line, what each plan brings, what stays down, and what this assumes."""
    table = plain_table()
    table.add_column("after", justify="right")
    table.add_column("available", justify="right")
    table.add_column("what")
    for stage in found.timeline:
        if wide or stage.what in _SHOWN or stage.what in PLAN_RULES:
            text = Text(f"{stage.what} {stage.detail}".rstrip(), style=_style(stage.what))
            at_least = (
                "at least "
                if found.at_least and stage.what in (Happening.QUERIES_BACK, RuleName.CLOSED)
                else ""
            )
            table.add_row(f"{at_least}{span(stage.at)}", f"{100 * stage.share:.0f} %", text)
    parts: list[RenderableType] = [table if found.timeline else Text("nothing happens")]
    if found.waiting:
        parts += [Text(), Text("in the end these wait:", style="bold red")]
        parts += [Text(f"  {query}: {why}") for query, why in found.waiting.items()]
    else:
        parts += [Text(), Text("in the end every query is available", style="green")]
    if found.at_least:
        parts.append(Text(f"times are lower bounds: {found.at_least}", style="yellow"))
    parts += [Text(), Text("assumed:", style="dim")]
    parts += [Text(f"  {line}", style="dim") for line in found.assumptions]
    return Group(*parts)


def _style(what: Happening | RuleName) -> str:
    return _STYLES.get(what, "default") if isinstance(what, Happening) else "default"
