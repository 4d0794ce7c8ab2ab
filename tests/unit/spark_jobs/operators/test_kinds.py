"""What kind each operator of the library claims to be, on random batches, and claims that are convicted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given

from reprise.spark_jobs import operators as lib
from reprise.spark_jobs.contract import Inbox, Kind, Operator
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.operators.aggregates import ROWS
from reprise.spark_jobs.operators.testing import PLACE, check_kind, inbox
from reprise.spark_jobs.topology import OperatorSpec, make_operator
from tests.support.coin import Toss
from tests.support.examples import examples
from tests.unit.spark_jobs.operators.test_recovery import OPERATORS, inboxes, stream


def twice(frame: pl.DataFrame) -> pl.DataFrame:
    return pl.DataFrame([row for row in frame.to_dicts() for _ in range(2)], frame.schema)


MORE: dict[str, Callable[[], Operator]] = {
    "filter": lambda: lib.Filter(where="value > 0"),
    "flatmap": lambda: lib.FlatMap(function=f"{__name__}:twice"),
    "top-of-few": lambda: lib.TopK(k=1, by="zone", keys=["key"], scope="batch"),
    "tumbling-late": lambda: lib.TumblingWindow(
        size="1s", keys=["key"], aggregate={"s": "sum(value)", "n": "count()"}, lateness="1s"
    ),
    "sliding-late": lambda: lib.SlidingWindow(
        size="2s", slide="1s", keys=["key", "zone"], aggregate={"m": "mean(value)"}, lateness="500ms"
    ),
    "join-by-minute": lambda: lib.Join(left="input", right="other", keys=["zone"], size="2s", interval="1s"),
}
EVERY = {**OPERATORS, **MORE}
CLAIMED = {
    Kind.REPEATABLE: {"union", "sink"},
    Kind.CONVERGENT: {"top-of-batch", "top-of-few", "pairs-windowed", "join-by-minute", "running-windowed"}
    | {"map", "filter", "flatmap"},
}
BY_STATE = {"tumbling", "tumbling-late", "tumbling-updates", "sliding", "sliding-late", "sliding-global"}
"""Convergent ones of which only the state says how far back they reach."""
CLAIMED[Kind.CONVERGENT] |= BY_STATE


@pytest.mark.parametrize("name", sorted(set().union(*CLAIMED.values())))
@examples(15)
@given(batches=stream)
def test_operator_is_of_the_kind_that_it_claims(name: str, batches: list[Any]) -> None:
    check_kind(EVERY[name](), inboxes(batches))


def test_every_operator_of_the_library_claims_what_this_page_says() -> None:
    for name, make in EVERY.items():
        claimed = next((kind for kind, names in CLAIMED.items() if name in names), Kind.DETERMINISTIC)
        assert make().kind is claimed, name
        assert make().reaches_by_state is (name in BY_STATE), name
        silent = claimed is Kind.DETERMINISTIC or name in BY_STATE
        assert (make().oldest_needed(1) is None) is silent, name
    tried = {type(make()).__name__ for make in EVERY.values()}
    assert set(lib.__all__) - tried == {"ColumnError", "ExtendPath", "PathJoin"}
    assert (lib.ExtendPath().kind, lib.PathJoin().kind) == (Kind.REPEATABLE, Kind.DETERMINISTIC)


@pytest.mark.parametrize("name", sorted(BY_STATE))
@examples(25)
@given(batches=stream)
def test_open_windows_are_those_of_a_run_from_the_first_batch(name: str, batches: list[Any]) -> None:
    """From the first batch that is needed on, for each batch: the same rows are in the same windows, and the same is closed.
    The numbers of keys, and what counts late rows, may differ."""
    operator, all_of_them = EVERY[name](), inboxes(batches)
    state = operator.initial(PLACE)
    for number, each in enumerate(all_of_them, 1):
        state, _ = operator.step(state, each)
        first = operator.oldest_needed_behind(state, number)
        assert first is not None
        again = operator.initial(PLACE)
        for one in all_of_them[first - 1 : number]:
            again, _ = operator.step(again, one)
        assert held(operator, again) == held(operator, state), f"from batch {first} to {number}"


def held(operator: Operator, state: Any) -> tuple[Any, dict[tuple[Any, ...], str]]:
    """What is closed, and what each key has in each pane."""
    tables = operator.freeze(state)()
    keys, found, at = tables["keys"].to_pylist(), {}, 0
    panes = tables["panes"].to_pylist() if "panes" in tables else []
    for pane in panes:
        for slot, row in enumerate(tables["values"].slice(at, pane["size"]).to_pylist()):
            if row[ROWS]:
                key = tuple(keys[slot].values()) if keys else ()
                found[pane["start"], pane["first"], *key] = repr(row)
        at += pane["size"]
    return tables["meta"]["closed"].to_pylist(), found


def test_a_pane_that_was_restored_without_its_first_batch_may_reach_back_to_the_beginning() -> None:
    """As one of a state that was divided by key: rows that come later say nothing of it."""
    rows = [{"time": 0, "key": key, "zone": 1, "value": 1.0} for key in "ab"]
    window = lib.TumblingWindow(size="1s", keys=["key"], aggregate={"n": "count()"})
    first, later = inboxes([(rows, [], None), (rows[:1], [], None)])
    state, _ = window.step(window.initial(PLACE), first)
    assert window.oldest_needed_behind(state, 1) == 1
    tables = dict(window.freeze(state)())
    tables["panes"] = tables["panes"].drop_columns(["first"])
    state, _ = window.step(window.restore(PLACE, tables), later)
    assert window.oldest_needed_behind(state, 2) == 0
    state, _ = window.step(window.restore(PLACE, window.freeze(state)()), later)
    assert window.oldest_needed_behind(state, 3) == 0, "it is stored as unknown"


@pytest.mark.parametrize("emit", ["final", "updates"])
def test_a_window_that_ends_at_the_watermark_is_let_go_whoever_has_taken_late_rows(emit: str) -> None:
    """The row of batch 2 is late; a partition that begins with that batch does not know it before the batch is over."""
    early, late = ({"time": at * 1_000_000, "key": "a", "zone": 1, "value": 1.0} for at in (1, 15))
    batches = inboxes([([early], [], 20), ([late], [], 0), ([], [], 0)])
    window = lib.TumblingWindow(size="5s", keys=["key"], aggregate={"n": "count()"}, emit=emit)
    for begun in (1, 2):
        state = window.initial(PLACE)
        for each in batches[begun - 1 :]:
            state, _ = window.step(state, each)
        assert window.oldest_needed_behind(state, 3) == 3, f"begun with batch {begun}"


class Remembers:
    """A `step` of a user's, which may remember what it likes."""

    def step(self, state: Any, inbox: Inbox) -> tuple[Any, pa.Table | None]:
        found: tuple[Any, pa.Table | None] = super().step(state, inbox)  # type: ignore[misc]
        return found


@pytest.mark.parametrize(
    ("base", "given"),
    [
        (lib.TumblingWindow, {"size": "1s", "aggregate": {"n": "count()"}}),
        (lib.SlidingWindow, {"size": "2s", "slide": "1s", "aggregate": {"n": "count()"}}),
        (
            lib.RunningAggregate,
            {"keys": ["key"], "aggregate": {"n": "count()"}, "size": "2s", "interval": "1s"},
        ),
        (lib.Join, {"left": "input", "right": "other", "keys": ["zone"], "size": "2s", "interval": "1s"}),
        (lib.TopK, {"k": 1, "by": "zone", "keys": ["key"], "scope": "batch"}),
        (lib.Map, {"select": ["*"]}),
        (lib.Filter, {"where": "value > 0"}),
        (lib.FlatMap, {"explode": ["values"]}),
    ],
)
def test_a_class_with_a_step_of_its_own_says_its_kind_itself(
    base: type[Operator], given: dict[str, Any]
) -> None:
    assert base(**given).kind is Kind.CONVERGENT
    assert type("Same", (base,), {})(**given).kind is Kind.CONVERGENT
    assert type("Own", (Remembers, base), {})(**given).kind is Kind.DETERMINISTIC


def test_a_window_that_forgets_its_last_watermark_is_convicted() -> None:
    """Begun behind all open windows it would take late rows for rows in time."""

    class Hasty(lib.TumblingWindow):
        def oldest_needed_behind(self, state: Any, batch: int) -> int | None:
            return batch + 1 if not state.panes else super().oldest_needed_behind(state, batch)

    rows = [{"time": 0, "key": "a", "zone": 1, "value": 1.0}]
    batches: list[Any] = [(rows, [], 5), (rows, [], 0)]
    window = Hasty(size="1s", keys=["key"], aggregate={"n": "count()"})
    with pytest.raises(AssertionError, match="begun with batch 2"):
        check_kind(window, inboxes(batches))


def test_a_window_whose_rows_come_as_keys_were_first_seen_is_convicted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lib.TumblingWindow, "_by_key", lambda self, state, slots: slots)

    def row(second: int, key: str) -> dict[str, Any]:
        return {"time": second * 1_000_000, "key": key, "zone": 1, "value": 1.0}

    batches: list[Any] = [([row(0, "b")], [], 1), ([row(2, "a"), row(2, "b")], [], 0), ([], [], 4)]
    window = lib.TumblingWindow(size="1s", keys=["key"], aggregate={"n": "count()"})
    with pytest.raises(AssertionError, match="begun with batch"):
        check_kind(window, inboxes(batches))


def test_longer_paths_are_made_row_by_row() -> None:
    joined = pa.table({"source": [1, 1], "path": [[1], [1, 2]], "start_node": [1, 2], "end_node": [2, 3]})
    check_kind(lib.ExtendPath(), [inbox(1, joined), inbox(2, joined.slice(1))])


@pytest.mark.parametrize(
    "name",
    [
        "tumbling",
        "sliding",
        "sessions",
        "deduplicate",
        "aggregate",
        "count",
        "top",
        "join",
        "join-full",
        "pairs",
        "running",
        "lookup",
    ],
)
@pytest.mark.parametrize("kind", [Kind.CONVERGENT, Kind.REPEATABLE])
def test_a_claim_that_is_wrong_is_convicted(name: str, kind: Kind) -> None:
    """Each of these forgets nothing, or not all of it at a batch that is known in advance."""
    operator = OPERATORS[name]()
    operator.kind = kind
    if operator.oldest_needed(3) is None:
        operator.oldest_needed = lambda batch: batch  # type: ignore[method-assign, assignment]
    rows = [
        {"time": 500_000 * t, "key": "abc"[n % 3], "zone": 1, "value": 9.5 - n}
        for n, t in enumerate((0, 1, 2, 2, 6, 7, 13))
    ]
    batches = [([row], rows[:3] if row is rows[0] else [], None) for row in rows] + [([], [], 9)]
    with pytest.raises(AssertionError, match=str(kind)):
        check_kind(operator, inboxes(batches))  # type: ignore[arg-type]


def test_a_window_begins_with_the_batch_that_is_due_in_it_first() -> None:
    windowed = lib.RunningAggregate(keys=[], aggregate={"n": "count()"}, size="3s", interval="2s", first="1s")
    # due at 0 | 2 | 4, 6 | 8 | 10, 12 seconds; windows begin at 0, 1, 4, 7, 10
    assert [windowed.oldest_needed(b) for b in range(1, 8)] == [1, 2, 3, 3, 5, 6, 6]


def spec_of(class_path: str, deterministic: bool | None = None) -> OperatorSpec:
    parameters = {} if class_path.endswith("Toss") else {"where": "x > 0"}
    return OperatorSpec("one", class_path, 1, parameters, 1.0, deterministic, (), None)


# -- `deterministic`, which follows from the kind ------------------------------------------------------------------------


def test_a_class_that_says_only_whether_it_is_deterministic_has_the_kind_that_follows() -> None:
    class Again(Toss):
        deterministic = True

    class Mixin:
        deterministic = False

    class Mixed(Mixin, lib.Filter):  # type: ignore[misc]
        """The mixin comes first, and what it says holds."""

    kinds = [(c.kind, c(*args).deterministic) for c, *args in ((Toss,), (Again,), (Mixed, "x > 0"))]  # type: ignore[operator]
    assert kinds == [(Kind.ARBITRARY, False), (Kind.DETERMINISTIC, True), (Kind.ARBITRARY, False)]


def test_an_instance_may_say_it_too() -> None:
    one = lib.Filter(where="x > 0")
    one.deterministic = False
    other = lib.Filter(where="x > 0")
    other.deterministic = True
    assert (one.kind, other.kind) == (Kind.ARBITRARY, Kind.CONVERGENT)


def test_a_class_that_contradicts_itself_is_refused() -> None:
    with pytest.raises(TypeError, match="`kind` is repeatable and `deterministic` is False"):
        type("Both", (lib.Filter,), {"kind": Kind.REPEATABLE, "deterministic": False})


def test_a_class_with_a_property_of_its_own_is_asked() -> None:
    class Asked(lib.Filter):
        @property
        def deterministic(self) -> bool:
            return False

    Asked.__module__, globals()["Asked"] = __name__, Asked
    assert make_operator(spec_of(f"{__name__}:Asked")).kind is Kind.ARBITRARY


def test_what_the_resource_says_comes_before_what_the_class_says() -> None:
    assert make_operator(spec_of("tests.support.coin:Toss", deterministic=True)).kind is Kind.DETERMINISTIC
    filtered = spec_of("reprise.spark_jobs.operators:Filter", deterministic=False)
    assert make_operator(filtered).kind is Kind.ARBITRARY


# -- how own classes say it ----------------------------------------------------------------------------------------------


SPEC = OperatorSpec("mine", "", 1, {}, 1.0, None, (), None)


class Stepping(Operator):
    def step(self, state: Any, inbox: Inbox) -> tuple[Any, pa.Table | None]:
        return state, None


@dataclass
class Field(Stepping):
    deterministic: bool = False


@dataclass(slots=True)
class Slot(Stepping):
    deterministic: bool = False


@dataclass(frozen=True)
class Frozen(Stepping):
    size: int = 1


class Derived(Field):
    pass


class Named(Stepping):
    def __init__(self) -> None:
        self.kind = "inner"  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("name", "parameters", "said", "kind"),
    [
        ("Field", {}, None, Kind.ARBITRARY),
        ("Field", {"deterministic": True}, None, Kind.DETERMINISTIC),
        ("Field", {}, True, Kind.DETERMINISTIC),
        ("Slot", {}, None, Kind.ARBITRARY),
        ("Derived", {}, None, Kind.ARBITRARY),
        ("Frozen", {}, None, Kind.DETERMINISTIC),
        ("Frozen", {}, False, Kind.ARBITRARY),
    ],
)
def test_a_dataclass_says_it_as_a_field(
    name: str, parameters: dict[str, Any], said: bool | None, kind: Kind
) -> None:
    spec = replace(SPEC, class_path=f"{__name__}:{name}", parameters=parameters, deterministic=said)
    assert make_operator(spec).kind is kind


def test_an_attribute_of_that_name_with_another_meaning_is_refused() -> None:
    with pytest.raises(SpecError, match=r"spec.operators\[mine\].class.*must be a reprise.contract.Kind"):
        make_operator(replace(SPEC, class_path=f"{__name__}:Named"))
