"""Which modes of availability an operator may have: those that are built, and where they were built and tried."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from dataclasses import replace

from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.topology.arrival import arrival_fits
from reprise.spark_jobs.topology.class_path import of_library
from reprise.spark_jobs.topology.graph import Topology
from reprise.spark_jobs.topology.guarantees import WAITS_FOR_ITSELF, behind, is_in_a_cycle, why_no_standby
from reprise.spark_jobs.topology.resource import InputSpec, OperatorSpec, StreamTopology

MOST_STANDBYS = 200
"""Standbys of one topology: each node is told of all of them with each job."""


MOST_BACKED = 200
"""Partitions of one topology with upstream backup: each node is told with each job what each of them needs."""


def with_standbys(resource: StreamTopology, topology: Topology) -> frozenset[str]:
    """Partitions that are to have a standby."""
    named = {o.name for o in resource.operators if o.has_standby}
    partitions = topology.partitions.values() if named else ()
    return frozenset(p.id for p in partitions if p.place.operator in named)


def passive_standbys(resource: StreamTopology, topology: Topology) -> dict[str, int]:
    """Partitions of which these are passive, with the batches between what each is sent."""
    every = resource.passive_every
    partitions = topology.partitions.values() if every else ()
    return {p.id: every[p.place.operator] for p in partitions if p.place.operator in every}


def waiting_for_standbys(
    resource: StreamTopology, topology: Topology, deterministic: Callable[[OperatorSpec], bool]
) -> frozenset[str]:
    """Partitions whose output waits until their passive standbys have it: those of the operators of which a replay may
    differ, if all of them have one; else none, as everything goes back at each failure then."""
    if resource.arrival or not any(o.passive for o in resource.operators):
        return frozenset()
    differ = {o.name: o.passive for o in resource.operators if not deterministic(o)}
    if not all(differ.values()):
        return frozenset()
    return frozenset(p.id for p in topology.partitions.values() if p.place.operator in differ)


def backed_beside_standbys(resource: StreamTopology) -> frozenset[str]:
    """Operators with standbys that may be fed again by what they read where both copies of a partition are lost, if their
    code says how far back they reach: where upstream backup is built and of use, and for no more partitions than may have
    it."""
    backed = sum(o.parallelism for o in resource.operators if o.backed_upstream or o.has_standby)
    if resource.checkpoint.state != "arrays" or backed > MOST_BACKED:
        return frozenset()
    return frozenset(o.name for o in resource.operators if o.has_standby and not _reads_itself(o))


def standby_domains(resource: StreamTopology, topology: Topology) -> dict[str, str]:
    """Partitions of which a failure domain is named for their standbys, with the label of nodes."""
    label = {o.name: name for o in resource.operators if (name := resource.standby_domain(o)) is not None}
    partitions = topology.partitions.values() if label else ()
    return {p.id: label[p.place.operator] for p in partitions if p.place.operator in label}


def availability_fits(topology: StreamTopology) -> Iterator[SpecError]:
    """Whether what is asked for is built, and could ever be used."""
    for operator in topology.operators:
        field = f"spec.operators[{operator.name}].availability"
        yield from _unused(operator)
        if operator.availability == "checkpoint":
            continue
        yield from _where_it_was_tried(topology, operator, field)
        yield from _with_plans_of_its_own(topology, operator, field)
        yield from _where_replays_are_equal(topology, operator, field)
        yield from _FITS[operator.availability](topology, operator, field)
    standbys = sum(o.parallelism for o in topology.operators if o.has_standby)
    if standbys > MOST_STANDBYS:
        reason = f"at most {MOST_STANDBYS} partitions of a topology may have standbys; here are {standbys}"
        yield SpecError("spec.operators", reason)
    backed = sum(o.parallelism for o in topology.operators if o.backed_upstream)
    if backed > MOST_BACKED:
        reason = f"at most {MOST_BACKED} partitions of a topology may have upstream backup; here are {backed}"
        yield SpecError("spec.operators", reason)


def as_if_forgetful(resource: StreamTopology, names: Set[str]) -> StreamTopology:
    """The topology in which these operators had `availability: amnesia`."""
    changed = (
        replace(o, availability="amnesia", standby=None) for o in resource.operators if o.name in names
    )
    by_name = {o.name: o for o in changed}
    return replace(resource, operators=tuple(by_name.get(o.name, o) for o in resource.operators))


def skip_fits(resource: StreamTopology, names: Set[str]) -> Iterator[SpecError]:
    """Why partitions of these operators cannot begin anew at a person's word, as far as no code needs to be asked: what is
    refused for `availability: amnesia` is refused here, but for what follows from that nobody is asked before."""
    for source in resource.sources:
        if source.name in names:
            yield SpecError(
                f"spec.sources[{source.name}]", "a source cannot begin anew: it reads its input again"
            )
    for operator in resource.operators:
        if operator.name in names and operator.availability not in ("checkpoint", "amnesia"):
            field = f"spec.operators[{operator.name}].availability"
            yield SpecError(field, f"nothing is skipped of an operator with {operator.availability!r}")
    supposed = as_if_forgetful(resource, names)
    for operator in supposed.operators:
        if operator.forgetful:
            field = f"spec.operators[{operator.name}].availability"
            yield from _where_it_was_tried(supposed, operator, field)
            yield from _forgetful(supposed, operator, field)
    yield from arrival_fits(supposed)


def _unused(operator: OperatorSpec) -> Iterator[SpecError]:
    if operator.standby is None:
        return
    field = f"spec.operators[{operator.name}].standby"
    if not operator.has_standby:
        yield SpecError(field, f"has no effect with `availability: {operator.availability}`")
    elif operator.standby.every is not None and not operator.passive:
        yield SpecError(f"{field}.every", "has no effect: an active standby steps every batch by itself")


def _where_it_was_tried(topology: StreamTopology, operator: OperatorSpec, field: str) -> Iterator[SpecError]:
    mode = repr(operator.availability)
    if (protocol := topology.checkpoint.protocol) != "coordinated":
        yield SpecError(field, f"{mode} is not built for `checkpoint.protocol: {protocol}`")
    if (state := topology.checkpoint.state) != "arrays" and not operator.passive:
        yield SpecError(field, f"{mode} is not built for `checkpoint.state: {state}`")


def _with_plans_of_its_own(
    topology: StreamTopology, operator: OperatorSpec, field: str
) -> Iterator[SpecError]:
    """Whether what is lost would ever come back in this way by the plans that are made, and was tried with them."""
    policy, mode = topology.recovery, repr(operator.availability)
    if policy.strategy == "best-case":
        yield SpecError(
            field, f"{mode} is not tried with `recovery.strategy: best-case`, which benchmarks compare with"
        )
    if policy.recommend_only:
        reason = "what waits for a plan would wait for a person, and is lost or kept meanwhile"
        if operator.has_standby:
            reason = "a standby is promoted at once, or it is of no use"
        yield SpecError(field, f"{mode} is not built for `recovery.mode: recommend`: {reason}")
    if operator.forgetful and policy.scope == "ancestors":
        reason = "what it reads would go back to make again what a partition that begins anew does not need"
        yield SpecError(field, f"{mode} is not built for `recovery.scope: ancestors`: {reason}")


def _forgetful(topology: StreamTopology, operator: OperatorSpec, field: str) -> Iterator[SpecError]:
    policy = topology.recovery
    if policy.scope == "global" or policy.strategy in ("blocking", "operator-centric"):
        which = "scope: global" if policy.scope == "global" else f"strategy: {policy.strategy}"
        reason = f"with `recovery.{which}` everything goes back at each failure and nothing is ever skipped"
        yield SpecError(field, f"'amnesia' has no effect: {reason}")
    reached = behind(topology, operator.name)
    for reader, spec in _feedback(topology):
        if reader.name in reached or spec.source in reached:
            reason = f"{reader.name!r} reads {spec.source!r} over a feedback edge, so a gap would never end"
            yield SpecError(field, f"'amnesia' is not for what is on or before a cycle: {reason}")


def _with_standbys(topology: StreamTopology, operator: OperatorSpec, field: str) -> Iterator[SpecError]:
    if operator.passive and operator.deterministic is False and is_in_a_cycle(topology, operator.name):
        yield SpecError(field, WAITS_FOR_ITSELF)
    yield from _where_outputs_are_kept(topology, operator, field)
    mode = repr(operator.availability)
    if topology.nodes.count < 2:
        reason = f"needs another node, and `nodes.count` is {topology.nodes.count}"
        yield SpecError(field, f"{mode} {reason}")


def _active(topology: StreamTopology, operator: OperatorSpec, field: str) -> Iterator[SpecError]:
    """An active standby takes for shown what its partition has shown or staged for a checkpoint, so it is for topologies in
    which all output is shown at once.  What classes say of themselves is asked where they are."""
    yield from _with_standbys(topology, operator, field)
    arbitrary = frozenset(o.name for o in topology.operators if o.deterministic is False)
    if arbitrary and (reason := why_no_standby(topology, operator, arbitrary)):
        yield SpecError(field, reason)


def _backed_upstream(topology: StreamTopology, operator: OperatorSpec, field: str) -> Iterator[SpecError]:
    yield from _where_outputs_are_kept(topology, operator, field)
    if _reads_itself(operator):
        reason = "it reads its own output, and what a lost partition has made of that is lost with it"
        yield SpecError(field, f"'upstream-backup' has no effect: {reason}")


def _where_outputs_are_kept(
    topology: StreamTopology, operator: OperatorSpec, field: str
) -> Iterator[SpecError]:
    policy, mode = topology.recovery, repr(operator.availability)
    if not policy.keeps_output:
        which = f"scope: {policy.scope}" if policy.scope != "auto" else f"strategy: {policy.strategy}"
        yield SpecError(field, f"{mode} needs outputs that are kept, and `recovery.{which}` keeps none")


def _where_replays_are_equal(
    topology: StreamTopology, operator: OperatorSpec, field: str
) -> Iterator[SpecError]:
    mode = repr(operator.availability)
    if silent := next((o.name for o in topology.operators if _is_silent(o)), None):
        reason = (
            f"{silent!r} is deterministic: its class is not of the library, which the operator cannot ask"
        )
        if operator.passive:
            reason += "; or by `deterministic: false` that it is not"
        yield SpecError(field, f"{mode} needs to be told by `deterministic: true` that {reason}")


def _reads_itself(operator: OperatorSpec) -> bool:
    """Whether it is a cycle by itself: nobody else has what it would have to be fed again."""
    return any(spec.source == operator.name for spec in operator.inputs)


def _is_silent(operator: OperatorSpec) -> bool:
    """Whether only its class, which may not be there, could say that it is deterministic: nobody would be promoted."""
    return operator.deterministic is None and not of_library(operator.class_path)


_FITS = {
    "amnesia": _forgetful,
    "upstream-backup": _backed_upstream,
    "active-standby": _active,
    "passive-standby": _with_standbys,
}


def _feedback(topology: StreamTopology) -> Iterator[tuple[OperatorSpec, InputSpec]]:
    for reader in topology.operators:
        yield from ((reader, spec) for spec in reader.inputs if spec.feedback)
