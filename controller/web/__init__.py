"""The web page for the person on call: what the records say, in a browser, and nothing that can be pressed.

- `board` holds the newest look at each topology; whoever looks anyway (`reprise run`, the operator) puts it there.
- `app` answers: two pages, their files, and the status document (`reprise.controller.status`) as JSON with a stream of news.
- `guard` is what holds for every answer: read-only, one origin, known names, nothing cached by others.
- `login` asks for a token where the page leaves the loopback.
- `forward` lets an operator that waits for the Lease answer with the pages of the one that works.
- `server` is all of it on an address, in a thread with an event loop of its own.
- `static/` is the page: plain modules without a build step, and two libraries in `static/vendor` (see
  `tools/web_vendor.py`).

Invariants: no request changes anything or makes this process read ZooKeeper or the API server, and no number of viewers
can hold up who shares the process: documents are made once for all viewers, connections and streams are counted.

Why aiohttp: kopf brings it already, one thread holds all streams, and it is meant to face clients, which the
standard library's `http.server` says of itself that it is not.
"""

from reprise.controller.web.board import Board
from reprise.controller.web.errors import WebError
from reprise.controller.web.login import Token
from reprise.controller.web.server import WebServer

__all__ = ["Board", "Token", "WebError", "WebServer"]
