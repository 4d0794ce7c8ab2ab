"""Addresses and ports that no other process takes between the look and the use."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from reprise.controller.local.cluster.addresses import HEAD, claim_prefix

_LOWEST = 10_000
_CLAIMS = "127.255.255.254"
"""Nobody's address.  A process that has bound a port here owns the same port of 127.0.0.1 until it ends."""
_claimed: list[socket.socket] = []


@contextmanager
def own_host() -> Iterator[str]:
    """A loopback address on which nobody else asks for a port: `addresses.free_port` is sure there."""
    prefix, claim = claim_prefix()
    with claim:
        yield f"{prefix}.{HEAD}"


def ports_in_a_row(count: int) -> range:
    """For servers that listen at 127.0.0.1: free, below those that the kernel gives to connections, and given to no other
    process by this function."""
    highest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0]) - count
    while True:
        found = range(first := random.randrange(_LOWEST, highest), first + count)
        claims = [socket.socket() for _ in found]
        with ExitStack() as held:
            try:
                for port, claim in zip(found, claims, strict=True):
                    claim.bind((_CLAIMS, port))
                    held.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                for claim in claims:
                    claim.close()
                continue
        _claimed.extend(claims)
        return found
