"""`reprise up`: the topology of this folder on this machine, with as little to say as possible."""

from __future__ import annotations

import itertools
from pathlib import Path

import click

from reprise.controller.cli.carry_out import EXIT, carry_out
from reprise.controller.cli.options import DURATION, parse_sets, sets_option, topology_option
from reprise.controller.local.faults.faults import Fault, Trigger
from reprise.controller.local.run.config import RunConfig, load

KILL_AT_S = 10.0
NEW_NODES_AFTER_S = 5.0


@click.command("up")
@topology_option
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of the run; by default out/run-1, out/run-2, ... in this folder.",
)
@click.option(
    "--kill",
    type=click.IntRange(1, 250),
    metavar="N",
    help=f"Kill N nodes at once, {KILL_AT_S:g} s into the stream, and start as many {NEW_NODES_AFTER_S:g} s later.",
)
@sets_option
@click.option("--timeout", type=DURATION, help="Give up after this long, e.g. 5m.")
@click.option("--no-web", is_flag=True, help="Serve no page.")
@click.option("-q", "--quiet", is_flag=True, help="Only the verdict.")
def command(
    file: Path,
    out: Path | None,
    kill: int | None,
    sets: tuple[str, ...],
    timeout: float | None,
    no_web: bool,
    quiet: bool,
) -> None:
    """Run the topology of this folder on this machine, with a web page, until its streams end or Ctrl-C.

    The same as `reprise run` with a folder, a port and faults chosen for you; `run` has the other options.

    \b
    Examples:
      reprise up
      reprise up --kill 2
      reprise up -f words/topology.yaml --set 'sources[tweets].with.rate=500'
    """
    resource = load(file, overrides=parse_sets(sets))
    out = out or next_folder(Path("out"))
    config = RunConfig(
        resource=resource,
        out=out,
        faults=killing(kill or 0, resource.nodes.count),
        timeout_s=timeout,
        python_path=str(file.resolve().parent),
    )
    result = carry_out(config, None if no_web else 0, quiet)
    if result.ok and not quiet:
        click.echo(f"was anything lost or doubled? reprise verify --out {out} --code {file.parent}")
    raise SystemExit(EXIT[result.outcome])


def next_folder(below: Path) -> Path:
    """The first of run-1, run-2, ... that is not there."""
    return next(path for number in itertools.count(1) if not (path := below / f"run-{number}").exists())


def killing(count: int, nodes: int) -> tuple[Fault, ...]:
    """The last `count` of `nodes` nodes are killed, and as many are added.  BadParameter when there are not so many."""
    if count == 0:
        return ()
    if count > nodes:
        raise click.BadParameter(f"the topology starts with {nodes} nodes", param_hint="--kill")
    names = tuple(f"n{number}" for number in range(nodes - count + 1, nodes + 1))
    return (
        Fault(Trigger("at", KILL_AT_S), "kill", names, name="burst", label="0"),
        Fault(Trigger("after", of="burst", delay_s=NEW_NODES_AFTER_S), "add", count=count, label="1"),
    )
