"""Whether the locations of a topology can be used from this process, as far as its packages and their URLs go."""

from __future__ import annotations

from collections.abc import Iterator

from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.storage.clients import keeps_copies, missing_client
from reprise.spark_jobs.topology.resource import StreamTopology


def out_of_reach(topology: StreamTopology) -> Iterator[SpecError]:
    """One mistake for each location whose store needs a package that is not here, or is behind copies that may be old."""
    policy = topology.checkpoint
    places = [("spec.checkpoint.location", policy.location), ("spec.sink.location", topology.sink_location)]
    places += [(f"spec.checkpoint.standby[{index}]", mirror) for index, mirror in enumerate(policy.standby)]
    for field, location in places:
        if location is not None and (reason := keeps_copies(location) or missing_client(location)):
            yield SpecError(field, reason)
