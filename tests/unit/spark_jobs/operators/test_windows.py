"""Windows against a reference that keeps all rows and looks at each window by definition."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.operators import SlidingWindow, TumblingWindow
from reprise.spark_jobs.operators.frames import END_OF_TIME, ColumnError
from reprise.spark_jobs.operators.testing import PLACE, inbox, run
from tests.support.examples import examples

S = 1_000_000


def table(*rows: tuple[float, str, float | None]) -> pa.Table:
    return pa.table(
        {
            "time": pa.array([int(t * S) for t, _, _ in rows], pa.int64()),
            "key": pa.array([k for _, k, _ in rows], pa.string()),
            "value": pa.array([v for _, _, v in rows], pa.float64()),
        }
    )


def rows_of(out: pa.Table | None, *names: str) -> list[tuple[object, ...]]:
    return [] if out is None else list(zip(*(out.column(n).to_pylist() for n in names), strict=True))


def test_a_tumbling_window_is_emitted_once_when_the_watermark_passes_its_end() -> None:
    window = TumblingWindow(size="2s", keys=["key"], aggregate={"n": "count()", "mean": "mean(value)"})
    outputs = run(
        window,
        [
            inbox(1, table((0, "b", 1.0), (1, "a", 2.0), (2.5, "a", 9.0)), watermark=int(1.9 * S)),
            inbox(2, table((1.9, "b", 4.0)), watermark=2 * S),
            inbox(3, table(), watermark=3 * S),
            inbox(4, table(), watermark=9 * S),
        ],
    )
    assert outputs[0] is None and outputs[2] is None
    names = ("window_start", "window_end", "time", "key", "n", "mean")
    assert rows_of(outputs[1], *names) == [
        (0, 2 * S, 2 * S - 1, "a", 1, 2.0),
        (0, 2 * S, 2 * S - 1, "b", 2, 2.5),
    ]
    assert rows_of(outputs[3], *names) == [(2 * S, 4 * S, 4 * S - 1, "a", 1, 9.0)]


def test_a_row_is_late_when_its_windows_are_closed_and_lateness_keeps_them_open() -> None:
    batches = [
        inbox(1, table((0, "a", 1.0)), watermark=3 * S),
        inbox(2, table((1, "a", 1.0)), watermark=5 * S),
    ]
    strict = TumblingWindow(size="2s", keys=["key"], aggregate={"n": "count()"})
    state = strict.initial(PLACE)
    outputs = []
    for each in batches:
        state, out = strict.step(state, each)
        outputs.append(rows_of(out, "key", "n"))
    assert outputs == [[("a", 1)], []]
    assert strict.counters(state)["late_rows"] == 1

    patient = TumblingWindow(size="2s", keys=["key"], aggregate={"n": "count()"}, lateness="2s")
    assert [rows_of(o, "key", "n") for o in run(patient, batches)] == [[], [("a", 2)]]


def test_a_row_counts_in_those_of_its_windows_that_are_still_open() -> None:
    window = SlidingWindow(size="2s", slide="1s", keys=["key"], aggregate={"n": "count()"})
    outputs = run(
        window,
        [
            inbox(1, table((0.5, "a", None)), watermark=1 * S),
            inbox(2, table((0.7, "a", None)), watermark=2 * S),
        ],
    )
    # [-1, 1) was closed before the second row came; [0, 2) has both.
    assert [rows_of(o, "window_end", "n") for o in outputs] == [[(1 * S, 1)], [(2 * S, 2)]]


def test_nulls_do_not_count_and_a_window_of_nulls_is_null() -> None:
    window = TumblingWindow(
        size="1s",
        keys=["key"],
        aggregate={"n": "count(value)", "s": "sum(value)", "m": "mean(value)", "x": "max(value)"},
    )
    (out,) = run(window, [inbox(1, table((0, "a", None), (0, "b", None), (0, "b", 2.5)), watermark=S)])
    assert rows_of(out, "key", "n", "s", "m", "x") == [("a", 0, None, None, None), ("b", 1, 2.5, 2.5, 2.5)]


def test_tumbling_updates_give_the_keys_of_the_batch_with_their_window_so_far() -> None:
    window = TumblingWindow(size="5s", keys=["key"], aggregate={"n": "count()"}, emit="updates")
    outputs = run(
        window,
        [
            inbox(1, table((0, "a", None), (1, "b", None), (1, "a", None))),
            inbox(2, table((2, "b", None), (6, "b", None))),
            inbox(3, table(), watermark=20 * S),
        ],
    )
    assert [rows_of(o, "window_start", "key", "n") for o in outputs] == [
        [(0, "a", 2), (0, "b", 1)],
        [(0, "b", 2), (5 * S, "b", 1)],
        [],
    ]


def test_sliding_updates_also_tell_what_left_the_window() -> None:
    window = SlidingWindow(
        size="2s", slide="1s", keys=["key"], aggregate={"n": "count()", "s": "sum(value)"}, emit="updates"
    )
    outputs = run(
        window,
        [
            inbox(1, table((0, "a", 1.0), (0.5, "b", 2.0)), watermark=1 * S),
            inbox(2, table((1, "a", 3.0)), watermark=2 * S),
            inbox(3, table(), watermark=3 * S),
            inbox(4, table(), watermark=9 * S),
            inbox(5, table(), watermark=10 * S),
        ],
    )
    assert [rows_of(o, "window_end", "key", "n", "s") for o in outputs] == [
        [(1 * S, "a", 1, 1.0), (1 * S, "b", 1, 2.0)],
        [(2 * S, "a", 2, 4.0)],
        [(3 * S, "a", 1, 3.0), (3 * S, "b", 0, None)],
        [(9 * S, "a", 0, None)],
        [],
    ]


def test_when_the_stream_ends_the_last_window_is_the_current_one() -> None:
    window = SlidingWindow(size="2s", slide="1s", keys=["key"], aggregate={"n": "count()"}, emit="updates")
    outputs = run(
        window,
        [
            inbox(1, table((0, "a", None), (1, "b", None)), S),
            inbox(2, table((2, "b", None)), watermark=END_OF_TIME),
        ],
    )
    assert [rows_of(o, "window_end", "key", "n") for o in outputs] == [
        [(1 * S, "a", 1)],
        [(3 * S, "a", 0), (3 * S, "b", 2)],
    ]


events = st.lists(
    st.lists(
        st.tuples(st.integers(0, 40).map(lambda n: n / 4), st.sampled_from("abc"), st.none()), max_size=6
    ),
    min_size=1,
    max_size=8,
)


@examples(150)
@given(
    batches=events, steps=st.lists(st.integers(0, 9), min_size=8, max_size=8), size=st.sampled_from([1, 2, 3])
)
def test_final_windows_equal_the_definition(
    batches: list[list[tuple[float, str, None]]], steps: list[int], size: int
) -> None:
    window = SlidingWindow(size=f"{size}s", slide="500ms", keys=["key"], aggregate={"n": "count()"})
    mark, inboxes, expected = 0, [], {}
    half = S // 2
    for number, rows in enumerate(batches, 1):
        for t, key, _ in rows:
            us = int(t * S)
            for end in range(us // half * half + half, us // half * half + size * S + 1, half):
                if number == 1 or end > mark:
                    expected[end, key] = expected.get((end, key), 0) + 1
        mark += steps[number - 1] * S // 3
        inboxes.append(inbox(number, table(*rows), mark))
    inboxes.append(inbox(len(batches) + 1, table(), 1 << 62))
    found = [r for out in run(window, inboxes) for r in rows_of(out, "window_end", "key", "n")]
    assert len(found) == len({(end, key) for end, key, _ in found})
    assert {(end, key): n for end, key, n in found} == expected


@examples(100)
@given(batches=events, size=st.sampled_from([1, 2, 3]))
def test_a_consumer_of_sliding_updates_holds_the_current_window(
    batches: list[list[tuple[float, str, None]]], size: int
) -> None:
    window = SlidingWindow(
        size=f"{size}s", slide="1s", keys=["key"], aggregate={"n": "count()"}, emit="updates"
    )
    state, held, seen = window.initial(PLACE), {}, []
    for number, rows in enumerate(batches, 1):
        mark = number * S * 3 // 2
        closed = (number - 1) * S * 3 // 2 if number > 1 else -1
        seen += [(int(t * S) // S * S, key) for t, key, _ in rows if int(t * S) // S * S + size * S > closed]
        state, out = window.step(state, inbox(number, table(*rows), mark))
        held.update(dict(rows_of(out, "key", "n")))
        end = -(-mark // S) * S
        current = [k for pane, k in seen if end - size * S <= pane < end]
        assert {k: n for k, n in held.items() if n} == {k: current.count(k) for k in set(current)}


def test_keys_that_no_window_needs_are_let_go() -> None:
    window = TumblingWindow(size="1s", keys=["key"], aggregate={"n": "count()"})
    state = window.initial(PLACE)
    for second in range(6):
        rows = table(*((second, f"{second}-{i}", None) for i in range(800)))
        state, out = window.step(state, inbox(second + 1, rows, watermark=second * S))
        assert out is None or out.num_rows == 800
    assert window.counters(state)["keys"] <= 1600
    assert window.counters(state)["panes"] == 1


@pytest.mark.parametrize(
    ("parameters", "field"),
    [
        ({"size": "2", "slide": "1s"}, "size"),
        ({"size": "3s", "slide": "2s"}, "slide"),
        ({"size": "2s", "slide": "1s", "emit": "update"}, "emit"),
        ({"size": "2s", "slide": "1s", "keys": ["a", "a"]}, "keys"),
        ({"size": "2s", "slide": "1s", "keys": ["window_start"]}, "keys"),
        ({"size": "2s", "slide": "1s", "keys": ["window"], "label": "a"}, "keys"),
        ({"size": "2s", "slide": "1s", "aggregate": {"n": "avg(x)"}}, "aggregate.n"),
        ({"size": "2s", "slide": "1s", "aggregate": {"n": "sum()"}}, "aggregate.n"),
        ({"size": "2s", "slide": "1s", "aggregate": {"time": "count()"}}, "aggregate.time"),
        ({"size": "2s", "slide": "1s", "aggregate": {}}, "aggregate"),
    ],
)
def test_wrong_parameters_are_named(parameters: dict[str, object], field: str) -> None:
    with pytest.raises(SpecError) as caught:
        SlidingWindow(**{"aggregate": {"n": "count()"}, **parameters})  # type: ignore[arg-type]
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("aggregate", "rows", "message"),
    [
        ({"n": "count()"}, {"when": [1]}, "'time' is not in the input"),
        ({"n": "count()"}, {"time": ["x"]}, "is no time of ISO 8601"),
        ({"n": "count()"}, {"time": pa.array([None], pa.int64())}, "has no time in 1 rows"),
        ({"n": "sum(v)"}, {"time": [1], "v": ["x"]}, "needs numbers"),
        ({"n": "sum(w)"}, {"time": [1], "v": ["x"]}, "'w' is not in the input"),
    ],
)
def test_wrong_rows_are_named(aggregate: dict[str, str], rows: dict[str, object], message: str) -> None:
    window = TumblingWindow(size="1s", aggregate=aggregate)
    with pytest.raises(ColumnError, match=message):
        run(window, [inbox(1, pa.table(rows), S)])


@examples(120)
@given(
    batches=st.lists(
        st.tuples(
            st.lists(st.tuples(st.integers(-20, 20), st.sampled_from("ab")), max_size=5),
            st.none() | st.integers(-24, 24),
        ),
        min_size=1,
        max_size=6,
    ),
    size=st.sampled_from([1, 2, 4]),
    lateness=st.integers(0, 3),
)
def test_late_rows_and_complete_windows_follow_from_the_greatest_watermark_less_lateness(
    batches: list[tuple[list[tuple[int, str]], int | None]], size: int, lateness: int
) -> None:
    """In half seconds, from before 1970 on; watermarks may be unknown, and may go back, which changes nothing."""
    half = S // 2
    window = SlidingWindow(
        size=f"{size * 500}ms",
        slide="500ms",
        keys=["key"],
        aggregate={"n": "count()"},
        lateness=f"{lateness * 500}ms",
    )
    state, closed, late, seen, shown = window.initial(PLACE), None, 0, [], set()
    for number, (rows, mark) in enumerate(batches, 1):
        for t, key in rows:
            ends = [end for end in range(t + 1, t + size + 1) if closed is None or end > closed]
            late += not ends
            seen += [(end, key) for end in ends]
        if mark is not None:
            closed = mark - lateness if closed is None else max(closed, mark - lateness)
        events = pa.table(
            {
                "time": pa.array([t * half for t, _ in rows], pa.int64()),
                "key": pa.array([k for _, k in rows], pa.string()),
            }
        )
        state, out = window.step(state, inbox(number, events, None if mark is None else mark * half))
        due = {
            (e, k): seen.count((e, k))
            for e, k in seen
            if closed is not None and e <= closed and e not in shown
        }
        assert {(end // half, key): n for end, key, n in rows_of(out, "window_end", "key", "n")} == due
        assert [end for end, _ in rows_of(out, "window_end", "n")] == sorted(e * half for e, _ in due)
        shown |= set() if closed is None else set(range(-100, closed + 1))
        assert window.counters(state)["late_rows"] == late
        assert all(pane + size * half > (closed or 0) * half - half for pane in state.panes) or closed is None
