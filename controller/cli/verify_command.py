"""`reprise verify`: was anything lost or doubled in a run?"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from reprise.controller.cli import exits
from reprise.controller.cli.compare_command import tell
from reprise.controller.cli.options import out_option
from reprise.controller.cli.render import output_option
from reprise.controller.local.report.compare import Comparison
from reprise.controller.local.report.expected import verify
from reprise.controller.local.report.layout import read_record
from reprise.spark_jobs.topology import StreamTopology, from_json


@click.command("verify")
@out_option
@click.option(
    "--code",
    type=click.Path(path_type=Path, file_okay=False),
    default=".",
    show_default=True,
    help="The folder of your own modules, if the topology names any.",
)
@output_option
def command(out: Path, code: Path, output: str) -> None:
    """Compute the output of a run again in this process, without Spark and without faults, and compare each file.

    Says `identical` when every output partition has every batch with the same bytes; of a run that did not end, every batch
    up to its own newest, and queries that have shown nothing are named. Exit code 1: something is missing, extra or
    different, which batches that are marked as lacking rows are, too. It is for topologies whose operators are
    deterministic, whose input is still there, and whose outputs are all in files; else it says why not, with exit code 2.

    \b
    Examples:
      reprise verify --out out/eight
      reprise verify --out out/run-1 -o json
    """
    sys.path.append(str(code.resolve()))
    found = verified(out, None)
    tell(found, output)
    if not found.identical:
        raise SystemExit(exits.NO)


def verified(out: Path, resource: StreamTopology | None) -> Comparison:
    """The comparison for a folder of a run; `resource` where it is at hand already."""
    record = read_record(out)
    if record is None:
        raise click.BadParameter(f"{out} holds no run", param_hint="--out")
    if resource is None:
        resource = from_json((out / "topology.json").read_text(encoding="utf-8", errors="replace"))
    return verify(resource, out, record.get("outcome") == "done")
