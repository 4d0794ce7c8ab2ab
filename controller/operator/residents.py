"""Which topologies have pods on which machine, and the machines themselves, out of what the watches have told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from controller.operator.pods import Machine

Key = tuple[str, str]
"""Namespace and name of a topology."""


class Residents:
    """Who is to be told when something happens to a machine; used by the event loop alone."""

    def __init__(self) -> None:
        self._where: dict[str, str] = {}
        self._there: dict[str, dict[str, Key]] = {}

    def move(self, pod: str, machine: str, topology: Key) -> None:
        """The pod with this uid is on `machine` now; nowhere, when that is empty."""
        before = self._where.pop(pod, "")
        if before:
            self._there[before].pop(pod, None)
            if not self._there[before]:
                del self._there[before]
        if machine:
            self._where[pod] = machine
            self._there.setdefault(machine, {})[pod] = topology

    def of(self, machine: str) -> frozenset[Key]:
        return frozenset(self._there.get(machine, {}).values())


class MachineIndex(Mapping[str, Machine]):
    """kopf's index of Nodes as a plain mapping, without a copy of thousands of them for each look."""

    def __init__(self, index: Any) -> None:
        self._index = index

    def __getitem__(self, name: str) -> Machine:
        machine: Machine = next(iter(self._index[name]))
        return machine

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._index))

    def __len__(self) -> int:
        return len(self._index)
