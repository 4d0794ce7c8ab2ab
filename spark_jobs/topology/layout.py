"""Where to draw the operators of a topology: layers from left to right, few crossings.

Operators, not partitions, are laid out: fifty partitions with all their edges are not readable, a dozen boxes
of partitions are. Layer = longest way from a source without feedback edges; within a layer operators are
sorted by the mean height of what they read, twice back and forth (the barycentre heuristic).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from reprise.spark_jobs.topology.graph import Partition, Topology
from reprise.spark_jobs.topology.resource import Grouping, Mode

CELLS_A_ROW = 4


@dataclass(frozen=True, slots=True)
class Edge:
    """One subscription."""

    origin: str
    target: str
    grouping: Grouping
    feedback: bool

    @property
    def label(self) -> str:
        """How the rows are spread."""
        match self.grouping.mode:
            case Mode.KEYS:
                return f"by {', '.join(self.grouping.by)}"
            case Mode.SINGLE:
                return ""
            case mode:
                return str(mode)


@dataclass(frozen=True, slots=True)
class Box:
    """One operator: its layer, the height of its middle and its number of rows of cells."""

    layer: int
    y: float
    rows: int


def by_operator(topology: Topology) -> dict[str, list[Partition]]:
    """Partitions by operator, both in topological order."""
    result: dict[str, list[Partition]] = {}
    for partition in topology.partitions.values():
        result.setdefault(partition.place.operator, []).append(partition)
    return result


def edges(topology: Topology) -> list[Edge]:
    """All subscriptions, in topological order of their origin."""
    return [
        Edge(name, d.operator, d.grouping, d.feedback)
        for name, partitions in by_operator(topology).items()
        for d in partitions[0].downstream
    ]


@dataclass(frozen=True, slots=True)
class Layout:
    """Boxes by operator, and the heights at which each edge passes the layers between its ends."""

    boxes: Mapping[str, Box]
    gaps: Mapping[Edge, tuple[float, ...]]


def place(topology: Topology) -> Layout:
    """The whole layout; heights are in rows of cells, centred on 0."""
    operators = by_operator(topology)
    forward = [e for e in edges(topology) if not e.feedback]
    layer = dict.fromkeys(operators, 0)
    for edge in forward:  # in topological order, so origins are final
        layer[edge.target] = max(layer[edge.target], layer[edge.origin] + 1)
    rows: dict[str, float] = {n: -(-len(p) // CELLS_A_ROW) for n, p in operators.items()}
    layers = [[n for n in operators if layer[n] == k] for k in range(max(layer.values(), default=0) + 1)]
    chains = {
        e: [
            e.origin,
            *(f"{e.origin}/{e.target}/{k}" for k in range(layer[e.origin] + 1, layer[e.target])),
            e.target,
        ]
        for e in forward
    }
    for edge, chain in chains.items():
        for k, name in enumerate(chain[1:-1], layer[edge.origin] + 1):
            layers[k].append(name)
            rows[name] = -1.0
    links = [pair for chain in chains.values() for pair in pairwise(chain)]
    y = _heights(layers, rows, links)
    gaps = {e: tuple(y[name] for name in chain[1:-1]) for e, chain in chains.items()}
    return Layout({n: Box(layer[n], y[n], round(rows[n])) for n in operators}, gaps)


def _heights(
    layers: list[list[str]], rows: Mapping[str, float], links: Sequence[tuple[str, str]]
) -> dict[str, float]:
    y = _stack(layers, rows)
    for _ in range(4):
        for names in layers[1:]:
            _sort(names, [(b, a) for a, b in links], y)
            y = _stack(layers, rows)
        for names in reversed(layers[:-1]):
            _sort(names, links, y)
            y = _stack(layers, rows)
    return y


def _stack(layers: Sequence[Sequence[str]], rows: Mapping[str, float]) -> dict[str, float]:
    y = {}
    for names in layers:
        top = -sum(_height(rows[n]) for n in names) / 2
        for name in names:
            y[name] = top + _height(rows[name]) / 2
            top += _height(rows[name])
    return y


def _height(rows: float) -> float:
    """Rows of cells, a title and a gap."""
    return rows + 1.6


def _sort(names: list[str], pairs: Sequence[tuple[str, str]], y: Mapping[str, float]) -> None:
    """Sort names by the mean height of the second of all pairs that a name is the first of."""
    mean = {}
    for name in names:
        near = [y[b] for a, b in pairs if a == name]
        mean[name] = sum(near) / len(near) if near else y[name]
    names.sort(key=mean.__getitem__)
