"""What opens, and what a stranger can make of frames."""

from __future__ import annotations

import os

import pytest

from reprise.spark_jobs.errors import WireError
from reprise.spark_jobs.node.seal import KEY_BYTES, LEAST_BYTES, Seal

KEY = b"k" * KEY_BYTES
FRAMES = [
    b"the first frame of a link", b"the second frame of a link", b"", b"x" * 200_000, os.urandom(200_000),
    b"y" * (LEAST_BYTES - 1), b"y" * LEAST_BYTES,
]  # fmt: skip


def test_frames_of_a_link_open_in_their_order_and_nobody_else_can_read_them() -> None:
    outlet, inlet, other = Seal(KEY, 0), Seal(KEY, 1), Seal(KEY, 2)
    sealed = [outlet.close(1, frame) for frame in FRAMES]
    elsewhere = outlet.close(2, FRAMES[0])
    assert [inlet.open(frame) for frame in sealed] == FRAMES
    assert other.open(elsewhere) == FRAMES[0]
    assert not [frame for frame in FRAMES if frame and frame[:20] in b"".join([*sealed, elsewhere])]


def test_what_can_be_compressed_is() -> None:
    outlet = Seal(KEY, 0)
    assert len(outlet.close(1, b"x" * 200_000)) < 2_000
    assert len(outlet.close(1, os.urandom(200_000))) < 200_100


def test_a_key_of_another_length_is_none() -> None:
    with pytest.raises(ValueError, match="has 32 bytes, not 0"):
        Seal(b"", 0)


def test_two_exchanges_with_one_key_share_no_byte_of_a_frame() -> None:
    """Their salts differ, so no nonce is used twice with a key."""
    one, two = Seal(KEY, 0).close(1, FRAMES[0]), Seal(KEY, 0).close(1, FRAMES[0])
    assert one[4:20] != two[4:20]
    assert one[20:] != two[20:]


def of_a_link(*, target: int = 1, key: bytes = KEY) -> list[bytes]:
    outlet = Seal(key, 0)
    return [outlet.close(target, frame) for frame in FRAMES]


@pytest.mark.parametrize(
    ("frames", "why"),
    [
        ([of_a_link()[0]] * 2, "has not sent"),
        (of_a_link()[0:3:2], "has not sent"),
        (of_a_link()[1:2], "has not sent"),
        (of_a_link(target=2)[:1], "has not sent"),
        (of_a_link(key=b"x" * KEY_BYTES)[:1], "has not sent"),
        ([of_a_link()[0][:-1] + b"?"], "has not sent"),
        ([b"\0\0\0\7" + of_a_link()[0][4:]], "that slot 7 has not sent"),
        ([b"plain bytes that nobody has sealed"], "has not sent"),
        ([of_a_link()[0][:30]], "has not sent"),
        ([b"abc"], "got 3 bytes, which are no frame"),
    ],
    ids=[
        "repeated", "left out", "without the first", "for another slot", "another key", "changed", "another sender",
        "not sealed", "cut off", "too short",
    ],
)  # fmt: skip
def test_anything_else_is_refused(frames: list[bytes], why: str) -> None:
    inlet = Seal(KEY, 1)
    for frame in frames[:-1]:
        inlet.open(frame)
    with pytest.raises(WireError, match=why):
        inlet.open(frames[-1])
