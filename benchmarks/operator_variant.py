"""`python -m benchmarks.operator_variant NAME ... -- OPTIONS`: the operator, without some of what makes it fast.

So that each can be measured alone against what it costs to read (`python -m benchmarks.operator_scale --without`).  The
operator itself has no such switches: what is left out is replaced here, before its process begins.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace

from kazoo.handlers.threading import SequentialThreadingHandler

from reprise.controller.coordinator.coordinator import Coordinator
from reprise.controller.operator import __main__ as program
from reprise.controller.operator import handlers, interpreter
from reprise.controller.operator.loop import poll_schedule
from reprise.controller.operator.loop.burst_gate import BurstGate
from reprise.controller.zookeeper import client


def _nothing(*_: object) -> None:
    return


class _NoGarbage:
    """Leaves the collector as Python has it."""

    def tidy(self) -> None:
        return


def _without_burst_gate() -> None:
    """In a burst, reconciliations and polls no longer wait for decisions."""
    setattr(BurstGate, "decided", _nothing)  # noqa: B010  (a method is replaced)


def _without_stagger() -> None:
    """Topologies that were found together are looked at together."""
    setattr(poll_schedule, "random", SimpleNamespace(uniform=lambda _least, most: most))  # noqa: B010


def _without_own_io() -> None:
    """kazoo's own threads read and write the sockets."""
    setattr(client, "PollHandler", SequentialThreadingHandler)  # noqa: B010


def _without_precomputed_plans() -> None:
    """A plan is made when the burst has settled, and not meanwhile."""
    setattr(Coordinator, "precompute", _nothing)  # noqa: B010


def _without_interpreter_settings() -> None:
    """Turns of threads, heaps and garbage collection as Python has them."""
    setattr(interpreter, "set_up", _nothing)  # noqa: B010
    setattr(handlers, "Garbage", _NoGarbage)  # noqa: B010


SWITCHES: dict[str, Callable[[], None]] = {
    "burst-gate": _without_burst_gate,
    "stagger": _without_stagger,
    "own-io": _without_own_io,
    "precomputed-plans": _without_precomputed_plans,
    "interpreter": _without_interpreter_settings,
}
"""What can be left out, by its name on the command line."""


def main(words: list[str]) -> int:
    """`words`: names from SWITCHES, `--`, and the operator's own options."""
    cut = words.index("--")
    for name in words[:cut]:
        SWITCHES[name]()
    sys.argv = [sys.argv[0], *words[cut + 1 :]]
    return program.main()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
