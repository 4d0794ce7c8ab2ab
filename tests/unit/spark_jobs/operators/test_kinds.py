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
from reprise.spark_jobs.operators.testing import check_kind, inbox
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
    "join-by-minute": lambda: lib.Join(left="input", right="other", keys=["zone"], size="2s", interval="1s"),
}
EVERY = {**OPERATORS, **MORE}
CLAIMED = {
    Kind.REPEATABLE: {"map", "filter", "flatmap", "union", "sink"},
    Kind.CONVERGENT: {"top-of-batch", "top-of-few", "pairs-windowed", "join-by-minute", "running-windowed"},
}


@pytest.mark.parametrize("name", sorted(set().union(*CLAIMED.values())))
@examples(15)
@given(batches=stream)
def test_operator_is_of_the_kind_that_it_claims(name: str, batches: list[Any]) -> None:
    check_kind(EVERY[name](), inboxes(batches))


def test_every_operator_of_the_library_claims_what_this_page_says() -> None:
    for name, make in EVERY.items():
        claimed = next((kind for kind, names in CLAIMED.items() if name in names), Kind.DETERMINISTIC)
        assert make().kind is claimed, name
        assert (make().oldest_needed(1) is None) is (claimed is Kind.DETERMINISTIC), name
    tried = {type(make()).__name__ for make in EVERY.values()}
    assert set(lib.__all__) - tried == {"ColumnError", "ExtendPath", "PathJoin"}
    assert (lib.ExtendPath().kind, lib.PathJoin().kind) == (Kind.REPEATABLE, Kind.DETERMINISTIC)


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


def test_rows_that_are_counted_by_the_batch_are_not_repeatable() -> None:
    counted = lib.Map(select={"n": "count(value) OVER ()"})
    rows = [{"time": 0, "key": "a", "zone": 1, "value": 1.0}] * 2
    with pytest.raises(AssertionError, match="one by one the rows of batch 1"):
        check_kind(counted, inboxes([(rows, [], None)]))  # type: ignore[list-item]


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
    assert (one.kind, other.kind) == (Kind.ARBITRARY, Kind.REPEATABLE)


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
