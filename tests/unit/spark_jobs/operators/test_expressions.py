"""Expressions that a replay would compute otherwise are refused, with the parameter, and nothing that looks like them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

from reprise.spark_jobs import operators as lib
from reprise.spark_jobs.contract import Operator
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.operators import expressions
from reprise.spark_jobs.operators.expressions import parse_expression
from reprise.spark_jobs.topology import from_object
from reprise.spark_jobs.topology.binding import unbound
from tests.support.topologies import document, operator, source

CLOCKS = [
    "now()",
    "NOW ()",
    '"now"()',
    "now(/* at once */)",
    "current_timestamp",
    "CURRENT_TIMESTAMP()",
    "CURRENT_DATE",
    "current_date()",
    "CURRENT_TIME",
    "LOCALTIME",
    "localtimestamp",
    "CAST(now() AS VARCHAR)",
    "extract(year FROM current_date)",
    "CASE WHEN v > 1 THEN current_timestamp ELSE t END",
    "t<now()",
    "date_part('year', now()) AS year",
    "'it''s ' || CAST(current_date AS VARCHAR)",
    """"o'clock" > 0 AND t < now() AND s = 'x'""",
    """"it's" + now() + 'x'""",
    """"a--b" + now()""",
    '''"a/*" + now() + "*/"''',
    "$$ ' $$ || now() || 'x'",
    "now /* ' */ ()",
    "now -- '\n()",
    "`now`()",
    "{fn now()}",
    "now() AT TIME ZONE 'UTC'",
    "coalesce(t, current_timestamp)",
    "count(*) FILTER (WHERE t < now())",
]
SEVERAL = [
    "SUM(v)",
    "COUNT(*)",
    "count(v) OVER ()",
    "count(DISTINCT v)",
    "row_number() OVER ()",
    "rank() OVER (ORDER BY v)",
    "dense_rank() OVER (ORDER BY v)",
    "max(v) OVER (PARTITION BY t)",
    "lag(v) OVER (ORDER BY t)",
    "v - avg(v)",
    "CASE WHEN max(v) > 1 THEN 2 ELSE 3 END",
    "first(v)",
    "median(v) + 1",
    "quantile_cont(v, 0.5)",
    "corr(v, w)",
    "array_agg(v)",
    "string_agg(t, ',')",
    "UNNEST(l)",
    "date(t)",
    "timestamp(t)",
    "replace(t, w, 'x')",
    "replace(t, 'x', w)",
]
OF_ONE_ROW = [
    "replace(t, 'x', 'y')",
    "v IN (1, 2)",
    "round(v, 2)",
    "v % 7",
    "array_sum(l)",
    "array_unique(l)",
    "array_length(l)",
    "v = ANY(l)",
    "greatest(v, w)",
    "split_part(t, ',', 1)",
    "concat_ws('a', t, t)",
    "date(t, '%Y-%m-%d')",
    "CAST(t AS DATE)",
    "s.f",
    "-v",
]
CHANCE = ["random()", "rand()", "uuid()", "gen_random_uuid()", "today()", "v + random()"]
"""Polars does not know them yet; should it, they give another value each time."""
FIXED = [
    "DATE '2020-01-01'",
    "TIMESTAMP '2020-01-01 10:00:00'",
    "t > DATE '2020-01-01'",
    "'2020-01-01'::timestamp",
    "t + INTERVAL '1 day'",
    "now",
    '"current_date"',
    "v AS current_date",
    "'now()' AS said",
    "v -- now()",
    "v /* current_date */",
    "extract(year FROM t)",
    "pi() * v",
    "known_now",
    "strftime(t, '%Y')",
    "least(v, now)",
    "greatest(/* first */ v, now)",
    "coalesce(v, now)",
    "least /* of all */ * 2",
    '"now" /* current_date */',
    "größe",
    "CASE WHEN v > 1 THEN 'now()' ELSE CAST(\"current_date\" AS VARCHAR) END",
]
QUOTED = [
    "'it''s'",
    "'now()'",
    "'\"'",
    "'\\'",
    "'--'",
    "'/*'",
    "'$$'",
    "$$ ' now() $$",
    '$q$ " $$ -- $q$',
    '"o\'clock"',
    '"now()"',
    '"a""b"',
    '"a/*"',
    '"a--b"',
    "`a\"b'`",
    "v /* /* */ ' current_date */",
    "v -- ' current_date\n",
    "größe",
]
"""Names, texts and comments that hold what would begin or end another one."""


@pytest.mark.parametrize("text", CLOCKS)
def test_an_expression_that_asks_the_clock_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match="gives another value in each partition and replay") as refused:
        parse_expression(text, "select[0]", named=True)
    assert refused.value.field == "select[0]"


@pytest.mark.parametrize("text", CHANCE)
def test_an_expression_of_chance_is_refused(text: str) -> None:
    with pytest.raises(SpecError):
        parse_expression(text, "where", named=True)


def test_a_function_that_gives_other_values_when_asked_again_is_one_of_chance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As polars may have one some day: here `pi` is it."""
    asked = iter(range(10))
    read = pl.sql_expr
    monkeypatch.setattr(pl, "sql_expr", lambda text: pl.lit(next(asked)) if text == "pi()" else read(text))
    expressions._varies.cache_clear()
    try:
        with pytest.raises(SpecError, match=r"'pi\(\)' gives another value"):
            parse_expression("v * pi()", "where")
    finally:
        expressions._varies.cache_clear()


@pytest.mark.parametrize("one", QUOTED)
def test_no_quote_or_comment_hides_a_clock_or_is_taken_for_one(one: str) -> None:
    for other in QUOTED:
        parse_expression(f"{one} = {other} OR v", "where")
        for clock in ("now()", "current_date"):
            with pytest.raises(SpecError, match="gives another value"):
                parse_expression(f"{one} = {clock} OR {other}", "where")


@pytest.mark.parametrize("text", ["least()", "greatest()"])
def test_where_polars_panics_it_is_no_expression(text: str) -> None:
    with pytest.raises(SpecError, match="is not a polars SQL expression"):
        parse_expression(text, "where", named=True)


@pytest.mark.parametrize("text", FIXED)
def test_what_only_looks_like_it_is_read(text: str) -> None:
    columns = {name: [1] for name in ("v", "now", "current_date", "known_now", "least", "größe")}
    frame = pl.DataFrame({**columns, "t": [0]}).with_columns(pl.col("t").cast(pl.Datetime("us")))
    assert frame.select(parse_expression(text, "select", named=True)).equals(
        frame.select(parse_expression(text, "select", named=True))
    )


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda text: lib.Map(select=["v", text]), "select[1]"),
        (lambda text: lib.Map(select={"at": text}), "select.at"),
        (lambda text: lib.Map(where=f"t < {text}"), "where"),
        (lambda text: lib.Filter(where=f"t < {text}"), "where"),
        (lambda text: lib.FlatMap(explode=["l"], select=[text]), "select[0]"),
        (lambda text: lib.FlatMap(explode=["l"], where=f"t < {text}"), "where"),
    ],
)
def test_wherever_an_operator_takes_one(make: Callable[[str], Operator], field: str) -> None:
    with pytest.raises(SpecError) as refused:
        make("now()")
    assert refused.value.field == field


@pytest.mark.parametrize("more", [{}, {"availability": "active-standby"}, {"deterministic": False}])
def test_a_resource_with_one_is_refused_with_its_field(more: dict[str, Any]) -> None:
    """Also where the operator says that it is not deterministic: the time would be that at which a host began."""
    filtered = {"class": "reprise.operators:Map", "with": {"select": {"at": "CURRENT_DATE"}}, **more}
    resource = from_object(document(source(), operator("a", "s", output={}, **filtered)))
    (wrong,) = unbound(resource)
    assert wrong.field == "spec.operators[a].with.select.at"


@pytest.mark.parametrize("text", SEVERAL)
def test_what_depends_on_the_other_rows_of_a_batch_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match=r"where: .* depends on the other rows of its batch"):
        parse_expression(text, "where", named=True)


@pytest.mark.parametrize("text", OF_ONE_ROW)
def test_what_depends_on_one_row_is_taken(text: str) -> None:
    assert parse_expression(text, "where") is not None


@pytest.mark.parametrize("text", ["b ISNULL", "v > 1_000", "v > 1 AS big"])
def test_a_name_that_would_be_dropped_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match=r"where: .* names its result '\w+'; leave out the name"):
        parse_expression(text, "where")
    assert parse_expression(text, "select[0]", named=True) is not None


def test_a_type_that_polars_needs_is_named_with_the_way_out() -> None:
    with pytest.raises(SpecError, match=r"AT TIME ZONE could not resolve .* CAST the column first"):
        parse_expression("t AT TIME ZONE 'UTC'", "where")
    assert parse_expression("CAST(t AS TIMESTAMP) AT TIME ZONE 'UTC'", "where") is not None
