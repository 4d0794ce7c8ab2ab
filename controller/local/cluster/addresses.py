"""Loopback addresses: each live cluster on a machine has a prefix 127.x.y of its own, each node an address in
it.

A prefix is claimed by a socket bound to its address 254 at a fixed port. The kernel gives it to one claimant
only and takes it back when the last process that holds the socket ends, so there are no stale claims to clean
up. The reaper holds a copy: a prefix stays taken until the processes that use it are gone.
"""

import socket
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack

from reprise.controller.errors import AddressError

CLAIM_PORT = 47147
HEAD = 253
"""Host number of the master and ZooKeeper."""
_CLAIM = 254
_LAST_NODE = 250


def prefixes() -> Iterator[str]:
    """127.0.1, 127.0.2, ... 127.63.254. Never 127.0.0: everybody else's servers are there."""
    for x in range(64):
        for y in range(1, 255):
            yield f"127.{x}.{y}"


def claim_prefix() -> tuple[str, socket.socket]:
    """A free prefix, and the socket that must stay open as long as it is used."""
    for prefix in prefixes():
        claim = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            claim.bind((f"{prefix}.{_CLAIM}", CLAIM_PORT))
        except OSError:
            claim.close()
            continue
        return prefix, claim
    raise AddressError(f"no free loopback prefix (port {CLAIM_PORT} is bound on all of them)")


def free_port(host: str) -> int:
    """A port that is free on `host` now. On an address of a claimed prefix nobody else looks for one."""
    return free_ports(host, 1)[0]


def free_ports(host: str, count: int) -> list[int]:
    """So many different ones."""
    with ExitStack() as held:
        probes = [held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) for _ in range(count)]
        try:
            for probe in probes:
                probe.bind((host, 0))
        except OSError as error:
            raise AddressError(f"no free port on {host}: {error}") from error
        return [int(probe.getsockname()[1]) for probe in probes]


class HostPool:
    """Hands out node addresses; one that is given back is used again last.

    Spark's driver remembers hosts of dead executors for a while, so a new node should not look like
    an old one.
    """

    def __init__(self, prefix: str) -> None:
        self._free = deque(f"{prefix}.{n}" for n in range(1, _LAST_NODE + 1))

    def take(self) -> str:
        """An address that no live node has."""
        if not self._free:
            raise AddressError(f"all {_LAST_NODE} node addresses are in use")
        return self._free.popleft()

    def give_back(self, host: str) -> None:
        """The node at `host` is gone."""
        self._free.append(host)
