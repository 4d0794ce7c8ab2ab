"""Which topologies a continuous exchange carries: one table of the modes that it does not carry yet."""

from __future__ import annotations

from collections.abc import Callable

from reprise.spark_jobs.topology.resource import StreamTopology

_CARRIED = ("checkpoint", "amnesia")
"""Values of `availability`."""


def _availability(topology: StreamTopology) -> str:
    modes = sorted({o.availability for o in topology.operators} - set(_CARRIED))
    return f"availability: {modes[0]}" if modes else ""


_NOT_CARRIED: tuple[Callable[[StreamTopology], str], ...] = (
    lambda topology: "checkpoint.protocol: eventual" if topology.checkpoint.eventual else "",
    lambda topology: "batch.order: arrival" if topology.arrival else "",
    lambda topology: "recovery.driverGrace" if topology.recovery.driver_grace_s > 0 else "",
    _availability,
)
"""Each gives the setting that an exchange does not carry, if the topology has it."""


def why_chained(topology: StreamTopology) -> str:
    """Why messages of this topology travel with the stages of jobs; empty: an exchange carries them, if the driver's probe
    finds that one works."""
    if topology.spark.exchange == "chained":
        return "spark.exchange is 'chained'"
    found = next(filter(None, (setting(topology) for setting in _NOT_CARRIED)), "")
    return f"an exchange does not carry `{found}` yet" if found else ""
