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
from reprise.spark_jobs.topology.adoption import grace_fits
from reprise.spark_jobs.topology.arrival import arrival_fits
from reprise.spark_jobs.topology.availability import availability_fits
from reprise.spark_jobs.topology.class_path import of_library
from reprise.spark_jobs.topology.limits import within_limits
from reprise.spark_jobs.topology.objective import objective_fits
from reprise.spark_jobs.topology.rebalancing import rebalancing_fits
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
    found = (_unneeded(topology), _idle_feedback(topology), _forced_in_vain(topology))
    return (*(warning for rule in found for warning in rule), *_no_room_for_standbys(topology))


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


def no_such_input(name: str, names: list[str]) -> str:
    """What is said of an input whose name is none of `names`."""
    return f"there is no source or operator {name!r}{nearest(name, names)}"


def _inputs_exist(topology: StreamTopology) -> Iterator[SpecError]:
    names = [x.name for x in topology.stages]
    for operator, index, spec in _edges(topology):
        if spec.source not in names:
            yield SpecError(f"{_field(operator, index)}.from", no_such_input(spec.source, names))
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


def _start_fits(topology: StreamTopology) -> Iterator[SpecError]:
    """A savepoint is of one batch, and so is what begins from it."""
    policy = topology.checkpoint
    if policy.start_from is None:
        return
    field = "spec.checkpoint.startFrom"
    if policy.uncoordinated:
        yield SpecError(field, f"needs `protocol: coordinated`; it is {policy.protocol!r}")
    if policy.location is not None and policy.location.rstrip("/") == policy.start_from.location.rstrip("/"):
        yield SpecError(
            f"{field}.location",
            "is this topology's own checkpoint location: a topology that begins needs another one",
        )
    if policy.start_from.location.rstrip("/") in {mirror.rstrip("/") for mirror in policy.standby}:
        reason = "is in `standby`, too: mirrors are of this topology's own location, and its stream would be gone on with"
        yield SpecError(f"{field}.location", reason)


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
    if policy.log == "none" and policy.protocol == "uncoordinated":
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


def _memory_fits(topology: StreamTopology) -> Iterator[SpecError]:
    """States whole are read with each snapshot, so only those in pages can be larger than memory."""
    policy = topology.checkpoint
    if policy.state_memory_bytes and not policy.paged:
        yield SpecError(
            "spec.checkpoint.stateMemory", "needs `state: paged`; states that are stored whole stay in memory"
        )


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


def _eventual_fits(topology: StreamTopology) -> Iterator[SpecError]:
    """Whether states can be stored slot by slot here; what was not tried together is refused."""
    policy, recovery = topology.checkpoint, topology.recovery
    if not policy.eventual:
        if policy.eventual_pace is not None:
            yield SpecError("spec.checkpoint.eventual", "means nothing without `protocol: eventual`")
        return
    if policy.log != "checkpointed":
        reason = (
            "`protocol: eventual` needs 'checkpointed': what is stepped once more gives nothing, so its output has to be in "
            "the log"
        )
        yield SpecError("spec.checkpoint.log", reason)
    said = "is not tried with `checkpoint.protocol: eventual`"
    if policy.paged:
        yield SpecError("spec.checkpoint.state", f"'paged' {said}")
    if recovery.scope == "global":
        yield SpecError("spec.recovery.scope", f"'global' {said}")
    if recovery.strategy != "incremental":
        yield SpecError("spec.recovery.strategy", f"'{recovery.strategy}' {said}")
    for operator, index, spec in _edges(topology):
        if spec.feedback:
            yield SpecError(f"{_field(operator, index)}.feedback", f"a cycle {said}")
    for operator in topology.operators:
        if operator.output is not None and operator.output.sink is not None:
            yield SpecError(f"{_field(operator)}.output.sink", f"{said}: output goes to files")
        if operator.deterministic is False:
            yield SpecError(
                f"{_field(operator)}.deterministic", f"false {said}: a replay has to give equal rows"
            )


def _partition_edges(topology: StreamTopology) -> int:
    parallelism = {x.name: x.parallelism for x in topology.stages}
    return sum(
        operator.parallelism * (1 if spec.grouping.mode is Mode.FORWARD else parallelism[spec.source])
        for operator, _, spec in _edges(topology)
    )


def _within_limits(topology: StreamTopology) -> Iterator[SpecError]:
    try:
        within_limits(topology)
    except SpecError as error:
        yield error


_NAMES = (_names_differ, _inputs_exist)
_RULES = (_priorities_fit, _partitions_fit, _spark_can_start, _start_fits, _some_input_drives, _has_output)
_EDGE_RULES = (
    _groupings_fit,
    _no_cycle,
    _within_limits,
    _protocol_fits,
    _memory_fits,
    _induced_fits,
    _eventual_fits,
    arrival_fits,
    grace_fits,
    rebalancing_fits,
    objective_fits,
    availability_fits,
)
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


def _no_room_for_standbys(topology: StreamTopology) -> Iterator[SpecWarning]:
    active = (o for o in topology.operators if o.has_standby and not o.passive)
    standbys = sum(milli_cpu(o.cpu_cores) * o.parallelism for o in active)
    needed = standbys + sum(milli_cpu(x.cpu_cores) * x.parallelism for x in topology.stages)
    nodes, cap = topology.nodes, topology.recovery.cpu_cap
    room = nodes.count * under_cap(cap, milli_cpu(nodes.cpu_cores))
    if standbys and needed > room:
        reason = f"partitions and their active standbys declare {needed}m of CPU, and the nodes have {room}m under the cap"
        yield SpecWarning("spec.nodes", f"{reason}: the least valuable will have no standby")


def _may_differ(operator: OperatorSpec) -> bool:
    """Whether a replay may give other rows, as far as the resource says it."""
    silent = operator.deterministic is None
    return not of_library(operator.class_path) if silent else operator.deterministic is False
