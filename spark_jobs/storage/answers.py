"""What the client of a store says with an exception: that there is no such file, or that it could not find out.

Problem: who is told "there is none" writes a file, begins a new stream or goes on without a claim.  fsspec's own `exists`
answers so after any exception at all, and some clients turn every refusal into FileNotFoundError: `ftp` (a reply "try again
later"), `http` (a connection that was closed).  Others have an exception of their own with the right number: `smb`.

What it says besides is told apart here, too: that its connection is gone, and for how long it wants to be left alone.

Invariant: a file is missing only where the client says so, and nothing behind that says that the store was not heard.
docs/decisions/0009-durable-files.md lists what clients do.
"""

from __future__ import annotations

import errno
import ftplib
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime

_ABSENT = (errno.ENOENT, errno.ENOTDIR)
_GONE = (404, 410)
"""Replies of HTTP that speak of the file."""
_BUSY = (429, 503)
LONGEST_S = 60.0
"""A store that asks for more is asked again after this: nothing is written meanwhile, and its answer may be a mistake."""
_CUT = (errno.ENOTCONN, errno.ESHUTDOWN, errno.EBADF, errno.ETIMEDOUT, errno.EHOSTUNREACH)
_NOT_LOGGED_IN = "53"
"""How replies of FTP begin that are final and yet say nothing of the file."""


def trouble_behind(error: OSError, before: BaseException | None) -> BaseException | None:
    """Why an exception does not say that a file is missing; None: it does.

    `before`: what was being handled already when the store was asked: Python chains that to what comes later, too.
    """
    if not isinstance(error, FileNotFoundError) and error.errno != errno.ENOENT:
        return error
    inner = _behind(error)
    while inner is not None and inner is not before:
        if _is_trouble(inner):
            return inner
        inner = _behind(inner)
    return None


def is_connection_gone(error: BaseException) -> bool:
    """Whether the client's connection may be of no use any more: closed, cut, or with an answer to come that belongs to an
    earlier request.  Clients of FTP and SFTP keep theirs for good."""
    return any(
        isinstance(e, (EOFError, ConnectionError, TimeoutError))
        or (isinstance(e, ftplib.Error) and not isinstance(e, ftplib.error_perm))
        or (isinstance(e, OSError) and e.errno in _CUT)
        for e in _chain(error)
    )


def asked_to_wait_s(error: BaseException, now: float) -> float:
    """Seconds for which a store wants to be left alone (HTTP 429 or 503 with `Retry-After`), at most `LONGEST_S`; 0: it has
    not said so.  `now`: unix seconds, as it may name a date."""
    for each in _chain(error):
        status, headers = _reply(each)
        if status in _BUSY and (said := headers.get("retry-after")):
            return min(max(0.0, _seconds(str(said), now)), LONGEST_S)
    return 0.0


def _reply(error: BaseException) -> tuple[object, Mapping[str, object]]:
    """Status and headers as clients keep them: aiohttp in the exception, requests and botocore in its response."""
    response = getattr(error, "response", None)
    if isinstance(response, Mapping):
        about = response.get("ResponseMetadata") or {}
        status, headers = about.get("HTTPStatusCode"), about.get("HTTPHeaders")
    else:
        source = error if response is None else response
        status = getattr(source, "status", None) or getattr(source, "status_code", None)
        headers = getattr(source, "headers", None)
    found = headers if isinstance(headers, Mapping) else {}
    return status, {str(name).lower(): value for name, value in found.items()}


def _seconds(said: str, now: float) -> float:
    try:
        return float(said)
    except ValueError:
        pass
    try:
        return parsedate_to_datetime(said).timestamp() - now
    except ValueError:
        return 0.0


def _chain(error: BaseException) -> Iterator[BaseException]:
    each: BaseException | None = error
    while each is not None:
        yield each
        each = _behind(each)


def _behind(error: BaseException) -> BaseException | None:
    return error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _is_trouble(error: BaseException) -> bool:
    if isinstance(error, ftplib.error_perm):
        return str(error).startswith(_NOT_LOGGED_IN)
    if isinstance(error, (ftplib.Error, EOFError)):
        return True
    if isinstance(status := getattr(error, "status", None), int):
        return status not in _GONE
    if isinstance(error, PermissionError):  # then it was listed instead
        return False
    return (
        isinstance(error, OSError) and not isinstance(error, FileNotFoundError) and error.errno not in _ABSENT
    )
