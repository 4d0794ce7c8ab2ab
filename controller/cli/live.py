"""Progress of a run in the terminal: a page that redraws itself, or plain lines where there is no terminal.

Both show the same facts.  Plain lines say only what changed, so that a log of a run reads as its story.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Protocol, Self

from rich.console import Console
from rich.live import Live

from reprise.controller.cli.run_page import headline, page
from reprise.controller.cli.troubles import Troubles
from reprise.controller.plan_summary import plan_summary
from reprise.controller.status.actions import ARRIVED
from reprise.controller.status.query_state import RunState, Status

LAST_ACTIONS = 6
QUIET_BATCHES = 20
"""Plain mode says how things stand at least this often."""


class RunDisplay(Protocol):
    """What a run talks to; a context manager around the run."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def progress(self, line: str) -> None:
        """A line about the start."""

    def watch(self, state: RunState, actions: list[dict[str, Any]]) -> None:
        """The state now."""


def action_text(action: dict[str, Any]) -> str:
    """One line about one action."""
    at = f"{action['elapsed']:6.1f} s  " if "elapsed" in action else ""
    what = " ".join(action.get("nodes", [])) or str(action.get("target", ""))
    took = f" after {action['took']:.1f} s" if action["action"] == ARRIVED else ""
    error = f"  NOT DONE: {action['error']}" if "error" in action else ""
    return f"{at}{action['action']} {what}{took}{error}".rstrip()


class Silent:
    """Shows nothing, for --quiet."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def progress(self, line: str) -> None:
        """Nothing."""

    def watch(self, state: RunState, actions: list[dict[str, Any]]) -> None:
        """Nothing."""


class Page(Silent):
    """A page in a terminal."""

    def __init__(self, console: Console, name: str) -> None:
        self._console, self._name = console, name
        self._troubles = Troubles()
        self._live = Live(console=console, refresh_per_second=4, transient=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def progress(self, line: str) -> None:
        """Above the page."""
        self._console.print(line, style="dim", highlight=False)

    def watch(self, state: RunState, actions: list[dict[str, Any]]) -> None:
        """Redraw."""
        for line in self._troubles.new(state.observation):
            self._console.print(line, style="bold red", highlight=False, markup=False, soft_wrap=True)
        last = [action_text(action) for action in actions[-LAST_ACTIONS:]]
        rows = max(6, self._console.size.height - LAST_ACTIONS - 8)
        self._live.update(page(self._name, state, last, rows))


class Lines(Silent):
    """One line for each change."""

    def __init__(self, console: Console, name: str) -> None:
        self._console, self._name = console, name
        self._troubles = Troubles()
        self._actions = 0
        self._plans: set[str] = set()
        self._phase = ""
        self._ready: frozenset[str] | None = None
        self._batch = 0

    def progress(self, line: str) -> None:
        """Print the line as it is."""
        self._print(line)

    def watch(self, state: RunState, actions: list[dict[str, Any]]) -> None:
        """What is new."""
        for action in actions[self._actions :]:
            self._print(action_text(action))
        self._actions = len(actions)
        for line in self._troubles.new(state.observation):
            self._print(line)
        seen = state.observation
        incident = seen.incident
        phase = f"{incident.id} {incident.kind.value}, {incident.phase.value}" if incident else ""
        if phase != self._phase:
            self._print(f"incident {phase}" if phase else "incident closed")
            self._phase = phase
        new = [plan for plan_id, plan in seen.plans.items() if plan_id not in self._plans]
        for plan in sorted(new, key=lambda plan: plan.turn):
            self._print(f"plan {plan.id} {plan_summary(plan)}")
        self._plans |= seen.plans.keys()
        self._queries(state)

    def _queries(self, state: RunState) -> None:
        progress = state.observation.progress
        ready = frozenset(query.id for query in state.queries if query.status is Status.AVAILABLE)
        batch = progress.horizon if progress else 0
        moved = self._ready is not None and state.observation.incident is not None and ready != self._ready
        if moved or batch >= self._batch + QUIET_BATCHES or self._ready is None:
            self._print(headline(self._name, state))
            self._batch, self._ready = batch, ready

    def _print(self, line: str) -> None:
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)


def display_for(console: Console, name: str, quiet: bool) -> RunDisplay:
    """What suits the console."""
    if quiet:
        return Silent()
    return Page(console, name) if console.is_terminal else Lines(console, name)
