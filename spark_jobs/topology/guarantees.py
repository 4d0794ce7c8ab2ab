"""What a failure may do to each output, as it follows from how the operators upstream of it come back.

The weakest of all that is upstream decides (Hwang et al., "High-Availability Algorithms for Distributed Stream Processing",
sections 3.1 and 3.2).  A replay that repeats rows is *precise* here, as outputs are numbered by partition and batch and
each is shown once.  With `availability: amnesia` an output has *gaps*: batches that may lack rows, each of them marked.
Invariant: which batches those are follows from what was skipped alone, so they are known before any of them is made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import replace
from itertools import chain
from types import MappingProxyType

from reprise.spark_jobs.contract import Operator
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.sinks import Sink
from reprise.spark_jobs.topology.graph import stage_order
from reprise.spark_jobs.topology.promise import Guarantee, Promise
from reprise.spark_jobs.topology.resource import OperatorSpec, StreamTopology

WAITS_FOR_ITSELF = (
    "'passive-standby' of an operator that is arbitrary is not for one in a cycle: what it needs of its own output would "
    "wait for its standby, and that for what it gives next"
)
"""Why there is none."""

MOST_BATCHES = 1_000_000
"""An output that depends on older input than that never counts as right again."""


def guarantees(
    resource: StreamTopology,
    deterministic: Mapping[str, bool | None],
    given_up: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
) -> dict[str, Promise]:
    """What is promised of each operator that has an output.  `deterministic`: whether a replay of each operator gives the
    same rows; None where that is not known.  `given_up`: sources, and operators with a sink -> what settings of these give
    up (`reprise.spark_jobs.topology.given_up`)."""
    outputs = [spec.name for spec in resource.operators if spec.output is not None]
    gaps: dict[str, list[str]] = {}
    differ: dict[str, list[str]] = {}
    silent: dict[str, list[str]] = {}
    for spec in resource.operators:
        said = deterministic[spec.name]
        for found, limits in ((gaps, spec.forgetful), (differ, said is False), (silent, said is None)):
            for name in behind(resource, spec.name) if limits else ():
                found.setdefault(name, []).append(spec.name)
    promised = {}
    for name in outputs:
        if name in gaps:
            promised[name] = Promise(Guarantee.GAP, tuple(gaps[name]))
        elif resource.arrival:
            promised[name] = Promise(Guarantee.PRECISE_BY_CHECKPOINT)
        elif name in differ:
            promised[name] = Promise(Guarantee.PRECISE_BY_CHECKPOINT, tuple(differ[name]))
        elif name in silent:
            promised[name] = Promise(None, tuple(silent[name]))
        else:
            promised[name] = Promise(Guarantee.PRECISE)
    sources = {source.name: behind(resource, source.name) for source in resource.sources}
    for name, promise in promised.items():
        texts = [given_up.get(source, ()) for source, readers in sources.items() if name in readers]
        promised[name] = replace(promise, given_up=tuple(chain(*texts, given_up.get(name, ()))))
    return promised


def behind(resource: StreamTopology, name: str) -> tuple[str, ...]:
    """An operator and all that read it, directly or not, over feedback edges too; in the order of the resource."""
    readers: dict[str, list[str]] = {}
    for operator in resource.operators:
        for one in operator.inputs:
            readers.setdefault(one.source, []).append(operator.name)
    found, waiting = {name}, [name]
    while waiting:
        new = set(readers.get(waiting.pop(), ())) - found
        found |= new
        waiting += new
    return tuple(o.name for o in resource.operators if o.name in found)


def is_in_a_cycle(resource: StreamTopology, name: str) -> bool:
    """Whether an operator reads what follows from its own output."""
    readers = (o.name for o in resource.operators if any(i.source == name for i in o.inputs))
    return any(name in behind(resource, reader) for reader in readers)


def require_equal_replays(resource: StreamTopology, operators: Mapping[str, Operator]) -> None:
    """SpecError for an operator whose replay may differ, where states are stored slot by slot.  `operators`: one of each."""
    for spec in resource.operators if resource.checkpoint.eventual else ():
        if spec.deterministic is not False and not operators[spec.name].kind.deterministic:
            raise SpecError(
                f"spec.operators[{spec.name}].class",
                "is not deterministic, and `checkpoint.protocol: eventual` needs equal rows of a replay",
            )


def require_gaps_that_end(
    resource: StreamTopology, operators: Mapping[str, Operator], sinks: Mapping[str, Sink | None]
) -> None:
    """SpecError where batches would be skipped and it could not be said which outputs lack rows, or not be marked."""
    for spec in resource.operators:
        if not spec.forgetful:
            continue
        field = f"spec.operators[{spec.name}].availability"
        for name, operator in operators.items():
            if not operator.kind.deterministic:
                reason = f"operator {name!r} is arbitrary, so everything goes back at each failure"
                raise SpecError(field, f"'amnesia' has no effect: {reason}")
        for name in behind(resource, spec.name):
            who = "it" if name == spec.name else f"operator {name!r}, which reads it,"
            if _needs_all(operators[name], field):
                what = f"is {operators[name].kind}, so all later output could differ"
                if operators[name].reaches_by_state:
                    what = "says only by its state how far back it reaches, which nobody knows of rows that are lost"
                raise SpecError(
                    field,
                    f"'amnesia' needs an end of what a lost batch changes: {who} {what}; `repeatable` operators, and "
                    "`convergent` ones with `oldest_needed`, can be (docs/operators.md)",
                )
            sink = sinks.get(name)
            if sink is not None and not sink.marks:
                lacks = f": it needs {sink.needs_to_mark}" if sink.needs_to_mark else ""
                raise SpecError(
                    field,
                    f"'amnesia' needs outputs that mark batches: the sink {type(sink).__name__} of {name!r} does not{lacks}",
                )


def require_standbys_that_agree(resource: StreamTopology, operators: Mapping[str, Operator]) -> None:
    """SpecError where a standby could come to another state than its partition, or be of no use."""
    arbitrary = {name for name, operator in operators.items() if not operator.kind.deterministic}
    for spec in resource.operators if arbitrary else ():
        if spec.has_standby and (reason := why_no_standby(resource, spec, arbitrary)):
            raise SpecError(f"spec.operators[{spec.name}].availability", reason)


def why_no_standby(resource: StreamTopology, spec: OperatorSpec, arbitrary: Set[str]) -> str:
    """Why an operator cannot have the standbys that it asks for; empty: it can.  `arbitrary`: the operators, at least one,
    of which a replay may differ."""
    waits = {o.name for o in resource.operators if o.passive} & arbitrary
    if bare := sorted(arbitrary - waits):
        reason = "it could come to another state than its standby"
        if spec.name not in bare:
            reason = "everything goes back at each failure, and standbys with it"
        reason += "; with 'passive-standby' its output would wait for that"
        who = spec.name if spec.name in bare else bare[0]
        return f"{spec.availability!r} has no effect: operator {who!r} is arbitrary, so {reason}"
    if spec.name in waits and is_in_a_cycle(resource, spec.name):
        return WAITS_FOR_ITSELF
    if not spec.passive:
        beside = f"was not tried beside operator {min(arbitrary)!r}, which is arbitrary"
        return f"{spec.availability!r} {beside}: 'passive-standby' is"
    return ""


def require_an_oldest_input(resource: StreamTopology, operators: Mapping[str, Operator]) -> None:
    """SpecError for an operator with upstream backup that may depend on all of its input, and where a replay may differ."""
    for spec in resource.operators:
        if not spec.backed_upstream:
            continue
        field = f"spec.operators[{spec.name}].availability"
        for name, operator in operators.items():
            if not operator.kind.deterministic:
                reason = f"operator {name!r} is arbitrary, so everything goes back at each failure"
                raise SpecError(field, f"'upstream-backup' has no effect: {reason}")
        if not _ends_somewhere(operators[spec.name], field):
            raise SpecError(
                field,
                f"'upstream-backup' needs an operator that does not depend on all input before: this one is "
                f"{operators[spec.name].kind}; `convergent` and `repeatable` ones say how far back they reach "
                "(docs/operators.md)",
            )


def with_an_oldest_input(operators: Mapping[str, Operator], names: Set[str]) -> frozenset[str]:
    """Those of some operators that say how far back they reach, in a topology in which every replay gives the same."""
    if not all(operator.kind.deterministic for operator in operators.values()):
        return frozenset()
    return frozenset(name for name in names if _reaches_back_so_far(operators[name]))


def _reaches_back_so_far(operator: Operator) -> bool:
    try:
        return _ends_somewhere(operator, "")
    except SpecError:  # its code raises
        return False


def _ends_somewhere(operator: Operator, field: str) -> bool:
    """Whether output does not depend on all input before, as the operator or its state says.  SpecError as `_needs_all`."""
    return not _needs_all(operator, field) or operator.reaches_by_state


def _needs_all(operator: Operator, field: str) -> bool:
    """Whether output may depend on all input before.  SpecError where the operator's code raises when it is asked."""
    try:
        return operator.oldest_needed(1) is None
    except Exception as error:  # user code raises what it likes
        reason = f"`{type(operator).__name__}.oldest_needed(1)` raises {type(error).__name__}: {error}"
        raise SpecError(field, reason) from error


def last_marked(
    resource: StreamTopology, operators: Mapping[str, Operator], name: str, until: int
) -> dict[str, int]:
    """The last batch that may lack rows where a partition of an operator begins anew behind batch `until`: of that operator,
    and of each that reads it, directly or not.  Output lacks rows where it depends on input that does."""
    last = {name: _last_dependent(operators[name], until)}
    inputs = {spec.name: [i.source for i in spec.inputs] for spec in resource.operators}
    for reader in stage_order(resource):
        lacking = [last[source] for source in inputs.get(reader, ()) if source in last]
        if lacking:
            last[reader] = max(last.get(reader, 0), _last_dependent(operators[reader], max(lacking)))
    return last


def _last_dependent(operator: Operator, until: int) -> int:
    """The last batch whose output depends on input up to batch `until`."""
    for batch in range(until, until + MOST_BATCHES):
        oldest = operator.oldest_needed(batch + 1)
        if oldest is None or oldest > until:
            return batch
    raise SpecError("oldest_needed", f"batch {until + MOST_BATCHES} still depends on batch {until}")


def described(
    resource: StreamTopology,
    found: Mapping[str, Promise],
    fed: Set[str] = frozenset(),
    waits: Set[str] = frozenset(),
) -> Iterator[str]:
    """A line for each output operator, and for each that has a way of its own to come back, for people.  `fed`: operators
    with standbys whose partitions are fed again by what they read where both copies are lost; `waits`: those whose output
    waits for their standbys."""
    for spec in resource.operators:
        if spec.has_standby:
            how = f", sent what has changed every {spec.standby_every} batches" if spec.passive else ""
            if spec.name in waits:
                yield (
                    f"operator {spec.name}: passive-standby{how}; as a replay may differ its output waits until the "
                    f"standby has it, for up to {spec.standby_every} batches and two jobs, and leaves in bursts; where jobs "
                    "are shorter than a batch it is sent something with each batch; where both are lost everything goes "
                    "back to the checkpoint"
                )
                continue
            feeds = "fed again by what it reads, if that has kept enough, or " if spec.name in fed else ""
            yield (
                f"operator {spec.name}: {spec.availability}, each of its {spec.parallelism} partitions has one on another "
                f"node{how}; a partition that is lost with its standby is {feeds}restored from the checkpoint"
            )
        if spec.backed_upstream:
            yield (
                f"operator {spec.name}: upstream-backup, a lost partition is fed again by what it reads; where two in a row "
                "are lost, or what is kept did not fit, it comes from the checkpoint"
            )
    for name, promise in found.items():
        yield f"output {name}: {promise}"
