"""Where a node's tasks and its partition host meet: a Unix socket file in the executor's own folder.

Only the executor's user can connect (the file has mode 0600), and only who knows the key is served: both sides prove it,
each within `PROOF_S`, so that somebody who connects and says nothing holds nobody up.  Why a file and not an abstract
socket: an abstract one has no permissions, and any process of the network namespace finds its name in /proc/net/unix.  The
path of a socket may have 107 bytes only, and folders of executors have more; so it is named through the open folder,
`/proc/self/fd/<n>/<name>`, which is short wherever the folder is.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
from collections.abc import Iterator
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from pathlib import Path

PROOF_S = 10.0
"""The longest wait for each message of the proof; a busy machine needs milliseconds."""

BACKLOG = 16
"""Connections that wait to be accepted; each is taken off at once."""


@contextlib.contextmanager
def _address(home: Path, name: str) -> Iterator[str]:
    folder = os.open(home, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{name}"
    finally:
        os.close(folder)


def listen(home: Path, name: str) -> socket.socket:
    """A socket file below `home` that nobody but this user can connect to."""
    listener = socket.socket(socket.AF_UNIX)
    before = os.umask(0o177)
    try:
        with _address(home, name) as address:
            listener.bind(address)
    finally:
        os.umask(before)
    listener.listen(BACKLOG)
    return listener


def announce(home: Path, file: str, name: str, key: bytes) -> None:
    """Tell this user's processes, in a file below `home` that appears whole, where to connect and with which key."""
    part = home / f".{file}.{os.getpid()}"
    part.touch(mode=0o600)
    part.write_text(json.dumps({"name": name, "key": key.hex(), "pid": os.getpid()}), encoding="utf-8")
    part.replace(home / file)


def announced(home: Path, file: str) -> Connection | None:
    """A connection to who has announced itself there; None where nobody is.  TimeoutError: it does not answer."""
    try:
        record = json.loads((home / file).read_text(encoding="utf-8"))
        return meet(home, record["name"], bytes.fromhex(record["key"]))
    except TimeoutError:
        raise
    except (OSError, ValueError, EOFError, AuthenticationError):
        return None


def _limit(plain: socket.socket, seconds: float) -> None:
    """How long the kernel lets this socket wait, in either direction and for a place in the queue; 0: for ever.

    Not Python's own time limit: a socket with that never waits inside the kernel, and `connect` then fails at once where
    the queue is full for a moment.
    """
    value = struct.pack("@ll", int(seconds), int(seconds % 1 * 1e6))
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, value)
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, value)


def _limit_of(connection: Connection, seconds: float) -> None:
    with socket.socket(fileno=os.dup(connection.fileno())) as same:
        _limit(same, seconds)


def admit(connection: Connection, key: bytes) -> bool:
    """The host's half of the proof; False for somebody without the key, or who says nothing."""
    try:
        _limit_of(connection, PROOF_S)
        deliver_challenge(connection, key)
        answer_challenge(connection, key)
        _limit_of(connection, 0)
    except (AuthenticationError, EOFError, OSError):
        return False
    return True


def meet(home: Path, name: str, key: bytes) -> Connection:
    """A task's connection to the host.  OSError or EOFError: nobody is there; TimeoutError: it does not answer;
    AuthenticationError: somebody else is there."""
    plain = socket.socket(socket.AF_UNIX)
    try:
        _limit(plain, PROOF_S)
        with _address(home, name) as address:
            plain.connect(address)
        connection = Connection(plain.detach())
    except BlockingIOError as error:
        raise TimeoutError(f"no answer within {PROOF_S:.0f} s") from error
    finally:
        plain.close()
    try:
        answer_challenge(connection, key)
        deliver_challenge(connection, key)
        _limit_of(connection, 0)
    except BlockingIOError as error:
        connection.close()
        raise TimeoutError(f"no answer within {PROOF_S:.0f} s") from error
    except BaseException:
        connection.close()
        raise
    return connection
