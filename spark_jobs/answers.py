"""What the client of a store says with an exception: that there is no such file, or that it could not find out.

Problem: who is told "there is none" writes a file, begins a new stream or goes on without a claim.  fsspec's own `exists`
answers so after any exception at all, and some clients turn every refusal into FileNotFoundError: `ftp` (a reply "try again
later"), `http` (a connection that was closed).  Others have an exception of their own with the right number: `smb`.

Invariant: a file is missing only where the client says so, and nothing behind that says that the store was not heard.
docs/decisions/durable-files.md lists what clients do.
"""

from __future__ import annotations

import errno
import ftplib

_ABSENT = (errno.ENOENT, errno.ENOTDIR)
_GONE = (404, 410)
"""Replies of HTTP that speak of the file."""
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
