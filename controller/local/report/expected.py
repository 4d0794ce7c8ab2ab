"""Does the output of a run hold what its topology means, that is, what it gives in one process without Spark and faults?

Every output partition must have one file for every batch with the bytes that `reprise.spark_jobs.operators.local` says.
Nothing is written: the rows are computed again, batch by batch, and compared.
"""

from __future__ import annotations

from pathlib import Path

from reprise.controller.errors import ReportError
from reprise.controller.local.report.compare import Comparison, Piece, outputs, pieces
from reprise.controller.local.report.layout import queries_changed
from reprise.spark_jobs.operators.local import run_local
from reprise.spark_jobs.sinks import encoded
from reprise.spark_jobs.topology import StreamTopology


def verify(resource: StreamTopology, out: Path, ended: bool) -> Comparison:
    """What of the output below `out` is not what it should be: `missing`, `extra` and `different` files.

    `ended`: whether the streams have ended.  Where they have not, batches that a partition has not come to are not missing;
    one that has come to none is `silent`.
    Takes as long as the operators take, in this process.  ReportError when there is no output, or output that is not in
    files; StepError when code of an operator raises.
    """
    elsewhere = [o.name for o in resource.operators if o.output is not None and o.output.sink is not None]
    if elsewhere:
        raise ReportError(f"the output of {', '.join(elsewhere)} is not in files, and is not looked at here")
    if resource.arrival:
        raise ReportError(
            "input was applied in the order of its arrival (batch.order), so which batch a row is in differs from run to run"
        )
    if resource.checkpoint.start_from is not None:
        raise ReportError(
            "the run began from a savepoint (checkpoint.startFrom): what its operators knew by then is not computed again "
            "here; put its output together with that of the topology which took the savepoint, and `compare` the folders"
        )
    if queries_changed(out):
        raise ReportError(
            "queries came or went in this run (`reprise apply`): each begins or ends with a batch of its own, which is not "
            "computed again here"
        )
    there, twice = pieces(out)
    newest: dict[str, int] = {}
    for partition, batch in there:
        newest[partition] = max(batch, newest.get(partition, 0))
    if not newest:
        raise ReportError(f"{out}: no output")
    formats = outputs(resource)
    left = dict(there)
    equal, missing, different = 0, list[Piece](), list[Piece]()
    for batch, rows in enumerate(run_local(resource, None if ended else max(newest.values())), start=1):
        for query, fmt in formats.items():
            path = left.pop((query, batch), None)
            if path is None:
                if ended or batch <= newest.get(query, 0):
                    missing.append((query, batch))
                continue
            table = rows[query]
            data = b"" if table is None or not table.num_rows else encoded(fmt, table)
            if path.suffix == f".{fmt}" and path.read_bytes() == data:
                equal += 1
            else:
                different.append((query, batch))
    silent = tuple(sorted(formats.keys() - newest.keys()))
    return Comparison(
        equal, tuple(missing), tuple(sorted(left)), tuple(different), tuple(sorted(twice)), silent=silent
    )
