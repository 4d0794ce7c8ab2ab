"""What an API server checks beyond the shape: rules over several fields, and what may not change any more.

The same mistakes are refused by `reprise.spark_jobs.topology.check` when a file is loaded; these rules refuse them at
`kubectl apply`, before anything is stored.  What the expression language cannot say (that the graph has no cycle, that a
class takes its parameters) the operator checks and reports as the condition Valid.

Two limits shape them.  A server multiplies the cost of a rule by the longest lists that the schema allows and refuses
the schema when the product is too large: so names are gathered into one list first (`[names].all(n, ...)` binds a
variable) and searched with `in`.  And a rule sees only what is below its place: rules that need the status stand at the
root.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from reprise.spark_jobs.topology import kubernetes as pods
from reprise.spark_jobs.topology.limits import MAX_PARTITIONS


@dataclass(frozen=True, slots=True)
class Rule:
    """A CEL expression that must be true, and what to say when it is not."""

    rule: str
    message: str

    def as_object(self) -> dict[str, Any]:
        """The rule in the form of `x-kubernetes-validations`."""
        return {"rule": " ".join(self.rule.split()), "message": self.message}


_STARTED = "has(oldSelf.status) && has(oldSelf.status.startedAt)"


def _no_names_of_others(part: str, prefixes: tuple[str, ...], reason: str) -> Rule:
    found = " || ".join(f"name.startsWith('{prefix}')" for prefix in prefixes)
    return Rule(f"!has(self.{part}) || self.{part}.all(name, !({found}))", f"{part}: a name {reason}")


_NAMES_OF_PODS = (
    _no_names_of_others("labels", pods.RESERVED_LABELS, pods.LABELS_OF_OTHERS),
    _no_names_of_others("annotations", pods.RESERVED_ANNOTATIONS, pods.ANNOTATIONS_OF_OTHERS),
)
_VARIABLES = (
    Rule("has(self.value) != has(self.valueFrom)", pods.ONE_VALUE),
    Rule(f"!self.name.matches('{pods.RESERVED_VARIABLES}')", f"a name {pods.VARIABLE_OF_OTHERS}"),
)
_TOLERATIONS = (
    Rule("has(self.key) || self.operator == 'Exists'", pods.KEY_OR_EXISTS),
    Rule("!has(self.value) || self.operator == 'Equal'", pods.VALUE_OF_EQUAL),
    Rule(
        "!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",
        pods.SECONDS_OF_NO_EXECUTE,
    ),
)
_PODS = ("spec.kubernetes", "spec.kubernetes.driver", "spec.kubernetes.executor")


TOPOLOGY: dict[str, tuple[Rule, ...]] = {
    "": (
        Rule(
            f"""!({_STARTED}) || (size(oldSelf.spec.sources) == size(self.spec.sources)
            && oldSelf.spec.sources.all(s, self.spec.sources.exists(n,
            n.name == s.name && n.parallelism == s.parallelism)))""",
            "names and parallelism of sources are immutable while the topology is running: the records of what was read are "
            "kept by partition; delete it and create it anew",
        ),
        Rule(
            f"""!({_STARTED}) || oldSelf.spec.operators.all(o,
            self.spec.operators.all(n, n.name != o.name || n.parallelism == o.parallelism))""",
            "parallelism of an operator that stays is immutable while the topology is running: state is kept by partition; "
            "give it another name, or begin another topology from a savepoint",
        ),
        Rule(
            f"""!({_STARTED}) || oldSelf.spec.operators.all(o,
            self.spec.operators.all(n, n.name != o.name || n.inputs == o.inputs))""",
            "inputs of an operator that stays are immutable while the topology is running: its state was made of what it "
            "read; give it another name",
        ),
        Rule(
            f"""!({_STARTED}) || (has(oldSelf.spec.checkpoint.location) == has(self.spec.checkpoint.location)
            && (!has(self.spec.checkpoint.location)
            || oldSelf.spec.checkpoint.location == self.spec.checkpoint.location))""",
            "checkpoint.location is immutable while the topology is running: its state would be left behind",
        ),
    ),
    "spec": (
        Rule(
            "[self.operators.map(o, o.name)].all(names, self.sources.all(s, !(s.name in names)))",
            "a source and an operator have the same name",
        ),
        Rule(
            """[self.sources.map(s, s.name) + self.operators.map(o, o.name)].all(names,
            self.operators.all(o, o.inputs.all(i, i.from in names)))""",
            "an input reads from a source or operator that is not there",
        ),
        Rule(
            f"""self.sources.map(s, s.parallelism).sum() + self.operators.map(o, o.parallelism).sum()
            <= {MAX_PARTITIONS}""",
            f"sources and operators have more than {MAX_PARTITIONS} partitions together (parallelism)",
        ),
        Rule(
            "self.operators.exists(o, has(o.output))",
            "no operator has an `output`, so no query would be recovered; give at least one",
        ),
        Rule(
            """!self.operators.exists(o, o.availability == 'active-standby')
            || self.operators.all(o, !has(o.deterministic) || o.deterministic)""",
            "`availability: active-standby` is not for a topology with an operator that says `deterministic: false`: "
            "`passive-standby` is",
        ),
        Rule(
            """[self.sources.map(s, s.name) + self.operators.map(o, o.name)].all(names,
            [self.sources.map(s, s.parallelism) + self.operators.map(o, o.parallelism)].all(sizes,
            self.operators.all(o, o.inputs.all(i,
            !i.forward || !(i.from in names) || sizes[names.indexOf(i.from)] == o.parallelism))))""",
            "an input with `forward` needs the same parallelism on both sides",
        ),
    ),
    "spec.operators[]": (
        Rule(
            "self.inputs.exists(i, !i.feedback)",
            "inputs are all feedback; at least one must not be, or nothing drives the operator",
        ),
        Rule(
            "self.parallelism == 1 || self.inputs.all(i, has(i.by) || i.broadcast || i.forward)",
            "an operator of several partitions must say how rows reach them: `by`, `broadcast` or `forward`",
        ),
        Rule(
            """!has(self.output) || !has(self.output.priorities)
            || self.output.priorities.all(index, int(index) >= 0 && int(index) < self.parallelism)""",
            "output.priorities names a partition that is not there: they count from 0 and are fewer than parallelism",
        ),
    ),
    "spec.operators[].inputs[]": (
        Rule(
            "(has(self.by) ? 1 : 0) + (self.broadcast ? 1 : 0) + (self.forward ? 1 : 0) <= 1",
            "give only one of `by`, `broadcast` and `forward`",
        ),
    ),
    "spec.checkpoint": (
        Rule(
            "!(has(self.interval) && has(self.everyBatches))",
            "give only one of `interval` and `everyBatches`",
        ),
    ),
    **dict.fromkeys(_PODS, _NAMES_OF_PODS),
    **{f"{part}.env[]": _VARIABLES for part in _PODS},
    **{f"{part}.tolerations[]": _TOLERATIONS for part in _PODS},
    "spec.kubernetes.volumes[]": (
        Rule("has(self.claim) != has(self.secret)", pods.ONE_VOLUME),
        Rule(f"!self.mountPath.matches('{pods.RESERVED_PATHS}')", f"mountPath {pods.PATH_OF_OTHERS}"),
    ),
}

_IMMUTABLE = Rule(
    "self == oldSelf", "is a record of what happened and immutable; the controller writes the status"
)
INCIDENT: dict[str, tuple[Rule, ...]] = {
    "spec": (_IMMUTABLE,),
    "status": (
        Rule(
            "!has(oldSelf.closedAt) || has(self.closedAt)",
            "a closed incident stays closed; a new failure is a new incident",
        ),
    ),
}
PLAN: dict[str, tuple[Rule, ...]] = {
    "spec": (_IMMUTABLE,),
    "status": (
        Rule(
            "!(oldSelf.state in ['Done', 'Superseded']) || self.state == oldSelf.state",
            "a plan that is done or superseded stays so",
        ),
    ),
}
LIST_KEYS = {
    "spec.sources": ["name"],
    "spec.operators": ["name"],
    "spec.operators[].inputs": ["from"],
    "spec.kubernetes.volumes": ["mountPath"],
    **{f"{part}.env": ["name"] for part in _PODS},
}
"""Lists that merge by key, so that two field managers may own different items; keys are unique in them."""
