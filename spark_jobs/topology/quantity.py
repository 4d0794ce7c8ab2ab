"""Quantities and durations as Kubernetes and Go write them, parsed totally: every string gives a number or
one reason.

Resources carry `500ms`, `200m` and `64Mi` as strings because a CRD schema knows no better type.  They are
turned into numbers here, once, so that nothing further in meets a unit.  Invariant: what is returned is
finite and not negative.
"""

from __future__ import annotations

import re
from decimal import Decimal

_DURATION_UNITS = {
    "ns": Decimal("1e-9"),
    "us": Decimal("1e-6"),
    "ms": Decimal("1e-3"),
    "s": Decimal(1),
    "m": Decimal(60),
    "h": Decimal(3600),
    "d": Decimal(86400),
}
_QUANTITY_UNITS = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    "k": Decimal(10) ** 3,
    "M": Decimal(10) ** 6,
    "G": Decimal(10) ** 9,
    "T": Decimal(10) ** 12,
    "P": Decimal(10) ** 15,
    "Ki": Decimal(2) ** 10,
    "Mi": Decimal(2) ** 20,
    "Gi": Decimal(2) ** 30,
    "Ti": Decimal(2) ** 40,
    "Pi": Decimal(2) ** 50,
}

DURATION_PATTERN = r"^([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h|d))+$"
_UNIT_PATTERN = r"k|M|G|T|P|Ki|Mi|Gi|Ti|Pi|[eE][0-9]{1,2})?$"
_POSITIVE_PATTERN = r"^([0-9]*[1-9][0-9]*(\.[0-9]+)?|0+\.[0-9]*[1-9][0-9]*)("
BYTES_PATTERN = rf"^[0-9]+(\.[0-9]+)?({_UNIT_PATTERN}"
POSITIVE_BYTES_PATTERN = _POSITIVE_PATTERN + _UNIT_PATTERN
POSITIVE_CPU_PATTERN = _POSITIVE_PATTERN + "n|u|m|" + _UNIT_PATTERN
MAX_LENGTH = 32
"""Characters."""

_DURATION = re.compile(DURATION_PATTERN, re.ASCII)
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ns|us|ms|s|m|h|d)", re.ASCII)
_QUANTITY = re.compile(r"^([0-9]+(?:\.[0-9]+)?)([a-zA-Z]*)$", re.ASCII)
_LETTERS = re.compile("[a-zA-Z]+$")
_EXPONENT = re.compile(r"^[0-9]+(\.[0-9]+)?[eE][0-9]{1,2}$", re.ASCII)


def parse_duration(text: str) -> float:
    """Seconds of a duration such as `500ms`, `1.5s` or `1h30m`.  ValueError says what was expected."""
    if len(text) > MAX_LENGTH or not _DURATION.fullmatch(text):
        found = repr(text[:MAX_LENGTH])
        raise ValueError(
            f"{found} is not a duration of at most {MAX_LENGTH} characters: write a number and a unit, e.g. 500ms, 10s or "
            "1m30s"
        )
    return float(
        sum(Decimal(number) * _DURATION_UNITS[unit] for number, unit in _DURATION_PART.findall(text))
    )


def parse_duration_us(text: str) -> int:
    """A duration in whole microseconds, the unit of event time; finer parts are rounded to the nearest."""
    return round(parse_duration(text) * 1_000_000)


def _parse_quantity(text: str, example: str) -> Decimal:
    if len(text) <= MAX_LENGTH and _EXPONENT.fullmatch(text):
        return Decimal(text)
    match = _QUANTITY.fullmatch(text) if len(text) <= MAX_LENGTH else None
    if match is None or match[2] not in _QUANTITY_UNITS:
        raise ValueError(
            f"{text[:MAX_LENGTH]!r} is not a quantity of at most {MAX_LENGTH} characters: write a number and optionally a "
            f"unit, e.g. {example}"
        )
    return Decimal(match[1]) * _QUANTITY_UNITS[match[2]]


def parse_cpu(text: str) -> float:
    """Cores of a CPU quantity: `200m` is 0.2, `2` is 2.0."""
    return float(_parse_quantity(text, "200m or 2"))


def parse_bytes(text: str) -> int:
    """Bytes of a memory quantity: `64Mi` is 67108864, `1G` is 1000000000; parts of a byte are rounded up.  ValueError for
    less than a byte, and for `64m`, which is 0.064 bytes."""
    value = _parse_quantity(text, "64Mi or 4Gi")
    if text[-1] in "num" or 0 < value < 1:
        raise ValueError(f"{text!r} counts parts of a byte: write {_LETTERS.sub('', text)}Mi, perhaps")
    return int(value.to_integral_value(rounding="ROUND_CEILING"))
