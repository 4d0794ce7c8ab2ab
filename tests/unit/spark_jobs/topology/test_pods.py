"""What a topology says of its pods: what is said for both and for one of them, and what is not for it to say."""

from __future__ import annotations

from typing import Any

import pytest

from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.state.revision import revision_of
from reprise.spark_jobs.topology.pods import KubernetesSettings, Variable
from tests.support.topologies import minimal as topology

HASH, OTHER_HASH = "0" * 64, "1" * 64
SECRET = {"name": "topology-level", "key": "level"}
TERM = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
NODES = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [TERM]}}


def settings(**kubernetes: Any) -> KubernetesSettings:
    return topology(**kubernetes).kubernetes


@pytest.mark.parametrize("field", ["labels", "annotations", "nodeSelector"])
def test_a_name_that_is_said_for_one_kind_of_pods_stands_above_that_for_both(field: str) -> None:
    found = settings(
        **{field: {"a": "both", "b": "both"}},
        driver={field: {"b": "driver"}},
        executor={field: {"c": "executor"}},
    )
    names = {"labels": "labels", "annotations": "annotations", "nodeSelector": "node_selector"}
    assert getattr(found.driver, names[field]) == {"a": "both", "b": "driver"}
    assert getattr(found.executor, names[field]) == {"a": "both", "b": "both", "c": "executor"}


def test_a_variable_counts_once_and_tolerations_add_up() -> None:
    found = settings(
        env=[{"name": "LEVEL", "value": "1"}, {"name": "MODE", "value": "x"}],
        tolerations=[{"key": "spot", "operator": "Exists"}],
        executor={
            "env": [{"name": "LEVEL", "valueFrom": {"secretKeyRef": SECRET}}],
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
        },
    )
    assert found.driver.env == (Variable("LEVEL", "1"), Variable("MODE", "x"))
    assert found.executor.env == (Variable("LEVEL", "", "topology-level", "level"), Variable("MODE", "x"))
    assert [t.key for t in found.driver.tolerations] == ["spot"]
    assert [t.key for t in found.executor.tolerations] == ["spot", "gpu"]


def test_affinities_and_spreads_keep_kubernetes_words() -> None:
    found = settings(
        driver={"affinity": {"nodeAffinity": NODES}},
        executor={"topologySpreadConstraints": [{"topologyKey": "zone"}]},
    )
    required = found.driver.affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert required == NODES["requiredDuringSchedulingIgnoredDuringExecution"]
    assert found.executor.affinity == {}
    constraint = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}
    assert found.executor.spread_constraints == (constraint,)


def test_a_secret_is_mounted_so_that_it_cannot_be_written() -> None:
    claim, secret = settings(
        volumes=[
            {"claim": "data", "mountPath": "/data"},
            {"secret": "topology-tls", "mountPath": "/etc/kafka"},
        ]
    ).volumes
    assert (claim.claim, claim.secret, claim.read_only) == ("data", "", False)
    assert (secret.claim, secret.secret, secret.read_only) == ("", "topology-tls", True)


@pytest.mark.parametrize("place", ["", "driver", "executor"])
@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("labels", {"reprise.dev/topology": "other"}, "pods are found"),
        ("labels", {"app.kubernetes.io/component": "operator"}, "pods are found"),
        ("labels", {"spark-role": "driver"}, "pods are found"),
        ("annotations", {"reprise.dev/revision": "x"}, "is the operator's"),
        (
            "annotations",
            {"container.apparmor.security.beta.kubernetes.io/driver": "unconfined"},
            "loosens what holds a pod",
        ),
        ("annotations", {"io.kubernetes.cri-o.Devices": "/dev/sda"}, "loosens what holds a pod"),
        ("annotations", {"cdi.k8s.io/gpu": "vendor.com/gpu=all"}, "loosens what holds a pod"),
        ("hostNetwork", True, "restricted profile"),
        ("hostPID", True, "restricted profile"),
        ("command", ["sh"], "heartbeat"),
        ("initContainers", [], "keeps its pod from ending"),
        ("containers", [], "keeps its pod from ending"),
        ("restartPolicy", "Always", "how, is what recovery goes by"),
        ("terminationGracePeriodSeconds", 0, "what recovery goes by"),
        ("livenessProbe", {}, "the agent answers"),
        ("envFrom", [], "use `secrets`, or `env`"),
        ("resources", {}, "plans rest on them"),
        ("automountServiceAccountToken", True, "executors get none"),
        ("serviceAccountName", "x", "use `serviceAccount`"),
        ("ports", [], "network policies name them"),
        ("podTemplate", {}, "are here by themselves"),
    ],
)
def test_what_recovery_and_security_rest_on_is_refused_with_field_and_reason(
    place: str, field: str, value: Any, reason: str
) -> None:
    said = {place: {field: value}} if place else {field: value}
    with pytest.raises(SpecError, match=reason) as refused:
        topology(**said)
    assert refused.value.field == ".".join(filter(None, ("spec.kubernetes", place, field)))
    assert not refused.value.others


@pytest.mark.parametrize(
    "name",
    ["REPRISE_ROOT", "SPARK_LOCAL_IP", "PYSPARK_PYTHON", "PYTHONPATH", "PYTHONHASHSEED", "KUBERNETES_SERVICE_HOST",
     "LD_PRELOAD", "PATH", "HOME", "HOSTNAME", "POD_IP", "JAVA_HOME", "_JAVA_OPTIONS",
     "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "KUBECONFIG", "BASH_ENV"],
)  # fmt: skip
def test_a_variable_that_others_set_is_refused(name: str) -> None:
    with pytest.raises(
        SpecError, match=f"{name}.*is for the operator, Spark and the image to set"
    ) as refused:
        topology(env=[{"name": name, "value": "x"}])
    assert refused.value.field == "spec.kubernetes.env[0]"


@pytest.mark.parametrize("name", ["PATH_OF_MODEL", "HOMES", "MY_SPARK_", "JAVA_TOOL", "reprise_level"])
def test_one_that_only_looks_like_it_is_taken(name: str) -> None:
    assert settings(env=[{"name": name, "value": "x"}]).driver.env[0].name == name


@pytest.mark.parametrize(
    ("variable", "field", "reason"),
    [
        ({"name": "A"}, "spec.kubernetes.env[0]", "one of `value` and `valueFrom`"),
        (
            {"name": "A", "value": "x", "valueFrom": {"secretKeyRef": SECRET}},
            "spec.kubernetes.env[0]",
            "one of `value` and `valueFrom`",
        ),
        ({"name": "A", "value": "ftp://me:pw@store"}, "spec.kubernetes.env[0].value", "holds credentials"),
        (
            {"name": "A", "valueFrom": {"configMapKeyRef": SECRET}},
            "spec.kubernetes.env[0].valueFrom.configMapKeyRef",
            "can change in place",
        ),
        (
            {"name": "A", "valueFrom": {"fieldRef": {}}},
            "spec.kubernetes.env[0].valueFrom.fieldRef",
            "from pod to pod",
        ),
    ],
)
def test_a_variable_has_one_value_that_stays(variable: dict[str, Any], field: str, reason: str) -> None:
    with pytest.raises(SpecError, match=reason) as refused:
        topology(env=[variable])
    assert refused.value.field == field


def test_a_variable_is_given_once() -> None:
    with pytest.raises(SpecError, match="'A' is given twice"):
        topology(env=[{"name": "A", "value": "1"}, {"name": "A", "value": "2"}])


@pytest.mark.parametrize(
    ("volume", "field", "reason"),
    [
        ({"mountPath": "/data"}, "", "one of `claim` and `secret`"),
        ({"mountPath": "/data", "claim": "a", "secret": "b"}, "", "one of `claim` and `secret`"),
        ({"mountPath": "/data", "hostPath": {"path": "/"}}, ".hostPath", "restricted profile"),
        ({"mountPath": "/data", "configMap": "x"}, ".configMap", "into `code`"),
        ({"mountPath": "/data", "emptyDir": {}}, ".emptyDir", "/tmp is one"),
        ({"mountPath": "/data", "csi": {}}, ".csi", "use a `claim` or a `secret`"),
    ],
)
def test_a_volume_is_a_claim_or_a_secret(volume: dict[str, Any], field: str, reason: str) -> None:
    with pytest.raises(SpecError, match=reason) as refused:
        topology(volumes=[volume])
    assert refused.value.field == f"spec.kubernetes.volumes[0]{field}"


@pytest.mark.parametrize(
    "path",
    ["/", "/opt", "/opt/reprise", "/opt/reprise/lib", "/etc", "/etc/", "/etc/reprise", "/etc/reprise-zookeeper/auth", "/tmp",
     "/var/data/reprise", "/run/secrets", "/var/run/secrets/kubernetes.io", "/usr/lib", "/bin", "/proc/1",
     "/opt/../opt/reprise", "//opt/reprise", "/data/./x", "/opt//reprise", "/data/.."],
)  # fmt: skip
def test_a_volume_covers_nothing_of_ours(path: str) -> None:
    with pytest.raises(SpecError, match="use another folder"):
        topology(volumes=[{"claim": "data", "mountPath": path}])


@pytest.mark.parametrize(
    "path",
    [
        "/data",
        "/var/lib/reprise",
        "/etc/kafka",
        "/tmp/models",
        "/opt/reprise2",
        "/etc/reprise.d",
        "/data/..x",
    ],
)
def test_other_folders_are_free(path: str) -> None:
    assert settings(volumes=[{"claim": "data", "mountPath": path}]).volumes[0].mount_path == path


@pytest.mark.parametrize(
    ("security", "field"),
    [
        ({"runAsUser": 0}, "runAsUser"),
        ({"fsGroup": 0}, "fsGroup"),
        ({"privileged": True}, "privileged"),
        ({"runAsNonRoot": False}, "runAsNonRoot"),
        ({"capabilities": {}}, "capabilities"),
        ({"seccompProfile": {}}, "seccompProfile"),
        ({"readOnlyRootFilesystem": False}, "readOnlyRootFilesystem"),
        ({"allowPrivilegeEscalation": True}, "allowPrivilegeEscalation"),
    ],
)
def test_nobody_is_root_or_may_more(security: dict[str, Any], field: str) -> None:
    with pytest.raises(SpecError) as refused:
        topology(securityContext=security)
    assert refused.value.field == f"spec.kubernetes.securityContext.{field}"


@pytest.mark.parametrize(
    ("operator", "values", "fits"),
    [("In", ["a"], True), ("In", [], False), ("Exists", [], True), ("Exists", ["a"], False), ("Gt", ["1"], True),
     ("Lt", ["1", "2"], False), ("NotIn", [], False), ("DoesNotExist", ["a"], False)],
)  # fmt: skip
def test_an_affinity_has_the_values_that_its_operator_takes(
    operator: str, values: list[str], fits: bool
) -> None:
    expression = {"key": "zone", "operator": operator, "values": values}
    preferred = [{"weight": 1, "preference": {"matchExpressions": [expression]}}]
    nodes = {"preferredDuringSchedulingIgnoredDuringExecution": preferred}
    if fits:
        assert settings(driver={"affinity": {"nodeAffinity": nodes}}).driver.affinity
        return
    with pytest.raises(SpecError, match="give some `values`"):
        topology(driver={"affinity": {"nodeAffinity": nodes}})


def required(key: str, operator: str = "In", value: str = "x") -> dict[str, Any]:
    terms = [{"matchExpressions": [{"key": key, "operator": operator, "values": [value]}]}]
    where = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"affinity": {"nodeAffinity": where}}


@pytest.mark.parametrize(
    ("kubernetes", "reason"),
    [
        ({"labels": {"a..b/c": "x"}}, "labels.*key of a label"),
        ({"annotations": {"a.-b/c": "x"}}, "annotations.*key of a label"),
        ({"labels": {"a" * 254 + "/c": "x"}}, "key of a label"),
        ({"nodeSelector": {"bad key!": "x"}}, "nodeSelector.*key of a label"),
        ({"nodeSelector": {"a": "bad value!"}}, "nodeSelector.a: .*should match"),
        ({"tolerations": [{"key": "bad key!", "operator": "Exists"}]}, "tolerations.*key of a label"),
        ({"tolerations": [{"key": "a", "value": "bad value!"}]}, "tolerations.*should match"),
        ({"tolerations": [{"value": "a"}]}, "without `key`"),
        ({"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]}, "operator Equal only"),
        ({"tolerations": [{"key": "a", "value": "b", "tolerationSeconds": 3}]}, "effect NoExecute only"),
        ({"executor": required("bad key!")}, "key of a label"),
        ({"executor": required("a", value="bad value!")}, "should match"),
        ({"driver": required("a", "Gt", "much")}, "whole number"),
        ({"executor": {"topologySpreadConstraints": [{"topologyKey": "bad key!"}]}}, "key of a label"),
        ({"executor": {"topologySpreadConstraints": [{"topologyKey": "zone"}] * 2}}, "'zone' is given twice"),
        ({"volumes": [{"claim": n, "mountPath": f"/data{'/' * (n == 'b')}"} for n in "ab"]}, "two are mounted at '/data'"),
        ({"env": [{"name": "A", "value": "x\0"}]}, "zero byte"),
    ],
)  # fmt: skip
def test_what_an_api_server_refuses_in_a_pod_is_refused_in_the_topology(
    kubernetes: dict[str, Any], reason: str
) -> None:
    """A pod of executors is made in the middle of a recovery: that is too late."""
    with pytest.raises(SpecError, match=f"(?s)spec.kubernetes.*{reason}"):
        topology(**kubernetes)


def test_what_it_takes_is_taken() -> None:
    found = settings(
        labels={"a.b-c.d/E_f.g": "", "x" * 63: "A"},
        tolerations=[{"operator": "Exists"}, {"key": "", "operator": "Exists"},
                     {"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3}],
        executor={**required("a", "Gt", "7"),
                  "topologySpreadConstraints": [
                      {"topologyKey": "zone"}, {"topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]},
    )  # fmt: skip
    assert len(found.executor.tolerations) == 3 and len(found.executor.spread_constraints) == 2


def test_how_pods_stand_to_each_other_is_said_by_spread() -> None:
    with pytest.raises(SpecError, match="`topologySpreadConstraints`"):
        topology(executor={"affinity": {"podAffinity": {}}})
    with pytest.raises(SpecError, match="the executors of this topology are counted"):
        topology(executor={"topologySpreadConstraints": [{"topologyKey": "zone", "labelSelector": {}}]})


CODE = {"configMap": "topology-code", "sha256": HASH}


@pytest.mark.parametrize(
    "changed",
    [
        {"code": {"configMap": "topology-code", "sha256": OTHER_HASH}},
        {"env": [{"name": "LEVEL", "value": "2"}]},
        {"driver": {"env": [{"name": "LEVEL", "value": "2"}]}},
        {"executor": {"env": [{"name": "LEVEL", "value": "2"}]}},
        {"env": [{"name": "LEVEL", "valueFrom": {"secretKeyRef": SECRET}}]},
        {"volumes": [{"secret": "topology-tls", "mountPath": "/etc/kafka"}]},
    ],
)
def test_what_code_reads_is_another_revision_in_pods_alone(changed: dict[str, Any]) -> None:
    """So another hash or value takes effect after a drain."""
    before = {"code": CODE, "env": [{"name": "LEVEL", "value": "1"}]}
    assert revision_of(topology(**before), "image") != revision_of(topology(**before | changed), "image")
    assert revision_of(topology(**before)) == revision_of(topology(**before | changed))


@pytest.mark.parametrize(
    "changed",
    [
        {"code": CODE | {"configMap": "topology-code-2"}},
        {"labels": {"team": "a"}},
        {"annotations": {"team": "a"}},
        {"nodeSelector": {"pool": "a"}},
        {"securityContext": {"runAsUser": 5}},
        {"volumes": [{"claim": "data", "mountPath": "/data"}]},
    ],
)
def test_what_code_does_not_read_is_none(changed: dict[str, Any]) -> None:
    assert revision_of(topology(code=CODE), "image") == revision_of(
        topology(**{"code": CODE} | changed), "image"
    )


def test_a_variable_of_driver_or_executors_alone_is_not_the_same() -> None:
    one = [{"name": "LEVEL", "value": "2"}]
    assert revision_of(topology(driver={"env": one}), "i") != revision_of(
        topology(executor={"env": one}), "i"
    )
