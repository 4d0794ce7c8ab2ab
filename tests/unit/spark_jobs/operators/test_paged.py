"""Operators of the library in pages: what is stored is what `freeze` gives, and what is restored goes on alike."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given

from reprise.spark_jobs import operators as lib
from reprise.spark_jobs import pages
from reprise.spark_jobs.operators.paged import PagedOperator, freezer
from reprise.spark_jobs.operators.testing import PLACE, as_bytes, check_recovery, inbox
from reprise.spark_jobs.state.page_file import Span, decode_pages, encode_pages, tables_alone
from tests.support.examples import examples
from tests.unit.spark_jobs.operators.test_recovery import OPERATORS, inboxes, stream

PAGED = [name for name, make in OPERATORS.items() if isinstance(make(), PagedOperator)]


@pytest.fixture(autouse=True)
def small() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pages, "SHIFT", 1)
        patch.setattr(pages, "PAGE_ROWS", 2)
        patch.setattr(pages, "CHUNK_ROWS", 2)
        yield


def test_those_that_keep_accumulators_or_rows_by_key_offer_pages() -> None:
    assert set(PAGED) >= {"tumbling", "sliding", "sliding-updates", "aggregate", "count", "running", "pairs"}


@pytest.mark.parametrize("name", PAGED)
@examples(12)
@given(batches=stream)
def test_what_is_stored_in_pages_is_what_freeze_gives(name: str, batches: list[object]) -> None:
    operator = OPERATORS[name]()
    outputs = check_recovery(operator, all_of := inboxes(batches))  # type: ignore[arg-type]
    state, twin = operator.initial(PLACE), operator.initial(PLACE)
    frozen, files = [], dict[str, bytes]()

    def fetch(path: str, span: Span) -> bytes:
        return span.whole(files[path][span.start : span.end])

    for position, each in enumerate(all_of, 1):
        state, _ = operator.step(state, each)
        twin, _ = operator.step(twin, each)
        frozen.append((position, freezer(operator, True)(state), operator.freeze(twin)()))
        if position % 2:
            continue
        for at, encode, tables in frozen[-2:]:  # late
            found = encode_pages(encode(), f"{at}", at)
            files[found.path] = b"".join(bytes(chunk) for chunk in found.chunks)
            found.is_stored()
            again = decode_pages(files[found.path], fetch)
            assert {n: as_bytes(t) for n, t in again.items()} == {n: as_bytes(t) for n, t in tables.items()}
            restored = operator.restore(PLACE, again)
            for later in range(at, len(all_of)):
                restored, out = operator.step(restored, all_of[later])
                assert as_bytes(out) == as_bytes(outputs[later])


def test_who_says_by_its_own_freeze_what_it_stores_is_stored_whole() -> None:
    class More(lib.KeyedCount):
        def freeze(self, state):  # type: ignore[no-untyped-def]
            encode = super().freeze(state)
            return lambda: {**encode(), "more": pa.table({"x": [1]})}

    class Paged(More):
        def freeze_pages(self, state):  # type: ignore[no-untyped-def]
            encode = super().freeze_pages(state)
            return lambda: {**encode(), "more": pa.table({"x": [1]})}

    rows = inbox(1, pa.table({"key": ["a", "b"]}))
    for kind, whole in ((More, True), (Paged, False), (lib.KeyedCount, False)):
        operator = kind(keys=["key"])
        state, _ = operator.step(operator.initial(PLACE), rows)
        parts = freezer(operator, True)(state)()
        assert (tables_alone(parts) is not None) == whole
        assert ("more" in parts) == (kind is not lib.KeyedCount)
        assert tables_alone(freezer(operator, False)(state)()) is not None
