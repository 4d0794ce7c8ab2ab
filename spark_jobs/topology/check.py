"""What a topology must mean beyond its shape: names, inputs, groupings and cycles; one rule a function.

Each rule gives all that it finds.  Those that follow edges are asked only where all names differ and all inputs exist.
Invariant of a checked topology: without its feedback edges it is acyclic and every
operator is reached from a source.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from reprise.algorithms.cpu import milli_cpu, under_cap
from reprise.spark_jobs.errors import SpecError, raise_all
from reprise.spark_jobs.topology.class_path import of_library
from reprise.spark_jobs.topology.guarantees import behind
from reprise.spark_jobs.topology.limits import within_limits
from reprise.spark_jobs.topology.resource import InputSpec, Mode, OperatorSpec, StreamTopology
from reprise.spark_jobs.topology.schema import nearest

LEAST_MEMORY = 450 * 2**20
"""Bytes of an executor's heap below which Spark refuses to start it."""

MOST_EDGES = 100_000
"""Edges between partitions in a topology whose partitions store themselves by their own clocks."""

MOST_INDUCED = 1_000
"""Partitions of a topology with communication-induced checkpoints: messages have headers of 8 KiB then."""


@dataclass(frozen=True, slots=True)
class SpecWarning:
    """Something legal that is probably not meant."""

    field: str
    reason: str


def check(topology: StreamTopology) -> tuple[SpecWarning, ...]:
    """Warnings of a meaningful topology; SpecError with everything that is wrong with another one."""
    raise_all(mistakes(topology))
    return (*_unneeded(topology), *_idle_feedback(topology), *_forced_in_vain(topology))


def mistakes(topology: StreamTopology) -> tuple[SpecError, ...]:
    """Everything that is wrong with it.  Where names or inputs are, the rules that follow edges are not asked."""
    found = [error for rule in _NAMES for error in rule(topology)]
    rules = _RULES if found else (*_RULES, *_EDGE_RULES)
    return (*found, *(error for rule in rules for error in rule(topology)))


def _field(operator: OperatorSpec, index: int | None = None) -> str:
    return f"spec.operators[{operator.name}]" + ("" if index is None else f".inputs[{index}]")


def _edges(topology: StreamTopology) -> Iterator[tuple[OperatorSpec, int, InputSpec]]:
    for operator in topology.operators:
        for index, spec in enumerate(operator.inputs):
            yield operator, index, spec


def _names_differ(topology: StreamTopology) -> Iterator[SpecError]:
    seen: dict[str, str] = {}
    fields = [f"spec.sources[{i}]" for i in range(len(topology.sources))]
    fields += [f"spec.operators[{i}]" for i in range(len(topology.operators))]
    for field, item in zip(fields, topology.stages, strict=True):
        if item.name in seen:
            yield SpecError(f"{field}.name", f"{item.name!r} is the name of {seen[item.name]} already")
        seen[item.name] = field


def _inputs_exist(topology: StreamTopology) -> Iterator[SpecError]:
    names = [x.name for x in topology.stages]
    for operator, index, spec in _edges(topology):
        if spec.source not in names:
            reason = f"there is no source or operator {spec.source!r}{nearest(spec.source, names)}"
            yield SpecError(f"{_field(operator, index)}.from", reason)
    for operator in topology.operators:
        for name, times in Counter(i.source for i in operator.inputs).items():
            if times > 1:
                yield SpecError(
                    f"{_field(operator)}.inputs", f"{name!r} is subscribed to {times} times; once is enough"
                )


def _groupings_fit(topology: StreamTopology) -> Iterator[SpecError]:
    parallelism = {x.name: x.parallelism for x in topology.stages}
    for operator, index, spec in _edges(topology):
        field, mode = _field(operator, index), spec.grouping.mode
        if mode is Mode.SINGLE and operator.parallelism > 1:
            partitions = f"{operator.name!r} has {operator.parallelism} partitions"
            yield SpecError(
                field, f"{partitions}: say how rows reach them with `by`, `broadcast` or `forward`"
            )
        if mode is Mode.FORWARD and parallelism[spec.source] != operator.parallelism:
            reason = (
                f"needs equal parallelism, but {spec.source!r} has {parallelism[spec.source]} partitions "
                f"and {operator.name!r} has {operator.parallelism}"
            )
            yield SpecError(f"{field}.forward", reason)


def _priorities_fit(topology: StreamTopology) -> Iterator[SpecError]:
    for operator in topology.operators:
        for index in operator.output.priorities if operator.output else ():
            if index >= operator.parallelism:
                reason = f"there is no partition {index}: the operator has {operator.parallelism}, from 0"
                yield SpecError(f"{_field(operator)}.output.priorities.{index}", reason)


def _partitions_fit(topology: StreamTopology) -> Iterator[SpecError]:
    """Whether each partition fits a node, as the coordinator counts: in thousandths of a core, under the cap."""
    nodes, cap = topology.nodes, topology.recovery.cpu_cap
    whole = milli_cpu(nodes.cpu_cores)
    room = under_cap(cap, whole)
    for kind, items in (("sources", topology.sources), ("operators", topology.operators)):
        for item in items:
            needed = milli_cpu(item.cpu_cores)
            if needed > room:
                reason = (
                    f"one partition needs {needed}m, more than any node has for plans: "
                    f"{cap * 100:g} % (recovery.cpuCap) of {whole}m (nodes.cpu) is {room}m"
                )
                yield SpecError(f"spec.{kind}[{item.name}].resources.cpu", reason)


def _spark_can_start(topology: StreamTopology) -> Iterator[SpecError]:
    found = topology.spark.executor_memory_bytes
    if found < LEAST_MEMORY:
        reason = f"{found // 2**20}Mi is less than Spark starts with, {LEAST_MEMORY // 2**20}Mi"
        yield SpecError("spec.spark.executorMemory", reason)


def _some_input_drives(topology: StreamTopology) -> Iterator[SpecError]:
    for operator in topology.operators:
        if all(i.feedback for i in operator.inputs):
            yield SpecError(
                f"{_field(operator)}.inputs",
                "are all feedback; at least one must not be, or nothing drives it",
            )


def _no_cycle(topology: StreamTopology) -> Iterator[SpecError]:
    operators = {o.name: o for o in topology.operators}
    done: set[str] = {s.name for s in topology.sources}
    for start in operators:
        # An explicit stack: graphs may be deeper than Python's recursion limit.
        path: list[tuple[str, Iterator[tuple[int, InputSpec]]]] = []
        following: str | None = start if start not in done else None
        while following is not None or path:
            if following is not None:
                path.append((following, iter(list(enumerate(operators[following].inputs)))))
                following = None
            name, inputs = path[-1]
            step = next(((i, x) for i, x in inputs if not x.feedback and x.source not in done), None)
            if step is None:
                done.add(name)
                path.pop()
                continue
            on_path = [n for n, _ in path]
            if step[1].source in on_path:
                cycle = [*on_path[on_path.index(step[1].source) :], step[1].source]
                reason = (
                    f"closes the cycle {' -> '.join(reversed(cycle))}; mark one input of it `feedback: true`"
                )
                yield SpecError(_field(operators[name], step[0]), reason)
                continue  # as if it were feedback
            following = step[1].source


def _has_output(topology: StreamTopology) -> Iterator[SpecError]:
    if not any(o.output for o in topology.operators):
        yield SpecError(
            "spec.operators", "no operator has an `output`, so no query would be recovered; give at least one"
        )


def _protocol_fits(topology: StreamTopology) -> Iterator[SpecError]:
    """Whether protocol, log and scope go together: none of them says what another one takes back."""
    policy, scope = topology.checkpoint, topology.recovery.scope
    if not policy.uncoordinated:
        if policy.log != "none":
            reason = f"{policy.log!r} needs `protocol: uncoordinated`: a coordinated checkpoint needs no log"
            yield SpecError("spec.checkpoint.log", reason)
        if scope == "partition":
            reason = "'partition' needs `checkpoint.protocol: uncoordinated`, with a log of what was sent"
            yield SpecError("spec.recovery.scope", reason)
        for operator in topology.operators:
            if operator.checkpoint_interval_s is not None:
                reason = (
                    "needs `checkpoint.protocol: uncoordinated`: coordinated checkpoints have one interval"
                )
                yield SpecError(f"{_field(operator)}.checkpoint.interval", reason)
        return
    if policy.log == "none" and not policy.induced:
        reason = "`protocol: uncoordinated` needs 'memory' or 'checkpointed': who goes back alone is sent again what it had"
        yield SpecError("spec.checkpoint.log", reason)
    if scope == "ancestors":
        reason = f"with `checkpoint.protocol: {policy.protocol}` lines say who goes back: 'auto', 'partition' or 'global'"
        yield SpecError("spec.recovery.scope", reason)
    if (edges := _partition_edges(topology)) > MOST_EDGES:
        reason = (
            f"{policy.protocol!r} is for at most {MOST_EDGES:,} edges between partitions, as lines are found edge by edge; "
            f"here are {edges:,}"
        )
        yield SpecError("spec.checkpoint.protocol", reason)


def _induced_fits(topology: StreamTopology) -> Iterator[SpecError]:
    """Whether messages can make partitions store themselves here."""
    if not topology.checkpoint.induced:
        return
    if topology.checkpoint.paged:
        yield SpecError(
            "spec.checkpoint.state", "'paged' is not tried with `protocol: communication-induced`"
        )
    if topology.checkpoint.log != "checkpointed":
        reason = (
            "`protocol: communication-induced` needs 'checkpointed': forced snapshots keep out of lines what was received "
            "and is not sent yet; what was sent and is not received yet has to be in a snapshot of its sender"
        )
        yield SpecError("spec.checkpoint.log", reason)
    if (partitions := sum(x.parallelism for x in topology.stages)) > MOST_INDUCED:
        reason = (
            f"'communication-induced' is for at most {MOST_INDUCED:,} partitions, as each message says something of each; "
            f"here are {partitions:,}"
        )
        yield SpecError("spec.checkpoint.protocol", reason)


def _partition_edges(topology: StreamTopology) -> int:
    parallelism = {x.name: x.parallelism for x in topology.stages}
    return sum(
        operator.parallelism * (1 if spec.grouping.mode is Mode.FORWARD else parallelism[spec.source])
        for operator, _, spec in _edges(topology)
    )


def _availability_fits(topology: StreamTopology) -> Iterator[SpecError]:
    """Whether what is asked for is built, and could ever be used."""
    policy = topology.recovery
    for operator in topology.operators:
        field = f"{_field(operator)}.availability"
        if operator.availability == "checkpoint":
            continue
        if not operator.forgetful:
            yield SpecError(field, f"{operator.availability!r} is not built yet: 'checkpoint' or 'amnesia'")
            continue
        if (protocol := topology.checkpoint.protocol) != "coordinated":
            yield SpecError(field, f"'amnesia' is not built for `checkpoint.protocol: {protocol}`")
        if topology.checkpoint.state != "arrays":
            yield SpecError(
                field, f"'amnesia' is not built for `checkpoint.state: {topology.checkpoint.state}`"
            )
        if topology.spark.exchange != "chained":
            yield SpecError(field, f"'amnesia' is not built for `spark.exchange: {topology.spark.exchange}`")
        if policy.scope == "global" or policy.strategy in ("blocking", "operator-centric"):
            which = "scope: global" if policy.scope == "global" else f"strategy: {policy.strategy}"
            reason = (
                f"with `recovery.{which}` everything goes back at each failure and nothing is ever skipped"
            )
            yield SpecError(field, f"'amnesia' has no effect: {reason}")
        for reader, _, spec in _edges(topology):
            if spec.feedback and (reader.name in (b := behind(topology, operator.name)) or spec.source in b):
                reason = (
                    f"{reader.name!r} reads {spec.source!r} over a feedback edge, so a gap would never end"
                )
                yield SpecError(field, f"'amnesia' is not for what is on or before a cycle: {reason}")


def _within_limits(topology: StreamTopology) -> Iterator[SpecError]:
    try:
        within_limits(topology)
    except SpecError as error:
        yield error


_NAMES = (_names_differ, _inputs_exist)
_RULES = (_priorities_fit, _partitions_fit, _spark_can_start, _some_input_drives, _has_output)
_EDGE_RULES = (_groupings_fit, _no_cycle, _within_limits, _protocol_fits, _induced_fits, _availability_fits)
"""Those that follow edges, and so need names that differ and inputs that exist."""


def _upstream(topology: StreamTopology, names: set[str]) -> set[str]:
    inputs = {o.name: [i.source for i in o.inputs] for o in topology.operators}
    found, todo = set(names), list(names)
    while todo:
        for name in inputs.get(todo.pop(), []):
            if name not in found:
                found.add(name)
                todo.append(name)
    return found


def _unneeded(topology: StreamTopology) -> Iterator[SpecWarning]:
    needed = _upstream(topology, {o.name for o in topology.operators if o.output})
    for kind, items in (("sources", topology.sources), ("operators", topology.operators)):
        for item in items:
            if item.name not in needed:
                yield SpecWarning(
                    f"spec.{kind}[{item.name}]", "no query needs it: no output operator is downstream of it"
                )


def _idle_feedback(topology: StreamTopology) -> Iterator[SpecWarning]:
    for operator, index, spec in _edges(topology):
        if spec.feedback and operator.name not in _upstream(topology, {spec.source}):
            yield SpecWarning(
                f"{_field(operator, index)}.feedback",
                "closes no cycle; it only delays this input by one batch",
            )


def _forced_in_vain(topology: StreamTopology) -> Iterator[SpecWarning]:
    """A snapshot can only become useless in a cycle, and only where a replay may differ: else an orphan does no harm."""
    if not topology.checkpoint.induced:
        return
    cyclic = {
        o.name for o in topology.operators if o.name in _upstream(topology, {i.source for i in o.inputs})
    }
    above = _upstream(topology, cyclic)
    if not cyclic:
        why = "no operator is in a cycle"
    elif not any(_may_differ(o) for o in topology.operators if o.name in above):
        why = "operators in cycles, and those that they read, are deterministic"
    else:
        return
    yield SpecWarning(
        "spec.checkpoint.protocol",
        f"'communication-induced' cannot help: {why}, so no snapshot can become useless; 'uncoordinated' finds lines as "
        "good, and sends and stores less",
    )


def _may_differ(operator: OperatorSpec) -> bool:
    """Whether a replay may give other rows, as far as the resource says it."""
    silent = operator.deterministic is None
    return not of_library(operator.class_path) if silent else operator.deterministic is False
