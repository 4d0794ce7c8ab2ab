"""Waiting for sockets: real ones."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from reprise.controller.zookeeper.handler import PollHandler

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    one, other = socket.socketpair()
    with one, other:
        yield one, other


def test_a_socket_is_readable_when_something_came_or_the_other_end_has_gone(pair: Pair) -> None:
    one, other = pair
    handler = PollHandler()
    assert handler.select([one], [], [], 0.01) == ([], [], [])
    other.sendall(b"x")
    assert handler.select([one], [], [], 5) == ([one], [], [])
    assert one.recv(1) == b"x"
    other.close()
    assert handler.select([one], [], [], None) == ([one], [], [])


def test_one_socket_for_both(pair: Pair) -> None:
    one, other = pair
    handler = PollHandler()
    assert handler.select([one], [one], [], 5) == ([], [one], [])
    other.sendall(b"x")
    assert handler.select([one, other], [one], [], 5) == ([one], [one], [])


def test_a_closed_socket_is_a_type_error_as_in_the_base_class(pair: Pair) -> None:
    pair[0].close()
    with pytest.raises(TypeError, match="descriptor"):
        PollHandler().select([pair[0]], [], [], 0)
