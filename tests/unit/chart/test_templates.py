"""What the chart renders, for the defaults and for each choice that a platform team makes."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
import yaml

from reprise.controller.crd.crds import KINDS
from reprise.controller.image.zookeeper import SECURE_CLIENT
from reprise.controller.observability.alerts import defaults
from reprise.controller.operator.__main__ import _parser, _settings
from reprise.controller.operator.pods.manifests import labels
from tests.support.chart import CHART, HelmError, environment, helm, of_kind, one, pod_specs, render
from tools.alerts_render import rules_file

pytestmark = pytest.mark.slow  # helm is downloaded once, and started for each set of values
OPERATOR = "rec-operator"
OWN = ("--set", "watch.allowOwnNamespace=true")
EXISTING = {"zookeeper__hosts": "zk-0.zk:2281"}
EVERYTHING = {
    "watch__allNamespaces": "true",
    "rbac__readNodes": "true",
    "rbac__readCapacity": "true",
    "metrics__serviceMonitor__enabled": "true",
    "metrics__prometheusRule__enabled": "true",
    "metrics__dashboards__enabled": "true",
    "zookeeper__embedded__replicas": "3",
    "image__pullSecrets[0]": "registry",
    "antiAffinity__executors": "required",
}
NOTHING_SERVED = {"web__enabled": "false", "metrics__enabled": "false"}
CHOICES: tuple[dict[str, str], ...] = (
    {},
    EVERYTHING,
    EXISTING,
    {**EXISTING, "zookeeper__tls__enabled": "true", "zookeeper__tls__secret": "zk-tls",
     "zookeeper__auth__enabled": "true", "zookeeper__auth__secret": "zk-key"},
    {"watch__namespaces[0]": "a", "watch__namespaces[1]": "b"},
    {"antiAffinity__executors": "none", "antiAffinity__replicas": "none", "priorityClass__create": "false",
     "podDisruptionBudget__enabled": "false", "networkPolicy__enabled": "false"},
    {"zookeeper__tls__enabled": "true", "zookeeper__tls__secret": "zk-tls", "zookeeper__embedded__tlsSecret": "zk-servers",
     "zookeeper__auth__enabled": "true", "zookeeper__auth__secret": "zk-key"},
)  # fmt: skip


def operator_pod(**values: str) -> dict[str, Any]:
    spec: dict[str, Any] = one(render(**values), "Deployment", OPERATOR)["spec"]["template"]["spec"]
    return spec


def test_the_chart_passes_lint() -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART), *OWN)


@pytest.mark.parametrize("values", CHOICES, ids=lambda v: ",".join(v)[:40] or "defaults")
def test_every_pod_keeps_to_the_restricted_profile(values: dict[str, str]) -> None:
    for spec in pod_specs(render(**values)):
        assert spec["securityContext"]["runAsNonRoot"] is True and spec["securityContext"]["runAsUser"] > 0
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in spec["containers"]:
            security = container["securityContext"]
            assert security["readOnlyRootFilesystem"] and not security["allowPrivilegeEscalation"]
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert container["resources"]["requests"] and container["resources"]["limits"]["memory"]
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
        assert all("hostPath" not in volume for volume in spec.get("volumes", []))


@pytest.mark.parametrize("values", CHOICES, ids=lambda v: ",".join(v)[:40] or "defaults")
def test_no_role_has_a_wildcard_or_reads_secrets(values: dict[str, str]) -> None:
    objects = render(**values)
    roles = of_kind(objects, "Role") + of_kind(objects, "ClusterRole")
    assert roles
    for role in roles:
        for rule in role["rules"]:
            assert "*" not in str(rule), role["metadata"]["name"]
            # what is there can neither be read nor changed; and none is made where there are no users
            made = rule["resources"] == ["secrets"] and rule["verbs"] == ["create"]
            assert "secrets" not in rule["resources"] or (made and "zookeeper__auth__enabled" in values)
            assert not any(r.startswith(("pods/exec", "roles", "clusterroles")) for r in rule["resources"])


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ((), "name the namespaces with topologies"),
        (("watch.namespaces[0]=streams",), "streams is the namespace of this"),
    ],
)
def test_topologies_are_not_beside_the_operator_unless_asked_for(
    values: tuple[str, ...], reason: str
) -> None:
    words = [word for value in values for word in ("--set", value)]
    with pytest.raises(HelmError, match=reason):
        helm("template", "rec", str(CHART), "--namespace", "streams", *words)
    assert "--own-namespace" in operator_pod()["containers"][0]["args"]
    apart = render(**CHOICES[4])
    assert "--own-namespace" not in operator_pod(**CHOICES[4])["containers"][0]["args"]
    beside = {o["kind"] for o in apart if o["metadata"].get("name", "").startswith("reprise-driver")
              and o["metadata"]["namespace"] == "streams"}  # fmt: skip
    assert not beside


def test_what_topologies_may_name_is_a_list_of_the_chart() -> None:
    settings = _settings(
        _parser().parse_args([*operator_pod()["containers"][0]["args"][1:], "--namespace=n", "--identity=i"])
    )
    assert (settings.accounts, settings.secrets) == ((), ("topology-*",))
    assert settings.config_maps == ("topology-*",)
    assert settings.own_account == OPERATOR
    asked = {
        "driver__allowedServiceAccounts[0]": "s3-reader",
        "driver__allowedSecrets[0]": "s3",
        "driver__allowedConfigMaps[0]": "code-*",
    }
    arguments = operator_pod(**asked)["containers"][0]["args"]
    assert {"--accounts=s3-reader", "--secrets=s3", "--config-maps=code-*"} <= set(arguments)


def test_the_default_installation_asks_for_nothing_beyond_its_namespace() -> None:
    objects = render()
    assert not of_kind(objects, "ClusterRole") and not of_kind(objects, "ClusterRoleBinding")
    assert {o["metadata"].get("namespace", "streams") for o in objects} == {"streams"}
    assert {"--watch=streams", "--no-nodes"} <= set(operator_pod()["containers"][0]["args"])


def test_people_who_may_view_or_edit_a_namespace_may_do_so_with_topologies_where_that_is_wanted() -> None:
    roles = {o["metadata"]["name"]: o for o in of_kind(render(rbac__aggregate="true"), "ClusterRole")}
    view, edit = (roles.pop(f"streams-rec-operator-{part}") for part in ("view", "edit"))
    assert not roles and not of_kind(render(rbac__aggregate="true"), "ClusterRoleBinding")

    def into(role: dict[str, Any]) -> set[str]:
        prefix = "rbac.authorization.k8s.io/aggregate-to-"
        return {key.removeprefix(prefix) for key in role["metadata"]["labels"] if key.startswith(prefix)}

    assert (into(view), into(edit)) == ({"view", "edit", "admin"}, {"edit", "admin"})
    (readable,) = view["rules"]
    assert set(readable["resources"]) == {kind.plural for kind in KINDS}
    assert set(readable["verbs"]) == {"get", "list", "watch"}
    writable = {resource: set(rule["verbs"]) for rule in edit["rules"] for resource in rule["resources"]}
    assert writable.keys() == {"streamtopologies", "recoveryplans"}, "incidents are the operator's"
    assert writable["recoveryplans"] == {"patch"}, "to approve one"


def test_where_the_operator_runs_can_be_said_beside_what_it_keeps_away_from() -> None:
    wanted = "nodeAffinity__requiredDuringSchedulingIgnoredDuringExecution__nodeSelectorTerms[0]__matchExpressions[0]"
    spread = "topologySpreadConstraints[0]"
    values = {
        f"{wanted}__key": "pool", f"{wanted}__operator": "Exists",
        f"{spread}__topologyKey": "zone", f"{spread}__maxSkew": "1", f"{spread}__whenUnsatisfiable": "ScheduleAnyway",
    }  # fmt: skip
    bare, found = operator_pod(), operator_pod(**values)
    nodes = found["affinity"].pop("nodeAffinity")["requiredDuringSchedulingIgnoredDuringExecution"]
    assert nodes["nodeSelectorTerms"] == [{"matchExpressions": [{"key": "pool", "operator": "Exists"}]}]
    assert found["affinity"] == bare["affinity"]
    labels = one(render(), "Deployment", OPERATOR)["spec"]["selector"]
    constraint = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}
    assert found["topologySpreadConstraints"] == [{**constraint, "labelSelector": labels}]
    assert "topologySpreadConstraints" not in bare
    own = {f"{spread}__labelSelector__matchLabels__a": "b"}
    (mine,) = operator_pod(**values, **own)["topologySpreadConstraints"]
    assert mine["labelSelector"] == {"matchLabels": {"a": "b"}}


def test_more_volumes_of_the_operator_and_none_of_its_machine() -> None:
    volume, mount = "operator__extraVolumes[0]", "operator__extraVolumeMounts[0]"
    values = {
        f"{volume}__name": "ca", f"{volume}__secret__secretName": "ca", f"{mount}__name": "ca", f"{mount}__mountPath": "/ca",
    }  # fmt: skip
    spec = operator_pod(**values)
    assert {"name": "ca", "secret": {"secretName": "ca"}} in spec["volumes"]
    assert {"name": "ca", "mountPath": "/ca"} in spec["containers"][0]["volumeMounts"]
    with pytest.raises(HelmError, match="extraVolumes"):
        render(**{f"{volume}__name": "root", f"{volume}__hostPath__path": "/"})


def test_names_begin_with_what_is_asked_for() -> None:
    names = {o["metadata"]["name"] for o in render(nameOverride="streams")}
    assert {"streams-operator", "streams-zookeeper"} <= names
    assert not any(name.startswith("rec-") for name in names)


def test_cluster_rights_are_a_choice() -> None:
    objects = render(**EVERYTHING)
    names = {o["metadata"]["name"] for o in of_kind(objects, "ClusterRole")}
    assert names == {f"streams-rec-operator{part}" for part in ("", "-nodes", "-capacity")}
    assert OPERATOR not in {o["metadata"]["name"] for o in of_kind(objects, "Role")}
    nodes = one(objects, "ClusterRole", "streams-rec-operator-nodes")
    assert nodes["rules"] == [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "watch"]}]
    arguments = operator_pod(**EVERYTHING)["containers"][0]["args"]
    assert "--watch=" in arguments and "--no-nodes" not in arguments


def test_rights_and_drivers_accounts_are_made_in_each_watched_namespace() -> None:
    objects = render(**CHOICES[4])
    for namespace in ("a", "b"):
        here = [o for o in objects if o["metadata"].get("namespace") == namespace]
        made = {(o["kind"], o["metadata"]["name"]) for o in here}
        assert {("Role", OPERATOR), ("RoleBinding", OPERATOR), ("ServiceAccount", "reprise-driver")} <= made
        (binding,) = [o for o in here if o["kind"] == "RoleBinding" and o["metadata"]["name"] == OPERATOR]
        assert binding["subjects"][0]["namespace"] == "streams"


def test_bindings_name_roles_and_accounts_that_are_made() -> None:
    for values in CHOICES:
        objects = render(**values)
        made = {(o["kind"], o["metadata"].get("namespace"), o["metadata"]["name"]) for o in objects}
        for kind in ("RoleBinding", "ClusterRoleBinding"):
            for binding in of_kind(objects, kind):
                space = binding["metadata"].get("namespace")
                assert (binding["roleRef"]["kind"], space, binding["roleRef"]["name"]) in made
                for subject in binding["subjects"]:
                    assert ("ServiceAccount", subject["namespace"], subject["name"]) in made


def test_the_operator_takes_its_arguments() -> None:
    for values in CHOICES:
        arguments = operator_pod(**values)["containers"][0]["args"]
        assert arguments[0] == "operator"
        settings = _settings(_parser().parse_args([*arguments[1:], "--namespace=n", "--identity=i"]))
        assert settings.lease == OPERATOR and settings.switches == f"{OPERATOR}-switches"


def test_how_much_is_kept_is_a_choice() -> None:
    kept = {"operator__keepIncidents": "7", "operator__keepRecords": "30", "operator__keepRecordsMi": "9"}
    for values, wanted in (({}, (20, 100, 4)), (kept, (7, 30, 9))):
        arguments = operator_pod(**values)["containers"][0]["args"]
        settings = _settings(_parser().parse_args([*arguments[1:], "--namespace=n", "--identity=i"]))
        assert (settings.keep_incidents, settings.keep_records, settings.keep_records_mi) == wanted
    with pytest.raises(HelmError, match="keepRecordsMi"):
        render(operator__keepRecordsMi="65")


def test_probes_ask_for_the_operators_own_progress() -> None:
    container = operator_pod()["containers"][0]
    paths = {p: container[f"{p}Probe"]["httpGet"] for p in ("startup", "liveness", "readiness")}
    assert {p["path"] for p in paths.values()} == {"/healthz", "/readyz"}
    assert {p["port"] for p in paths.values()} == {"health"}
    assert "--health-port=8080" in container["args"]
    assert {"name": "health", "containerPort": 8080} in container["ports"]


def test_the_operator_stays_off_the_machines_that_it_repairs() -> None:
    preferred = operator_pod()["affinity"]["podAntiAffinity"][
        "preferredDuringSchedulingIgnoredDuringExecution"
    ]
    terms = [p["podAffinityTerm"] for p in preferred]
    assert terms[0]["labelSelector"]["matchLabels"] == {"reprise.dev/role": "executor"}
    assert terms[0]["namespaceSelector"] == {}
    required = operator_pod(**EVERYTHING)["affinity"]["podAntiAffinity"]
    assert len(required["requiredDuringSchedulingIgnoredDuringExecution"]) == 1
    assert operator_pod(**CHOICES[5])["affinity"] == {}


def test_selectors_select_their_own_pods_alone() -> None:
    objects = render(**EVERYTHING)
    for kind in ("Deployment", "StatefulSet"):
        for workload in of_kind(objects, kind):
            wanted = workload["spec"]["selector"]["matchLabels"]
            labels = workload["spec"]["template"]["metadata"]["labels"]
            assert wanted.items() <= labels.items()
    budgets = {
        o["metadata"]["name"]: o["spec"]["selector"]["matchLabels"]
        for o in of_kind(objects, "PodDisruptionBudget")
    }
    assert budgets[OPERATOR]["app.kubernetes.io/component"] == "operator"
    assert budgets["rec-zookeeper"]["app.kubernetes.io/component"] == "zookeeper"


def test_an_image_is_named_by_tag_or_digest() -> None:
    digest = "sha256:" + "a" * 64
    assert operator_pod()["containers"][0]["image"] == "reprise:0.1.0"
    assert operator_pod(image__tag="v9")["containers"][0]["image"] == "reprise:v9"
    pinned = operator_pod(image__digest=digest)["containers"][0]
    assert pinned["image"] == f"reprise@{digest}" and f"--image=reprise@{digest}" in pinned["args"]


def test_the_embedded_zookeeper_is_an_ensemble_whose_members_are_named() -> None:
    objects = render(**EVERYTHING)
    hosts = [f"rec-zookeeper-{i}.rec-zookeeper.streams.svc:2181" for i in range(3)]
    operator = one(objects, "Deployment", OPERATOR)["spec"]["template"]["spec"]["containers"][0]
    server = one(objects, "StatefulSet", "rec-zookeeper")["spec"]
    assert f"--zk={','.join(hosts)}" in operator["args"]
    assert "--zk-own" in operator["args"]
    assert environment(server["template"]["spec"]["containers"][0])["REPRISE_ZK_SERVERS"] == ",".join(hosts)
    assert (server["replicas"], server["serviceName"]) == (3, "rec-zookeeper")
    assert one(objects, "Service", "rec-zookeeper")["spec"]["clusterIP"] == "None"


def test_an_existing_zookeeper_takes_its_place_with_tls_and_digest() -> None:
    objects = render(**CHOICES[3])
    assert not of_kind(objects, "StatefulSet")
    spec = one(objects, "Deployment", OPERATOR)["spec"]["template"]["spec"]
    found = environment(spec["containers"][0])
    assert "--zk=zk-0.zk:2281" in spec["containers"][0]["args"]
    assert "--zk-tls-secret=zk-tls" in spec["containers"][0]["args"]
    assert "--zk-own" not in spec["containers"][0]["args"], "others may use it"
    mounts = {m["mountPath"]: m["name"] for m in spec["containers"][0]["volumeMounts"]}
    volumes = {v["name"]: v.get("secret", {}).get("secretName") for v in spec["volumes"]}
    assert volumes[mounts[found["REPRISE_ZK_TLS"]]] == "zk-tls"
    assert volumes[mounts[found["REPRISE_ZK_AUTH"]]] == "zk-key"
    policy = one(objects, "NetworkPolicy", OPERATOR)["spec"]
    assert {"port": 2281} in [port for rule in policy["egress"] for port in rule["ports"]]


def test_the_embedded_zookeeper_speaks_tls_alone_when_asked_to() -> None:
    """One port, which its service, its policy and its clients name; its servers' Secret is not that of its clients."""
    objects = render(**CHOICES[6])
    pod = one(objects, "StatefulSet", "rec-zookeeper")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    mounts = {m["mountPath"]: m["name"] for m in container["volumeMounts"]}
    volumes = {v["name"]: v.get("secret", {}).get("secretName") for v in pod["volumes"]}
    assert volumes[mounts[environment(container)["REPRISE_ZK_TLS"]]] == "zk-servers"
    assert container["ports"][0]["containerPort"] == SECURE_CLIENT
    assert one(objects, "Service", "rec-zookeeper")["spec"]["ports"][0]["port"] == SECURE_CLIENT
    operator = one(objects, "Deployment", OPERATOR)["spec"]["template"]["spec"]["containers"][0]
    assert f"--zk=rec-zookeeper-0.rec-zookeeper.streams.svc:{SECURE_CLIENT}" in operator["args"]
    rules = one(objects, "NetworkPolicy", "rec-zookeeper")["spec"]["ingress"]
    assert [rule["ports"][0]["port"] for rule in rules] == [SECURE_CLIENT] * 2
    assert "2181" not in str(objects)


def test_the_key_of_zookeeper_s_users_is_the_operator_s_alone() -> None:
    objects = render(**CHOICES[6])
    with_key = [o for o in objects if "zk-key" in str(o)]
    assert [(o["kind"], o["metadata"]["name"]) for o in with_key] == [("Deployment", OPERATOR)]


def test_network_policies_open_what_is_needed() -> None:
    plain = one(render(**NOTHING_SERVED), "NetworkPolicy", OPERATOR)["spec"]
    assert plain["ingress"] == []
    assert {"port": 6443} in [port for rule in plain["egress"] for port in rule["ports"]]
    scraped = one(render(**EVERYTHING), "NetworkPolicy", OPERATOR)["spec"]
    pages = {"port": 8082}
    operators = {"podSelector": {"matchLabels": scraped["podSelector"]["matchLabels"]}}
    assert scraped["ingress"] == [{"ports": [pages], "from": [operators]}, {"ports": [{"port": 8081}]}]
    assert {"ports": [pages], "to": [operators]} in scraped["egress"]
    only_web = one(render(metrics__enabled="false"), "NetworkPolicy", OPERATOR)["spec"]
    assert only_web["ingress"] == [{"ports": [pages], "from": [operators]}]
    clients = one(render(**CHOICES[4]), "NetworkPolicy", "rec-zookeeper")["spec"]["ingress"][0]["from"]
    assert clients[1]["namespaceSelector"]["matchExpressions"][0]["values"] == ["a", "b"]
    assert not of_kind(render(**CHOICES[5]), "NetworkPolicy")
    assert "--network-policies" not in operator_pod(**CHOICES[5])["containers"][0]["args"]


def test_no_policy_of_the_chart_opens_one_topology_to_another() -> None:
    """The operator's policy for each opens it to its own pods; what a chart opens it opens to all."""
    everyones = one(render(**NOTHING_SERVED), "NetworkPolicy", f"{OPERATOR}-topologies")["spec"]
    assert everyones["ingress"] == []
    scraped = one(render(), "NetworkPolicy", f"{OPERATOR}-topologies")["spec"]
    assert scraped["ingress"] == [{"ports": [{"port": 8081}]}]
    arguments = operator_pod()["containers"][0]["args"]
    settings = _settings(_parser().parse_args([*arguments[1:], "--namespace=n", "--identity=i"]))
    assert settings.network_policies
    assert settings.denied_egress == ("169.254.169.254/32", "fd00:ec2::254/128")
    assert settings.api_ports == (443, 6443)


def test_what_the_prometheus_operator_reads_is_a_choice() -> None:
    assert not {"ServiceMonitor", "PrometheusRule"} & {o["kind"] for o in render()}
    objects = render(**EVERYTHING)
    monitor, service = (
        one(objects, "ServiceMonitor", OPERATOR),
        one(objects, "Service", f"{OPERATOR}-metrics"),
    )
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["spec"]["endpoints"][0]["port"] == service["spec"]["ports"][0]["name"]
    dashboards = one(objects, "ConfigMap", f"{OPERATOR}-dashboards")["data"]
    assert {json.loads(text)["uid"] + ".json" for text in dashboards.values()} == set(dashboards)
    drivers = one(objects, "PodMonitor", f"{OPERATOR}-drivers")["spec"]
    assert drivers["namespaceSelector"] == {"any": True}
    assert drivers["selector"]["matchLabels"].items() <= labels("topo", "driver").items()


def test_alerts_come_from_the_rules_with_the_release_s_thresholds() -> None:
    changed = {
        "metrics__prometheusRule__thresholds__driverAge": "77",
        "metrics__prometheusRule__runbooks": "https://wiki/r",
    }
    (group,) = one(render(**EVERYTHING, **changed), "PrometheusRule", OPERATOR)["spec"]["groups"]
    rules = {rule["alert"]: rule for rule in group["rules"]}
    (plain,) = yaml.safe_load(rules_file(defaults() | {"driverAge": "77"}, "https://wiki/r"))["groups"]
    assert group == plain
    assert rules["RepriseDriverSilent"]["expr"].endswith("> 77")


def test_page_and_metrics_are_served_unless_that_is_not_wanted_and_need_no_right() -> None:
    bare = operator_pod(**NOTHING_SERVED)["containers"][0]
    assert not [a for a in bare["args"] if a.startswith(("--web", "--metrics-port"))]
    assert [port["name"] for port in bare["ports"]] == ["health"]
    objects, container = render(), operator_pod()["containers"][0]
    assert "--metrics-port=8081" in container["args"]
    assert "--web-port=8082" in container["args"]
    assert {"name": "web", "containerPort": 8082} in container["ports"]
    service = one(objects, "Service", f"{OPERATOR}-web")["spec"]
    assert service["ports"] == [{"name": "web", "port": 80, "targetPort": "web"}] and "type" not in service
    labels = one(objects, "Deployment", OPERATOR)["spec"]["template"]["metadata"]["labels"]
    assert service["selector"].items() <= labels.items()
    names = "rec-operator-web,rec-operator-web.streams,rec-operator-web.streams.svc"
    assert f"--web-names={names},rec-operator-web.streams.svc.cluster.local" in container["args"]
    for kind in ("Role", "ClusterRole", "RoleBinding"):
        assert of_kind(objects, kind) == of_kind(render(**NOTHING_SERVED), kind)


def test_the_page_asks_for_a_token_out_of_a_secret() -> None:
    made = render()
    secret = one(made, "Secret", f"{OPERATOR}-web")
    assert len(base64.b64decode(secret["data"]["token"])) == 40
    assert one(made, "Service", f"{OPERATOR}-web")["metadata"]["annotations"] == {
        "reprise.dev/page-token": f"{OPERATOR}-web"
    }
    own = {"web__token__secret": "mine", "web__hosts[0]": "reprise.example.com"}
    for values, name in (({}, f"{OPERATOR}-web"), (own, "mine")):
        pod = operator_pod(**values)
        (volume,) = [v for v in pod["volumes"] if v["name"] == "web-token"]
        assert volume["secret"]["secretName"] == name
        assert "--web-token=/etc/reprise-web/token" in pod["containers"][0]["args"]
    assert not of_kind(render(**own), "Secret")
    arguments = operator_pod(**own)["containers"][0]["args"]
    assert any(a.startswith("--web-names=") and a.endswith(",reprise.example.com") for a in arguments)
    trusting = {"web__token__enabled": "false"}
    assert not of_kind(render(**trusting), "Secret")
    assert not [a for a in operator_pod(**trusting)["containers"][0]["args"] if "token" in a]


def test_switches_reach_the_operator_without_a_restart() -> None:
    objects = render(switches__paused="true")
    switches = one(objects, "ConfigMap", f"{OPERATOR}-switches")
    assert switches["data"] == {"paused": "true", "recommend": "false"}
    before, after = operator_pod(), operator_pod(switches__paused="true")
    assert before == after


def test_the_test_hook_may_do_only_what_it_does() -> None:
    objects = render()
    hook = one(objects, "Pod", "rec-test")
    assert hook["metadata"]["annotations"]["helm.sh/hook"] == "test"
    role = one(objects, "Role", "rec-test")
    assert [r["verbs"] for r in role["rules"]] == [["create"], ["get", "delete"]]
    assert role["rules"][1]["resourceNames"] == ["rec-test"]


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (("replica=3",), "replica"),
        (("zookeeper.embedded.replicas=2",), "replicas"),
        (("image.digest=abc",), "digest"),
        (("operator.leaseSeconds=0",), "leaseSeconds"),
        (("networkPolicy.apiServerPorts[0]=99999",), "apiServerPorts"),
        (("antiAffinity.executors=maybe",), "executors"),
        (("zookeeper.embedded.enabled=false",), "give `hosts`"),
        (("zookeeper.tls.enabled=true", "zookeeper.tls.secret=x"), "zookeeper.embedded.tlsSecret"),
        (("zookeeper.auth.enabled=true",), "zookeeper.auth.secret"),
        (("zookeeper.hosts=zk:1", "zookeeper.tls.enabled=true"), "zookeeper.tls.secret"),
        (("metrics.serviceMonitor.enabled=true", "metrics.enabled=false"), "needs metrics.enabled"),
    ],
)
def test_a_mistake_in_the_values_is_named(values: tuple[str, ...], reason: str) -> None:
    with pytest.raises(HelmError, match=reason):
        helm("template", "x", str(CHART), *OWN, *(word for value in values for word in ("--set", value)))


def _closed(schema: Any, path: str = "values") -> list[str]:
    if not isinstance(schema, dict):
        return []
    is_open = "properties" in schema and schema.get("additionalProperties") is not False
    inner = schema.get("properties", {}).items()
    return [path] * is_open + [p for name, child in inner for p in _closed(child, f"{path}.{name}")]


def _undescribed(values: Any, schema: Any, path: str = "values") -> list[str]:
    found = []
    for name, value in values.items():
        known = schema.get("properties", {}).get(name)
        if known is None:
            found.append(f"{path}.{name}")
        elif isinstance(value, dict) and "properties" in known:
            found += _undescribed(value, known, f"{path}.{name}")
    return found


def test_the_values_schema_is_closed_and_knows_every_value() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert _closed(schema) == [] and _undescribed(values, schema) == []
    assert set(schema["properties"]) - set(values) == {"global"}


def test_notes_say_what_is_not_safe_yet() -> None:
    notes = helm("install", "x", str(CHART), "--namespace", "n", "--dry-run=client", "--hide-secret", *OWN)
    assert "nothing is recovered" in notes and "may not read Node objects" in notes
    assert "helm show crds" in notes


def test_helm_installs_the_definitions() -> None:
    shown = list(yaml.safe_load_all(helm("show", "crds", str(CHART))))
    assert {d["spec"]["names"]["kind"] for d in shown if d} == {kind.kind for kind in KINDS}
