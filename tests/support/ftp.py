"""A file server of one's own, for locations below a URL."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyftpdlib.authorizers import DummyAuthorizer
from pyftpdlib.handlers import FTPHandler
from pyftpdlib.servers import ThreadedFTPServer


@contextmanager
def ftp_server(folder: Path, handler: type[FTPHandler] = FTPHandler) -> Iterator[str]:
    """Serve `folder` on loopback; the URL of a folder in it that is not there yet.  `handler` answers the requests."""
    users = DummyAuthorizer()
    users.add_user("test", "test", str(folder), perm="elradfmwMT")
    own = type("Handler", (handler,), {"authorizer": users})
    with ThreadedFTPServer(("127.0.0.1", 0), own) as listening:
        port = listening.socket.getsockname()[1]
        thread = threading.Thread(
            target=listening.serve_forever, kwargs={"timeout": 0.1, "handle_exit": False}
        )
        thread.start()
        yield f"ftp://test:test@127.0.0.1:{port}/results"
        listening.close_all()
        thread.join()
