"""Answers of the probes: whether this process makes progress, never whether somebody else does.

A process whose event loop turns while a thread of its watches has ended or hangs goes by what it knew, so it is not healthy,
and a restart mends it.  An API server that does not answer is no matter of a restart: it makes the process not ready, and
the body says since when each watch has had no answer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Protocol


class Worker(Protocol):
    """What the probes ask of the operator that works."""

    def turns_well(self) -> bool: ...

    def sees(self) -> bool: ...

    def answer_ages(self) -> Mapping[str, float]: ...


def answer(path: str, working: Worker | None) -> tuple[int, str]:
    """Status and body.  `working`: None while this operator waits for the Lease.

    `/healthz`: 200 while its loops turn.  `/readyz`: the same, and what it knows is of late; a candidate for the Lease is
    ready to take it.  `/leader`: 200 for the one that works, for people and tests."""
    good = {
        "/healthz": working is None or working.turns_well(),
        "/readyz": working is None or (working.turns_well() and working.sees()),
        "/leader": working is not None,
    }.get(path)
    if good is None:
        return 404, "no\n"
    ages = working.answer_ages() if working is not None else {}
    lines = [
        "ok" if good else "no",
        *(f"{name} answered {age:.0f} s ago" for name, age in sorted(ages.items())),
    ]
    return 200 if good else 503, "".join(f"{line}\n" for line in lines)


def serve(host: str, port: int, working: Callable[[], Worker | None]) -> ThreadingHTTPServer:
    """On the pod's own address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = answer(self.path, working())
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: object) -> None:
            """Probes are no news."""

    server = ThreadingHTTPServer((host, port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True, name="health").start()
    return server
