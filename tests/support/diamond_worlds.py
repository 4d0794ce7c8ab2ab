"""Worlds of one diamond on four nodes, and what tests ask of them."""

from __future__ import annotations

from typing import Any

from reprise.scheduler import Desired, Policy
from tests.support.recovery_simulator import World, diamond


def world(cpu: int = 50, deterministic: bool = True, **policy: Any) -> World:
    """Started on four nodes, with about three partitions on each."""
    return World(diamond(3, cpu, deterministic), Policy(nodes_wanted=4, **policy)).started(4)


def rules(w: World) -> list[str]:
    """Those that decided, in order, without what was only observed."""
    return [line.split()[1].rstrip(":") for line in w.log if "observed" not in line]


def desired(w: World) -> Desired:
    """What the driver is to do."""
    assert w.desired is not None
    return w.desired
