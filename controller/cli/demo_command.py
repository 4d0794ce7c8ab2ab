"""`reprise demo`: a large correlated failure, seen on this machine with what is installed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from reprise.controller.analysis.postmortem.counterfactual import blocking_loses
from reprise.controller.cli import exits
from reprise.controller.cli.carry_out import EXIT, carry_out
from reprise.controller.cli.demo_verdict import judge, show, stories
from reprise.controller.cli.render import plain_console
from reprise.controller.cli.up_command import next_folder
from reprise.controller.cli.verify_command import verified
from reprise.controller.local.faults.faults import Fault, load_faults
from reprise.controller.local.report.versus import draw_versus, since_failure
from reprise.controller.local.run.config import RunConfig, RunResult, load
from reprise.shipped import EXAMPLES
from reprise.spark_jobs.topology import StreamTopology, expand, override

FAULTS = EXAMPLES / "faults" / "demo.yaml"
TOPOLOGIES = {"tweets": EXAMPLES / "topology2.yaml", "flights": EXAMPLES / "flights.yaml"}


@click.command("demo")
@click.argument("example", type=click.Choice(list(TOPOLOGIES)), default="tweets")
@click.option("--compare", is_flag=True, help="Then lose the same nodes with blocking recovery, and compare.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of the run; by default reprise-demo/run-1, reprise-demo/run-2, ... in this folder.",
)
@click.option("--no-web", is_flag=True, help="Serve no page.")
@click.option("-q", "--quiet", is_flag=True, help="Only the verdict.")
def command(example: str, compare: bool, out: Path | None, no_web: bool, quiet: bool) -> None:
    """Kill eight of ten nodes of this machine at once, and watch the queries come back as new nodes arrive.

    EXAMPLE is `tweets` (15 queries over generated tweets) or `flights` (22 queries over the flights out of New York in
    2013; needs `pip install 'reprise-streams[demo]'`). The demo takes two to three minutes on two idle cores, twice as
    long with --compare.

    The verdict has the downtime of each query, what blocking recovery loses at least, and whether every output is right:
    the outputs are computed again in one process without faults and compared byte by byte. Exit code 0: PASSED.

    \b
    Examples:
      reprise demo
      reprise demo flights --compare --out /tmp/demo
    """
    console = plain_console()
    resource = load(TOPOLOGIES[example])
    out = out or next_folder(Path("reprise-demo"))
    faults = load_faults(FAULTS, resource.nodes.count, expand(resource))
    web = None if no_web else 0
    if not quiet:
        for line in _announced(resource, faults):
            click.echo(line)
    run = _run(resource, out, faults, web, quiet)
    blocking = None
    if compare:
        stop_and_wait = override(resource, {"recovery.strategy": "blocking"})
        blocking = _run(stop_and_wait, out / "blocking", faults, web, quiet)
    if not quiet:
        click.echo("computing the right outputs in this process")
    outputs = {"incremental": verified(out, resource)}
    if blocking is not None:
        outputs["blocking"] = verified(blocking.out, resource)
    verdict = judge(run, outputs, blocking_loses(stories(out)), resource.batch_interval_s, blocking)
    show(console, verdict)
    pictures = [out / "queries.png"]
    if blocking is not None:
        runs = {"incremental": run, "blocking": blocking}
        curves = {name: since_failure(r.incident) for name, r in runs.items() if "series" in r.incident}
        pictures.append(draw_versus(curves, out / "comparison").with_suffix(".png"))
    click.echo(f"what happened: reprise history --out {out}; pictures: {', '.join(map(str, pictures))}")
    if not verdict.passed:
        raise SystemExit(exits.NO)


def _announced(resource: StreamTopology, faults: Sequence[Fault]) -> list[str]:
    kills = [
        f"{len(fault.nodes)} of them are killed at once {fault.trigger.describe()}."
        for fault in faults
        if fault.action == "kill"
    ]
    adds = [fault for fault in faults if fault.action == "add"]
    after = ", ".join(f"{fault.trigger.delay_s:.0f}" for fault in adds)
    return [
        f"{resource.name}: {len(expand(resource).queries)} queries on {resource.nodes.count} nodes, which are processes of"
        f" this machine; a batch every {resource.batch_interval_s:g} s.",
        *kills,
        f"{sum(fault.count for fault in adds)} new nodes are requested {after} s later, as in a spot market.",
    ]


def _run(
    resource: StreamTopology, out: Path, faults: tuple[Fault, ...], web: int | None, quiet: bool
) -> RunResult:
    """Exit with the code of the outcome where the run did not come to its end."""
    result = carry_out(RunConfig(resource=resource, out=out, faults=faults), web, quiet)
    if not result.ok:
        raise SystemExit(EXIT[result.outcome])
    return result
