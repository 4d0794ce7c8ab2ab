"""What a platform team sets of images, users, the way to the page, and where runbooks are; and the release before."""

from __future__ import annotations

import pytest
import yaml

from reprise.controller.crd.crds import KINDS
from reprise.controller.observability.alerts import ALERTS
from reprise.controller.operator.__main__ import _parser, _settings
from tests.support.chart import CHART, HelmError, helm, of_kind, one, pod_specs, render
from tools.chart_readme import readme

pytestmark = [
    pytest.mark.slow,
    pytest.mark.wide,
]  # helm is downloaded once, and started for each set of values
OPERATOR = "rec-operator"
INGRESS = {
    "web__ingress__enabled": "true", "web__ingress__host": "reprise.example.com", "web__ingress__className": "nginx",
    "networkPolicy__webFrom[0]__namespaceSelector__matchLabels__name": "ingress-nginx",
}  # fmt: skip
RULES = {"metrics__prometheusRule__enabled": "true"}


def urls(**values: str) -> set[str]:
    (group, *_) = one(render(**RULES, **values), "PrometheusRule", OPERATOR)["spec"]["groups"]
    return {rule["annotations"]["runbook_url"] for rule in group["rules"] if "alert" in rule}


def test_an_image_is_taken_from_a_registry_by_tag_or_digest() -> None:
    digest = "sha256:" + "b" * 64
    name = {"image__registry": "registry.example.com:5000", "image__repository": "team/reprise"}
    for more, wanted in (({}, ":0.1.0"), ({"image__digest": digest}, f"@{digest}")):
        objects = render(**name, **more)
        image = f"registry.example.com:5000/team/reprise{wanted}"
        assert {c["image"] for spec in pod_specs(objects) for c in spec["containers"]} == {image}
        (operator,) = of_kind(objects, "Deployment")
        assert f"--image={image}" in operator["spec"]["template"]["spec"]["containers"][0]["args"]
    with pytest.raises(HelmError, match="registry"):
        render(image__registry="https://registry.example.com")


def test_a_platform_may_give_users_itself_and_nobody_may_loosen_the_profile() -> None:
    given = {f"podSecurityContext__{name}": "null" for name in ("runAsUser", "runAsGroup", "fsGroup")}
    for spec in pod_specs(render(**given)):
        assert spec["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    for spec in pod_specs(render(podSecurityContext__runAsUser="2000")):
        assert spec["securityContext"]["runAsUser"] == 2000
    for loosened in (
        {"podSecurityContext__runAsNonRoot": "false"}, {"podSecurityContext__runAsUser": "0"},
        {"securityContext__readOnlyRootFilesystem": "false"}, {"securityContext__privileged": "true"},
        {"securityContext__capabilities__add[0]": "SYS_ADMIN"}, {"podSecurityContext__runAsNonRoot": "null"},
    ):  # fmt: skip
        with pytest.raises(HelmError, match="ecurityContext"):
            render(**loosened)


def test_what_counts_as_a_notice_is_what_the_operator_is_told() -> None:
    asked = {
        "operator__leavingTaints[0]": "going=90",
        "operator__leavingConditions[0]": "RebootScheduled=60",
        "operator__leavingConditions[1]": "VMEventScheduled",
    }
    (operator,) = of_kind(render(**asked), "Deployment")
    arguments = operator["spec"]["template"]["spec"]["containers"][0]["args"][1:]
    settings = _settings(_parser().parse_args([*arguments, "--namespace=n", "--identity=i"]))
    assert settings.leaving_by_taint == {"going": 90.0}
    assert settings.leaving_by_condition == {"RebootScheduled": 60.0, "VMEventScheduled": None}


def test_an_ingress_leads_to_the_page_which_knows_its_name() -> None:
    assert not of_kind(render(), "Ingress")
    objects = render(**INGRESS, web__ingress__tlsSecret="cert")
    spec = one(objects, "Ingress", f"{OPERATOR}-web")["spec"]
    (rule,) = spec["rules"]
    service = rule["http"]["paths"][0]["backend"]["service"]
    assert one(objects, "Service", service["name"])["spec"]["ports"][0]["name"] == service["port"]["name"]
    assert rule["host"] == "reprise.example.com" and spec["ingressClassName"] == "nginx"
    assert spec["tls"] == [{"hosts": ["reprise.example.com"], "secretName": "cert"}]
    (operator,) = of_kind(objects, "Deployment")
    (names,) = [
        a
        for a in operator["spec"]["template"]["spec"]["containers"][0]["args"]
        if a.startswith("--web-names=")
    ]
    assert "reprise.example.com" in names.partition("=")[2].split(",")
    entrance = one(objects, "NetworkPolicy", OPERATOR)["spec"]["ingress"][0]["from"]
    assert {"namespaceSelector": {"matchLabels": {"name": "ingress-nginx"}}} in entrance


@pytest.mark.parametrize(
    ("without", "reason"),
    [
        ("networkPolicy__webFrom[0]__namespaceSelector__matchLabels__name", "networkPolicy.webFrom"),
        ("web__ingress__host", "web.ingress.host"),
    ],
)
def test_an_ingress_that_would_lead_nowhere_is_refused(without: str, reason: str) -> None:
    with pytest.raises(HelmError, match=reason):
        render(**{name: value for name, value in INGRESS.items() if name != without})
    with pytest.raises(HelmError, match=r"needs web\.enabled"):
        render(**INGRESS, web__enabled="false")


def test_runbooks_are_on_the_page_or_where_somebody_says() -> None:
    def below(address: str) -> set[str]:
        return {f"{address}/{alert.page}" for alert in ALERTS}

    assert urls() == below("http://rec-operator-web.streams.svc/runbooks")
    assert urls(**INGRESS) == below("http://reprise.example.com/runbooks")
    assert urls(**INGRESS, web__ingress__tlsSecret="c") == below("https://reprise.example.com/runbooks")
    assert urls(metrics__prometheusRule__runbooks="https://wiki/r", web__enabled="false") == below(
        "https://wiki/r"
    )
    with pytest.raises(HelmError, match=r"prometheusRule\.runbooks"):
        urls(web__enabled="false")


def test_the_readme_knows_every_value_with_its_default() -> None:
    text = (CHART / "README.md").read_text(encoding="utf-8")
    assert text == readme(CHART), "run `python -m tools.generate`"
    rows = dict(line.strip("| ").split(" | ", 1) for line in text.splitlines() if line.count(" | ") == 3)
    for key in (
        "image.registry",
        "web.ingress.host",
        "zookeeper.embedded.resources.limits",
        "podSecurityContext.runAsUser",
    ):
        assert key in rows, key
    assert "zookeeper.embedded.resources.limits.memory" not in rows, "its keys are free"


def test_artifact_hub_is_told_of_the_kinds_that_are_defined() -> None:
    about = yaml.safe_load((CHART / "Chart.yaml").read_text())["annotations"]
    told = yaml.safe_load(about["artifacthub.io/crds"])
    defined = [d for d in yaml.safe_load_all(helm("show", "crds", str(CHART))) if d]
    wanted = {
        (d["spec"]["names"]["kind"], d["spec"]["versions"][0]["name"], d["metadata"]["name"]) for d in defined
    }
    assert {(d["kind"], d["version"], d["name"]) for d in told} == wanted
    assert {d["kind"] for d in told} == {kind.kind for kind in KINDS}
    assert all(d["displayName"] and d["description"] for d in told)
    assert about["artifacthub.io/license"] == "Apache-2.0"
