"""Durations and quantities: values, and total refusal of everything else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.spark_jobs.topology.quantity import parse_bytes, parse_cpu, parse_duration, parse_duration_us


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("10s", 10),
        ("1.5s", 1.5),
        ("1h30m", 5400),
        ("2d", 172_800),
        ("7us", 7e-6),
        ("1m1s1ms", 61.001),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds, rel=1e-12)


def test_event_time_durations_are_whole_microseconds() -> None:
    assert parse_duration_us("1500us") == 1500
    assert parse_duration_us("168h") == 604_800_000_000
    assert parse_duration_us("600ns") == 1


@pytest.mark.parametrize(
    ("text", "cores"),
    [("200m", 0.2), ("2", 2), ("0.5", 0.5), ("1500000n", 0.0015), ("3u", 3e-6), ("1e1", 10)],
)
def test_cpu(text: str, cores: float) -> None:
    assert parse_cpu(text) == pytest.approx(cores, rel=1e-12)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("64Mi", 67_108_864),
        ("4Gi", 4_294_967_296),
        ("1G", 10**9),
        ("1k", 1000),
        ("1.5", 2),
        ("0", 0),
        ("12E2", 1200),
    ],
)
def test_bytes(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    "text", ["", "5", "s", "-1s", "1 s", "1s ", "1x", "1s2", "٣s", "1" * 80 + "s", "1.s", "nan"]
)
def test_what_is_no_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["", "m", "-1", "1Zi", "1 Gi", "1e", "1e999", "0x10", "1_000", "inf"])
def test_what_is_no_quantity_is_refused_with_an_example(text: str) -> None:
    for parse in (parse_cpu, parse_bytes):
        with pytest.raises(ValueError, match="is not a quantity"):
            parse(text)


@given(st.text(max_size=12))
def test_parsers_are_total(text: str) -> None:
    for parse in (parse_duration, parse_cpu, parse_bytes):
        try:
            assert parse(text) >= 0
        except ValueError as error:
            assert "is not a" in str(error) or "parts of a byte" in str(error)
