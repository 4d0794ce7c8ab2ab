"""Versions of stored states: whether the classes of a topology can read what is stored.

`Operator.state_version` is in the file of each state (`reprise.spark_jobs.node.state_tables`) and in the manifest that names
it, where it is not 1.  Invariant: a state of a version that its class does not read is not damaged, so no older checkpoint
is taken instead: the driver is refused before anything starts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress

from reprise.spark_jobs.contract import Operator
from reprise.spark_jobs.errors import DamagedError, NewerVersionError, SpecError, raise_all
from reprise.spark_jobs.state.checkpoints import CheckpointStore
from reprise.spark_jobs.state.snapshot import StateFile
from reprise.spark_jobs.topology import StreamTopology, make_operator


def require_readable_states(resource: StreamTopology, store: CheckpointStore, newest: int) -> None:
    """SpecError where a class does not read its states in the newest checkpoint.  StoreError: it cannot be told now.  One
    that is damaged, or newer, is found when it is read; of older ones their partitions say it, when they are gone back
    to."""
    if newest:
        with suppress(DamagedError, NewerVersionError):
            raise_all(unreadable(resource, store.manifest(newest).files, f"checkpoint {newest}"))


def unreadable(resource: StreamTopology, states: Mapping[str, StateFile], where: str) -> Iterator[SpecError]:
    """Operators that cannot read their states, by partition, which are in `where`.  A class that cannot be made here says
    why when its partitions are installed."""
    for spec in resource.operators:
        versions = {f.state_version for p, f in states.items() if p.rpartition(".")[0] == spec.name}
        if not versions:
            continue
        try:
            operator: Operator = make_operator(spec)
        except SpecError:
            continue
        for version in sorted(versions):
            if not operator.reads_state(version):
                yield SpecError(
                    f"spec.operators[{spec.name}].class",
                    f"its state in {where} has version {version}, and {spec.class_path!r} reads {operator.state_versions}: "
                    f"{'go back to the newer class' if version > operator.state_version else _ADVICE}",
                )


_ADVICE = "define `upgrade_state` for it, or give the operator another name so that it begins anew"
