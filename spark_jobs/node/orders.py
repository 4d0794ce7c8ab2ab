"""How orders travel: what a host is told of a command, and how the host makes the whole command of it again.

A command is level-triggered and names every partition that the host's own send to.  Of hundreds of nodes each would be told
thousands of positions several times a second, nearly all of them equal or known.  So an order holds what its host needs
alone, by operator, and only what changed since a job whose orders the host took in: its base.  An order without a base is
whole.  Invariant: a host that has not taken in the base, or anything after it, refuses the order (`MissedOrdersError`) and
is as it was: the job fails, and the next orders are whole.  `reprise.spark_jobs.engine.dispatch` writes what is read here.

An order is one JSON object: epoch, job, base (null: whole) and slot; `always` in whole orders; the fields of `EACH` and,
where they changed, of `HELD`; the ranges of this job; `readers`: operator -> `Told`; `near`, of what the host's partitions
reach over `forward` edges: target -> (slot, position); `resend`, those of `near` that must be sent everything again; and,
where there are any, `snapshot`, `skips`, `sealed`, `standbys`, `causes`, `within`, `waits` and `hold`; in a survey,
`survey`.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from reprise.algorithms.positions import Positions
from reprise.spark_jobs.contract import Range
from reprise.spark_jobs.errors import LateRequestError, MissedOrdersError, WireError
from reprise.spark_jobs.node.command import Command, Due, Install, Order, Shadow
from reprise.spark_jobs.state.skips import Skip
from reprise.spark_jobs.version import require_same

ALWAYS = ("topology", "sink", "checkpoints", "window", "budget_s", "stream", "begins", "later")
"""Fields of a command that stay the same for a driver's life: whole orders have them."""
EACH = (
    "horizon", "due", "final", "punctuations", "retain", "keeps", "confirmed", "published", "link",
    "link_key", "generation",
)  # fmt: skip
"""Fields that each order has, the same for all hosts."""
HELD = ("hosted", "installs", "covered")
"""Fields that an order leaves out where they are as in its base."""
ABSENT = -1
"""Slot of a partition that is not at work."""

_OTHERS = (
    "version",
    "epoch",
    "job",
    "base",
    "slot",
    "always",
    "readers",
    "near",
    "resend",
    "ranges",
    "snapshot",
    "skips",
    "sealed",
    "standbys",
    "causes",
    "within",
    "waits",
    "hold",
    "survey",
)
ORDER_FIELDS = frozenset((*_OTHERS, *EACH, *HELD))
"""All that an order may have."""


@dataclass(slots=True)
class Told:
    """How the partitions of one operator stand, by index: the slot of each, and positions as the one that most have, with
    those that differ from it.

    On the wire: `slots`, all of them in a list or those that changed by index; `at`; `but`, by index, null for one that has
    the common position again; `again`: the indices of those that must be sent everything again, true for all.  What is left
    out has not changed, and nobody must be sent anything again.
    """

    slots: array[int] = field(default_factory=lambda: array("i"))
    at: int = 0
    but: dict[int, int] = field(default_factory=dict)

    def change(self, raw: Mapping[str, Any]) -> Told:
        """What stands after the change that was read."""
        slots = self.slots
        if isinstance(found := raw.get("slots"), list):
            slots = array("i", found)
        elif found is not None:
            slots = array("i", slots)
            for index, slot in found.items():
                slots[int(index)] = slot
        but = dict(self.but)
        for index, position in raw.get("but", {}).items():
            if position is None:
                del but[int(index)]
            else:
                but[int(index)] = position
        return Told(slots, raw.get("at", self.at), but)


@dataclass(frozen=True, slots=True)
class _Book:
    """All that a host was told up to the orders of one job."""

    always: Mapping[str, Any]
    held: Mapping[str, Any]
    told: Mapping[str, Told]
    near: Mapping[str, tuple[int, int]]
    """Target of a `forward` edge -> its slot and position."""


class _Made(Mapping[str, int]):
    """Partition -> number, made when somebody asks: of thousands of partitions, while hosts may have nothing to do."""

    def __init__(self, make: Callable[[], dict[str, int]]) -> None:
        self._make = make
        self._made: dict[str, int] | None = None

    def _all(self) -> dict[str, int]:
        if self._made is None:
            self._made = self._make()
        return self._made

    def __getitem__(self, key: str) -> int:
        return self._all()[key]

    def __contains__(self, key: object) -> bool:
        return key in self._all()

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())


class Orders:
    """What a host has been told; it ends with the host."""

    def __init__(self) -> None:
        self._command: Command | None = None
        self._book: _Book | None = None

    def read(self, data: bytes) -> Command:
        """The command that an order amounts to, now that it is taken in.

        Nothing has changed when it raises: LateRequestError for an order of an earlier job or driver than the one that was
        read last, MissedOrdersError for one whose base was not, VersionError, WireError naming what is wrong.
        """
        try:
            raw = json.loads(data)
            require_same(raw.get("version"), "the driver", "this executor")
            if unknown := set(raw) - ORDER_FIELDS:
                raise WireError(f"command has unknown fields {sorted(unknown)}")
            order: Order = (raw["epoch"], raw["job"])
            if self._command is not None and order <= self._command.order:
                return self._again(order)
            book = self._opened(order, raw["base"], raw)
            command = _command(order, raw, book)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise WireError(f"not a command: {error!r}") from error
        self._command, self._book = command, book
        return command

    def _again(self, order: Order) -> Command:
        command = self._command
        assert command is not None
        if order < command.order:
            raise late("command", order, command)
        return command

    def _opened(self, order: Order, base: int | None, raw: Mapping[str, Any]) -> _Book:
        """The book with a new page, or a new book."""
        if base is None:
            book = _Book(raw["always"], {}, {}, {})
        elif self._book is None or self._command is None or self._command.order != (order[0], base):
            has = (
                "none" if self._command is None else "those of epoch {}, job {}".format(*self._command.order)
            )
            raise MissedOrdersError(
                f"orders of epoch {order[0]}, job {order[1]} say what changed since job {base}, "
                f"and this host has {has}"
            )
        else:
            book = self._book
        held = {**book.held, **{name: raw[name] for name in HELD if name in raw}}
        told = {
            **book.told,
            **{name: book.told.get(name, Told()).change(x) for name, x in raw["readers"].items()},
        }
        near = {**book.near, **{target: (slot, at) for target, (slot, at) in raw.get("near", {}).items()}}
        return _Book(book.always, held, told, near)


def late(what: str, order: Order, command: Command) -> LateRequestError:
    """What a request of an order that is not the newest one is refused with."""
    return LateRequestError(
        f"{what} of epoch {order[0]}, job {order[1]} refused: epoch {command.epoch}, job {command.job} has begun"
    )


def _command(order: Order, raw: Mapping[str, Any], book: _Book) -> Command:
    resend = list(raw.get("resend", ()))
    for name, told in book.told.items():
        again = raw["readers"].get(name, {}).get("again", ())
        named = range(len(told.slots)) if again is True else again
        resend += [f"{name}.{index}" for index in named if told.slots[index] != ABSENT]
    return Command(
        epoch=order[0],
        job=order[1],
        slot=raw["slot"],
        **{name: book.always[name] for name in ALWAYS},
        **{name: raw[name] for name in EACH if name not in ("due", "punctuations")},
        due=None if raw["due"] is None else Due(*raw["due"]),
        punctuations=tuple(raw["punctuations"]),
        hosted=book.held["hosted"],
        installs={p: Install(**i) for p, i in book.held["installs"].items()},
        snapshot=raw.get("snapshot", {}),
        skips=tuple(Skip.parse(skip) for skip in raw.get("skips", ())),
        sealed=tuple(raw.get("sealed", ())),
        standbys={p: Shadow(*told) for p, told in raw.get("standbys", {}).items()},
        causes=raw.get("causes", {}),
        within=raw.get("within", {}),
        waits=tuple(raw.get("waits", ())),
        hold=raw.get("hold", False),
        survey=raw.get("survey", False),
        covered=Positions(**book.held["covered"]),
        routes=_Made(lambda: _routes(book)),
        positions=_Made(lambda: _positions(book)),
        resend=tuple(sorted(resend)),
        ranges={
            p: {int(b): Range.parse(span) for b, span in spans.items()} for p, spans in raw["ranges"].items()
        },
    )


def _routes(book: _Book) -> dict[str, int]:
    found = {
        f"{name}.{index}": slot
        for name, told in book.told.items()
        for index, slot in enumerate(told.slots)
        if slot != ABSENT
    }
    return found | {target: slot for target, (slot, _) in book.near.items() if slot != ABSENT}


def _positions(book: _Book) -> dict[str, int]:
    found = {
        f"{name}.{index}": told.but.get(index, told.at)
        for name, told in book.told.items()
        for index, slot in enumerate(told.slots)
        if slot != ABSENT
    }
    return found | {target: position for target, (slot, position) in book.near.items() if slot != ABSENT}
