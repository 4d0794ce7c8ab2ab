"""Column names followed through the graph, from the sources to the outputs, as far as classes declare them.

A wrong key column is a valid text in a valid place: without this it is found when the first rows come, which may be never.
Every class may say which columns it gives for the columns that it gets (`output_columns`), and refuse those that it cannot
work with; what a class does not say is unknown, and what follows from it is unknown, too.  Invariant: nothing is refused
that could work: only a name that is missing from columns that are known, and a name of two columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from reprise.spark_jobs.contract import Columns
from reprise.spark_jobs.errors import SpecError, raise_all
from reprise.spark_jobs.topology.binding import make_operator, make_source
from reprise.spark_jobs.topology.resource import Mode, OperatorSpec, SourceSpec, StreamTopology
from reprise.spark_jobs.topology.scalars import given_twice, nearest


def follow(resource: StreamTopology) -> dict[str, Columns]:
    """The columns that each source and operator gives, by name; None where they are not known.

    Reads what sources look at to know theirs (the head of a file).  SpecError for the columns that cannot be there, each
    with its field, what there is instead and the nearest name; and for sources' files that cannot be read.
    """
    found: dict[str, Columns] = {}
    wrong: list[SpecError] = []
    for source in resource.sources:
        found[source.name] = _declared(source, partial(_of_source, source), wrong)
    for operator in _in_order(resource.operators, set(found)):
        inputs = {
            i.source: None if i.feedback else found.get(i.source) for i in operator.inputs
        }  # what comes over a feedback edge follows from what is being found here
        wrong += _keys_that_are_not_there(operator, inputs)
        found[operator.name] = _declared(operator, partial(_of_operator, operator, inputs), wrong)
    raise_all(wrong)
    return found


def _of_source(source: SourceSpec) -> Columns:
    return make_source(source).output_columns()


def _of_operator(operator: OperatorSpec, inputs: Mapping[str, Columns]) -> Columns:
    return make_operator(operator).output_columns(inputs)


def missing(name: str, columns: Sequence[str]) -> str:
    """Why a column is refused: it is not among these."""
    close = nearest(name, list(columns))
    there = f"there is no column {name!r}; the columns are {', '.join(columns) or 'none'}"
    return there + (close if "mean" in close else "")


def require(columns: Columns, wanted: Iterable[str], field: str) -> None:
    """SpecError for the first of `wanted` that is not in `columns`, where those are known."""
    for name in wanted:
        if columns is not None and name not in columns:
            raise SpecError(field, missing(name, columns))


def merged(inputs: Mapping[str, Columns]) -> Columns:
    """The columns of all inputs together, in order; None when those of one are not known."""
    names: dict[str, None] = {}
    for columns in inputs.values():
        if columns is None:
            return None
        names |= dict.fromkeys(columns)
    return tuple(names)


def input_of(inputs: Mapping[str, Columns], name: str, field: str) -> Columns:
    """The columns of the upstream operator that a parameter names; SpecError when it is not an input."""
    if name not in inputs:
        raise SpecError(field, f"{name!r} is not an input of this operator{nearest(name, list(inputs))}")
    return inputs[name]


def _declared(
    spec: SourceSpec | OperatorSpec, declare: Callable[[], Columns], wrong: list[SpecError]
) -> Columns:
    """What a class says; where it is mistaken, nothing is known, and why goes to `wrong`."""
    kind = "sources" if isinstance(spec, SourceSpec) else "operators"
    field = f"spec.{kind}[{spec.name}]"
    try:
        columns = declare()
        if (twice := given_twice(columns or ())) is not None:
            raise SpecError(
                f"{field}.with", f"two columns of the output are called {twice!r}: rename one in a Map"
            )
        return None if columns is None else tuple(columns)
    except SpecError as error:  # names the parameter; or, where the class cannot be made, its field
        place = error.field if error.field.startswith(field) else f"{field}.with.{error.field}"
        wrong.append(SpecError(place, error.reason, error.others))
    except Exception as error:  # whatever a user's declaration raises
        reason = f"its output_columns raised {type(error).__name__}: {error}"
        wrong.append(SpecError(f"{field}.class", reason))
    return None


def _keys_that_are_not_there(operator: OperatorSpec, inputs: Mapping[str, Columns]) -> Iterator[SpecError]:
    for index, spec in enumerate(operator.inputs):
        known = inputs[spec.source]
        if spec.grouping.mode is Mode.KEYS and known is not None:
            for name in spec.grouping.by:
                if name not in known:
                    field = f"spec.operators[{operator.name}].inputs[{index}].by"
                    yield SpecError(field, f"{spec.source!r} gives: {missing(name, known)}")


def _in_order(operators: Sequence[OperatorSpec], done: set[str]) -> list[OperatorSpec]:
    """Upstream first; feedback edges are left aside.  Expects a checked graph."""
    order: list[OperatorSpec] = []
    waiting = list(operators)
    while waiting:
        ready = [o for o in waiting if all(i.feedback or i.source in done for i in o.inputs)]
        if not ready:
            return order + waiting
        order += ready
        done |= {o.name for o in ready}
        waiting = [o for o in waiting if o.name not in done]
    return order
