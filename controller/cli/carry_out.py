"""A run with its display, its page and its metrics, from start to verdict: what `run`, `up` and `demo` have in common."""

from __future__ import annotations

import signal
from typing import Any

from rich.console import Console

from reprise.controller.cli import exits
from reprise.controller.cli.live import display_for
from reprise.controller.cli.render import plain_console
from reprise.controller.cli.web_option import web_page
from reprise.controller.local.run.config import Outcome, RunConfig, RunResult
from reprise.controller.local.run.supervisor import run_topology
from reprise.controller.observability.metrics.endpoint import RunMetrics
from reprise.controller.status.query_state import RunState
from reprise.spark_jobs.topology import StreamTopology

EXIT = {
    Outcome.DONE: exits.DONE,
    Outcome.POISONED: exits.NO,
    Outcome.FAILED: exits.NO,
    Outcome.TIMEOUT: exits.TIMED_OUT,
    Outcome.INTERRUPTED: exits.INTERRUPTED,
}


def carry_out(config: RunConfig, web: int | None, quiet: bool) -> RunResult:
    """Run until the streams end or Ctrl-C, and print the verdict.  `web`: the port of a page, 0 for any, None for none."""
    signal.signal(signal.SIGTERM, _interrupt)
    console, resource = plain_console(), config.resource
    metrics = RunMetrics(resource)
    with (
        metrics.served(config.metrics_port),
        web_page(resource, web) as page,
        display_for(console, resource.name, quiet) as display,
    ):
        if page.url:
            display.progress(f"web page at {page.url}")

        def watch(state: RunState, actions: list[dict[str, Any]]) -> None:
            metrics.watch(state)
            page.show(state)
            display.watch(state, actions)

        def changed(other: StreamTopology) -> None:
            metrics.follow(other)
            page.follow(other)

        result = run_topology(config, watch, display.progress, changed)
    verdict(console, result)
    return result


def verdict(console: Console, result: RunResult) -> None:
    """Two or three lines at the end."""
    reason = f": {result.reason}" if result.reason not in ("", result.outcome.value) else ""
    style = "green" if result.ok else "red"
    console.print(
        f"{result.outcome.value}{reason}", style=style, highlight=False, markup=False, soft_wrap=True
    )
    for incident in result.incident.get("incidents", []):
        text = f"{incident['id']} {incident['kind']}: {len(incident['queries'])} queries lost: {incident['recovery']}"
        console.print(text, highlight=False, soft_wrap=True)
    console.print(f"results in {result.out}", highlight=False, soft_wrap=True)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
