"""`reprise run`: a topology on a cluster on this machine, from start to verdict."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import click

from reprise.controller.cli.carry_out import EXIT, carry_out
from reprise.controller.cli.options import DURATION, out_option, parse_sets, sets_option, topology_option
from reprise.controller.cli.web_option import web_option
from reprise.controller.local.faults.faults import Fault, load_faults
from reprise.controller.local.run.config import RunConfig, load
from reprise.controller.logs import FORMATS
from reprise.spark_jobs.state.savepoints import SAVEPOINTS
from reprise.spark_jobs.topology import expand
from reprise.spark_jobs.topology.choices import Strategy
from reprise.spark_jobs.topology.load import PLACE

STRATEGIES = get_args(Strategy)


@click.command("run")
@topology_option
@click.option(
    "--nodes", type=click.IntRange(1, 250), help="Nodes to start with, instead of spec.nodes.count."
)
@click.option(
    "--label",
    "labels",
    multiple=True,
    metavar="KEY=A,B",
    help="A label of the nodes, with the values that they take in turn: failure domains of standbys; may be repeated.",
)
@click.option("--faults", type=click.Path(path_type=Path), help="What breaks when; see docs/cli.md.")
@click.option("--strategy", type=click.Choice(STRATEGIES), help="Instead of spec.recovery.strategy.")
@out_option
@sets_option
@click.option(
    "--standby", type=click.IntRange(0, 250), help="Nodes beyond those wanted, ready at once (best-case)."
)
@click.option(
    "--resume", is_flag=True, help="Go on with the run in OUT, from its newest complete checkpoint."
)
@click.option(
    "--from-savepoint",
    metavar="LOCATION/savepoints/NAME",
    help="Begin from this savepoint of another topology, as `reprise savepoint` printed it.",
)
@click.option(
    "--allow-new", multiple=True, metavar="NAME", help="A source or operator that the savepoint may lack."
)
@click.option(
    "--allow-gone",
    multiple=True,
    metavar="NAME",
    help="One that only the savepoint has, and that is given up.",
)
@click.option("--timeout", type=DURATION, help="Give up after this long, e.g. 5m.")
@click.option(
    "--metrics",
    type=click.IntRange(1, 65534),
    metavar="PORT",
    help="Serve metrics at this port of 127.0.0.1, and the driver's at the next one.",
)
@click.option("--log-format", type=click.Choice(FORMATS), help="Of the logs in OUT/logs; default: text.")
@web_option
@click.option("-q", "--quiet", is_flag=True, help="Only the verdict.")
def command(file: Path, out: Path, quiet: bool, web: int | None, **options: Any) -> None:
    """Run a topology on a Spark cluster of local processes until its streams end.

    Nodes are processes on loopback addresses; the fault file kills, freezes and adds them while the topology runs.
    Everything that was started ends with this command, also on Ctrl-C.

    \b
    Examples:
      reprise run -f examples/minimal.yaml --out out/first
      reprise run -f examples/topology2.yaml --faults examples/faults/demo.yaml --out out/eight
      reprise run -f examples/topology2.yaml --faults examples/faults/demo.yaml \\
          --strategy blocking --out out/blocking
      reprise run -f T.yaml --set 'sources[tweets].with.rate=500' --set checkpoint.everyBatches=5 --out out/x
      reprise run -f T.yaml --out out/x --resume
      reprise run -f V2.yaml --from-savepoint out/x/checkpoints/savepoints/before-v2 --out out/y
      reprise run -f T.yaml --out out/x --web 8088

    \b
    OUT gets: sink/ (output), incident.json (timeline, plans, recovery times), queries.svg and .png,
    plans.json, run.json (faults with their real times), events.jsonl, logs/, checkpoints/.
    """
    sets = parse_sets(options["sets"])
    if start := _start_from(options["from_savepoint"], options["allow_new"], options["allow_gone"]):
        sets["checkpoint.startFrom"] = start
    resource = load(file, nodes=options["nodes"], strategy=options["strategy"], overrides=sets)
    faults: tuple[Fault, ...] = ()
    if options["faults"]:
        best = resource.recovery.strategy == "best-case"  # as many stand by as the faults take
        standby = options["standby"] or (resource.nodes.count if best else 0)
        faults = load_faults(options["faults"], resource.nodes.count, expand(resource), standby)
    config = RunConfig(
        resource=resource,
        out=out,
        labels=_labels(options["labels"]),
        faults=faults,
        standby=options["standby"],
        timeout_s=options["timeout"],
        resume=options["resume"],
        metrics_port=options["metrics"] or 0,
        log_format=options["log_format"],
        python_path=str(file.resolve().parent),
    )
    raise SystemExit(EXIT[carry_out(config, web, quiet).outcome])


def _start_from(place: str | None, new: Sequence[str], gone: Sequence[str]) -> dict[str, Any] | None:
    """What `checkpoint.startFrom` says; None: nothing."""
    if place is None:
        if new or gone:
            raise click.UsageError("--allow-new and --allow-gone are for --from-savepoint")
        return None
    location, folder, name = place.rstrip("/").rpartition(f"/{SAVEPOINTS}/")
    if not folder or not name:
        raise click.BadParameter(
            f"{place!r} is not LOCATION/{SAVEPOINTS}/NAME", param_hint="--from-savepoint"
        )
    if not PLACE.match(location):
        location = str(Path(location).resolve())
    return {"location": location, "savepoint": name, "allowNew": list(new), "allowGone": list(gone)}


def _labels(said: Sequence[str]) -> dict[str, tuple[str, ...]]:
    found = {}
    for one in said:
        key, equals, values = one.partition("=")
        every = tuple(value for value in values.split(",") if value)
        if not (key and equals and every):
            raise click.BadParameter(f"{one!r} is not KEY=VALUE,VALUE...", param_hint="--label")
        found[key] = every
    return found
