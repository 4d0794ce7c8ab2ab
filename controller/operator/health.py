"""Answers of the probes: whether this process makes progress, never whether somebody else does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def serve(
    host: str, port: int, healthy: Callable[[], bool], leading: Callable[[], bool]
) -> ThreadingHTTPServer:
    """On the pod's own address.

    `/healthz`: 200 while the process turns.  `/readyz`: the same; a candidate for the lease is ready to take it.
    `/leader`: 200 for the one that works, for people and tests."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            good = {"/healthz": healthy, "/readyz": healthy, "/leader": leading}.get(self.path)
            status = 404 if good is None else 200 if good() else 503
            self.send_response(status)
            self.end_headers()
            self.wfile.write(b"ok\n" if status == 200 else b"no\n")

        def log_message(self, format: str, *args: object) -> None:
            """Probes are no news."""

    server = ThreadingHTTPServer((host, port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True, name="health").start()
    return server
