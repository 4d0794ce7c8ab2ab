"""What the client of a store says with an exception: that there is no such file, that there is one already, or that it could
not find out.

Problem: who is told "there is none" writes a file, begins a new stream or goes on without a claim.  fsspec's own `exists`
answers so after any exception at all, and some clients turn every refusal into FileNotFoundError: `ftp` (a reply "try again
later"), `http` (a connection that was closed), `s3` (a bucket that is not there).  Others have an exception of their own
with the right number: `smb`.  Who is told "there is one" compares it; the client of `s3` says so only where the server
names the condition that did not hold, as AWS does and not every server of the same interface.

What it says besides is told apart here, too: that its connection is gone, that it refuses the credentials, and for how long
it wants to be left alone.

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
_TAKEN = ("PreconditionFailed", 412)
_REFUSED = (401, 403)
_RUN_OUT = ("ExpiredToken", "ExpiredTokenException", "InvalidToken", "RequestExpired", "TokenRefreshRequired")
"""Codes of S3 for temporary credentials that are of no use any more; AWS sends them with 400, as it does other things."""
_NO_PLACE = ("NoSuchBucket", "ContainerNotFound")
"""Codes that speak of what the files lie in: S3, Azure."""
_BEHIND_THE_END = ("InvalidRange", 416)
_TRANSPORTS = ("aiohttp", "requests", "urllib3")
"""Packages whose exceptions without a status are about the way to the store; that of gcsfs for 502 is one."""
_FORBIDDEN = "Forbidden: "
"""How gcsfs begins the text of an OSError that was a 403; it says so in no other way."""


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


def is_taken(error: BaseException, before: BaseException | None = None) -> bool:
    """Whether a file was refused because there is one of its name; asked only of uploads that have no other condition.
    `before`: as for `trouble_behind`; it may be about another file."""
    return any(isinstance(e, FileExistsError) or _says(e, _TAKEN) for e in _chain(error, before))


def is_behind_the_end(error: BaseException) -> bool:
    """Whether what was asked for begins behind the end of a file; clients whose reply is not known may mean that, too."""
    replies = [_reply(e)[0] for e in _chain(error)]
    known = any(isinstance(status, int) for status in replies) or is_connection_gone(error)
    known = known or any(type(e).__module__.partition(".")[0] in _TRANSPORTS for e in _chain(error))
    return not known or any(_says(e, _BEHIND_THE_END) for e in _chain(error))


def are_credentials_refused(error: BaseException) -> bool:
    """Whether other credentials may help: those that the client was made with may have run out."""
    return any(
        _says(e, _RUN_OUT) or isinstance(e, PermissionError) or _reply(e)[0] in _REFUSED
        for e in _chain(error)
    )


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
    """Status and headers as clients keep them: aiohttp in the exception, gcsfs there too and as `code`, which may be a text,
    requests and botocore in its response."""
    response = getattr(error, "response", None)
    if isinstance(response, Mapping):
        about = response.get("ResponseMetadata") or {}
        status, headers = about.get("HTTPStatusCode"), about.get("HTTPHeaders")
    else:
        source = error if response is None else response
        status = getattr(source, "status", None) or getattr(source, "status_code", None)
        headers = getattr(source, "headers", None)
        status = _code(error) if status is None else status
    found = headers if isinstance(headers, Mapping) else {}
    return status, {str(name).lower(): value for name, value in found.items()}


def _code(error: BaseException) -> int | None:
    code = getattr(error, "code", None)
    if type(error) is OSError and str(error).startswith(_FORBIDDEN):
        return 403
    return int(code) if isinstance(code, int) or (isinstance(code, str) and code.isdecimal()) else None


def _says(error: BaseException, words: tuple[object, ...]) -> bool:
    """Whether a reply has one of these as its status, or as the code that S3 and Azure give besides."""
    response = getattr(error, "response", None)
    about = response.get("Error") if isinstance(response, Mapping) else None
    code = about.get("Code") if isinstance(about, Mapping) else getattr(error, "error_code", "")
    return _reply(error)[0] in words or (isinstance(code, str) and str(getattr(code, "value", code)) in words)


def _seconds(said: str, now: float) -> float:
    try:
        return float(said)
    except ValueError:
        pass
    try:
        return parsedate_to_datetime(said).timestamp() - now
    except ValueError:
        return 0.0


def _chain(error: BaseException, before: BaseException | None = None) -> Iterator[BaseException]:
    each: BaseException | None = error
    while each is not None and each is not before:
        yield each
        each = _behind(each)


def _behind(error: BaseException) -> BaseException | None:
    return error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _is_trouble(error: BaseException) -> bool:
    if isinstance(error, ftplib.error_perm):
        return str(error).startswith(_NOT_LOGGED_IN)
    if isinstance(error, (ftplib.Error, EOFError)):
        return True
    if _says(error, _NO_PLACE):
        return True
    if isinstance(status := getattr(error, "status", None) or _code(error), int):
        return status not in _GONE
    if isinstance(error, PermissionError):  # then it was listed instead
        return False
    return (
        isinstance(error, OSError) and not isinstance(error, FileNotFoundError) and error.errno not in _ABSENT
    )
