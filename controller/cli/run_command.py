"""`reprise run`: a topology on a cluster on this machine, from start to verdict."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from reprise.controller.cli import exits
from reprise.controller.cli.live import display_for
from reprise.controller.cli.options import DURATION, out_option, parse_sets, topology_option
from reprise.controller.cli.web_option import web_option, web_page
from reprise.controller.local.faults.faults import Fault, load_faults
from reprise.controller.local.run.config import Outcome, RunConfig, RunResult, load
from reprise.controller.local.run.supervisor import run_topology
from reprise.controller.logs import FORMATS
from reprise.controller.observability.metrics.endpoint import RunMetrics
from reprise.controller.status.query_state import RunState
from reprise.spark_jobs.topology import expand

STRATEGIES = ("incremental", "blocking", "operator-centric", "best-case")
EXIT = {
    Outcome.DONE: exits.DONE,
    Outcome.POISONED: exits.NO,
    Outcome.FAILED: exits.NO,
    Outcome.TIMEOUT: exits.TIMED_OUT,
    Outcome.INTERRUPTED: exits.INTERRUPTED,
}


@click.command("run")
@topology_option
@click.option(
    "--nodes", type=click.IntRange(1, 250), help="Nodes to start with, instead of spec.nodes.count."
)
@click.option("--faults", type=click.Path(path_type=Path), help="What breaks when; see docs/cli.md.")
@click.option("--strategy", type=click.Choice(STRATEGIES), help="Instead of spec.recovery.strategy.")
@out_option
@click.option(
    "--set", "sets", multiple=True, metavar="PATH=VALUE", help="Another value in the spec (repeatable)."
)
@click.option(
    "--standby", type=click.IntRange(0, 250), help="Nodes beyond those wanted, ready at once (best-case)."
)
@click.option(
    "--resume", is_flag=True, help="Go on with the run in OUT, from its newest complete checkpoint."
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
      reprise run -f examples/topology2.yaml --faults examples/faults/eight-of-ten.yaml --out out/eight
      reprise run -f examples/topology2.yaml --faults examples/faults/eight-of-ten.yaml \\
          --strategy blocking --out out/blocking
      reprise run -f T.yaml --set 'sources[tweets].with.rate=500' --set checkpoint.everyBatches=5 --out out/x
      reprise run -f T.yaml --out out/x --resume
      reprise run -f T.yaml --out out/x --web 8088

    \b
    OUT gets: sink/ (output), incident.json (timeline, plans, recovery times), queries.svg and .png,
    plans.json, run.json (faults with their real times), events.jsonl, logs/, checkpoints/.
    """
    sets = parse_sets(options["sets"])
    resource = load(file, nodes=options["nodes"], strategy=options["strategy"], overrides=sets)
    faults: tuple[Fault, ...] = ()
    if options["faults"]:
        best = resource.recovery.strategy == "best-case"  # as many stand by as the faults take
        standby = options["standby"] or (resource.nodes.count if best else 0)
        faults = load_faults(options["faults"], resource.nodes.count, expand(resource), standby)
    config = RunConfig(
        resource=resource,
        out=out,
        faults=faults,
        standby=options["standby"],
        timeout_s=options["timeout"],
        resume=options["resume"],
        metrics_port=options["metrics"] or 0,
        log_format=options["log_format"],
        python_path=str(file.resolve().parent),
    )
    signal.signal(signal.SIGTERM, _interrupt)
    console = Console()
    metrics = RunMetrics(resource)
    with (
        metrics.served(config.metrics_port),
        web_page(resource, web) as page,
        display_for(console, resource.name, quiet) as display,
    ):
        if page.url:
            display.progress(f"web page at {page.url}")

        def watch(state: RunState, actions: list[dict[str, Any]]) -> None:
            metrics.watch(state)
            page.show(state)
            display.watch(state, actions)

        result = run_topology(config, watch, display.progress)
    verdict(console, result)
    raise SystemExit(EXIT[result.outcome])


def verdict(console: Console, result: RunResult) -> None:
    """Two or three lines at the end."""
    reason = f": {result.reason}" if result.reason not in ("", result.outcome.value) else ""
    style = "green" if result.ok else "red"
    console.print(
        f"{result.outcome.value}{reason}", style=style, highlight=False, markup=False, soft_wrap=True
    )
    for incident in result.incident.get("incidents", []):
        text = f"{incident['id']} {incident['kind']}: {len(incident['queries'])} queries lost: {incident['recovery']}"
        console.print(text, highlight=False, soft_wrap=True)
    console.print(f"results in {result.out}", highlight=False, soft_wrap=True)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
