"""`reprise validate`: is this a topology, and what does it give for the first batches?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import click
import pyarrow as pa

from reprise.controller.cli import exits
from reprise.controller.cli.options import parse_sets, sets_option, topology_option
from reprise.controller.local.run.config import load
from reprise.controller.plural import counted
from reprise.spark_jobs.contract import LATE_ROWS
from reprise.spark_jobs.errors import (
    DataPlaneError,
    EncodeError,
    NotYetError,
    SourceError,
    StepError,
    StoreError,
)
from reprise.spark_jobs.operators.local import run_local
from reprise.spark_jobs.sinks.files import encoded
from reprise.spark_jobs.state.rescaling import rescaling
from reprise.spark_jobs.state.start_from import savepoint_of
from reprise.spark_jobs.topology import StreamTopology, Topology, check, expand, make_operator, make_source
from reprise.spark_jobs.topology.availability import backed_beside_standbys, waiting_for_standbys
from reprise.spark_jobs.topology.class_path import public
from reprise.spark_jobs.topology.given_up import given_up
from reprise.spark_jobs.topology.guarantees import described, guarantees, with_an_oldest_input


@click.command("validate")
@topology_option
@sets_option
@click.option(
    "--try",
    "batches",
    type=click.IntRange(1, 100_000),
    metavar="N",
    help="Also run N batches in this process, and say what comes out.",
)
def command(file: Path, sets: tuple[str, ...], batches: int | None) -> None:
    """Check a topology file: fields, graph, classes, their parameters, files, and columns as far as they are known.

    Everything that is wrong is told at once, with its line.

    With --try the first batches are run in this process, without Spark: rows of each output, or what raised, where.

    \b
    Examples:
      reprise validate -f examples/flights.yaml
      reprise validate -f examples/minimal.yaml --try 5
    """
    resource = load(file, overrides=parse_sets(sets))
    topology = expand(resource)
    for warning in check(resource):
        click.echo(f"warning: {warning.field}: {warning.reason}", err=True)
    try:
        if (savepoint := savepoint_of(resource)) is not None:
            where = f"savepoint {savepoint.name} of {savepoint.namespace}/{savepoint.topology}"
            click.echo(f"begins from {where}, after batch {savepoint.position}")
            for change in rescaling(savepoint.stages, resource):
                click.echo(f"  {change}")
    except StoreError as error:
        click.echo(f"warning: spec.checkpoint.startFrom: not looked at: {error}", err=True)
    for line in renamed(resource):
        click.echo(f"note: {line}", err=True)
    types = found_types(resource)
    click.echo(f"{file}: valid; {len(topology.partitions)} partitions, {len(topology.queries)} queries")
    operators = {o.name: make_operator(o) for o in resource.operators}
    fed = with_an_oldest_input(operators, backed_beside_standbys(resource))
    deterministic = {name: operator.kind.deterministic for name, operator in operators.items()}
    promised = guarantees(resource, deterministic, given_up(resource, own_code=True))
    waiting = waiting_for_standbys(resource, topology, lambda spec: deterministic[spec.name])
    waits = {topology.partitions[p].place.operator for p in waiting}
    for line in described(resource, promised, fed, waits):
        click.echo(line)
    for line in types:
        click.echo(line)
    if batches is not None:
        attempt(resource, topology, batches)


def found_types(resource: StreamTopology) -> list[str]:
    """A line for each source with columns whose types are not declared: those that its data have.  Ends the command where
    they cannot be read."""
    found = []
    for spec in resource.sources:
        source = make_source(spec)
        try:
            types = source.found_types()
        except DataPlaneError as error:
            exits.fail(f"spec.sources[{spec.name}]: {error}", exits.NO)
        finally:
            source.close()
        if types:
            named = ", ".join(f"{name} {kind}" for name, kind in types.items())
            found.append(f"source {spec.name}: {named} (as found in its files; `columns` declares them)")
    return found


def renamed(resource: StreamTopology) -> list[str]:
    """A line for each class of the library that has a better name than the one that is given, which stays valid."""
    paths = [stage.class_path for stage in resource.stages]
    paths += [o.output.sink.class_path for o in resource.operators if o.output and o.output.sink]
    return [f"{path} is called {public(path)} now" for path in dict.fromkeys(paths) if public(path) != path]


def attempt(resource: StreamTopology, topology: Topology, batches: int) -> None:
    """Prints what the outputs get; exit code 1 with the first failure."""
    rows, columns, ran = Counter[str](), dict[str, str](), 0
    trouble, counters = "", dict[str, Mapping[str, int]]()
    try:
        for outputs in run_local(resource, batches, counters):
            ran += 1
            for partition in topology.outputs:
                if (table := outputs[partition]) is not None:
                    rows[partition] += table.num_rows
                    columns[partition] = ", ".join(table.column_names)
                    _written(resource, partition, table)
    except (StepError, SourceError, NotYetError, EncodeError) as error:
        trouble = str(error)
    click.echo(f"tried {counted(ran, 'batch', 'batches')}:")
    width = max(len(partition) for partition in topology.outputs)
    for partition in topology.outputs:
        what = f"{rows[partition]:>8} rows: {columns[partition]}" if rows[partition] else f"{0:>8} rows"
        click.echo(f"  {partition:<{width}} {what}")
    for partition, counted_there in counters.items():
        if late := counted_there.get(LATE_ROWS, 0):
            click.echo(
                f"warning: {partition} has left out {counted(late, 'late row', 'late rows')}: {_LATE}",
                err=True,
            )
    if trouble:
        exits.fail(trouble, exits.NO)


_LATE = (
    "they came behind the watermark, which one row of the far future may have moved (`disorder`, `lateness`)"
)


def _written(resource: StreamTopology, partition: str, table: pa.Table) -> None:
    """Whether files can hold these rows.  EncodeError says which columns they cannot."""
    output = resource.operator(partition.rpartition(".")[0]).output
    if output is not None and output.sink is None:
        try:
            encoded(output.format, table)
        except EncodeError as error:
            raise EncodeError(f"{partition}: {error}") from error
