"""The commands against a topology on Kubernetes: by the resources alone, and with the controller's page."""

from __future__ import annotations

import base64
import json
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from reprise.controller.cli import main, skip_command
from reprise.controller.crd.base import TopologyReference
from reprise.controller.crd.convert import SKIP, incident_object, incident_status, plan_object, skips_by_hand
from reprise.controller.status import document, plain, records
from tests.support import oncall
from tests.support.stub_cluster import StubCluster, stub_cluster

GROUP = "/apis/reprise.dev/v1alpha1/namespaces/streams"
CONFIG_MAPS = "/api/v1/namespaces/streams/configmaps"
PAGE = "/api/v1/namespaces/ops/services/reprise-operator:page/proxy/api/v1/topologies/streams/oncall"
SEEN = oncall.after_the_burst()
PRIORITIES = {q.id: q.priority for q in oncall.TOPOLOGY.queries.values()}


def _objects() -> dict[str, Any]:
    """As the operator writes them."""
    assert SEEN.incident is not None
    reference = TopologyReference(name="oncall", uid="u-1")
    newest = SEEN.newest_plan
    incident = incident_object(SEEN.incident, reference, "streams")
    incident["status"] = incident_status(SEEN.incident, "oncall", newest, PRIORITIES)
    plans = [plan_object(plan, reference, "streams", PRIORITIES) for plan in SEEN.plans.values()]
    topology = {
        **json.loads(oncall.resource().document),
        "status": {
            "queries": {"summary": "3/4", "available": 3, "waiting": 1, "total": 4, "value": "8/10"},
            "nodes": {"summary": "2/3", "lost": 2},
            "conditions": [{"type": "Recovering", "status": "True", "reason": "Waiting"}],
            "waiting": [{"query": "count.1", "priority": 2, "reason": "needs 40 more"}],
            "incident": incident["metadata"]["name"],
            "position": 20,
        },
    }
    topology["metadata"] |= {"namespace": "streams", "name": "oncall"}
    return {
        f"{GROUP}/streamtopologies": {"items": [topology]},
        f"{GROUP}/streamtopologies/oncall": topology,
        f"{GROUP}/incidents": {"items": [incident]},
        f"{GROUP}/recoveryplans": {"items": plans},
        "/api/v1/namespaces/streams/services": {"items": []},
        "/api/v1/namespaces/streams/pods": {"items": []},
        CONFIG_MAPS: {"items": []},
        "/apis/events.k8s.io/v1/namespaces/streams/events": {"items": []},
    }


def _page() -> dict[str, Any]:
    service = {
        "metadata": {"name": "reprise-operator", "namespace": "ops"},
        "spec": {"ports": [{"name": "metrics"}, {"name": "page"}]},
    }
    return {
        "/api/v1/services": {"items": [service]},
        PAGE: plain(document(oncall.TOPOLOGY, SEEN)),
        f"{PAGE}/records": records(SEEN),
    }


@pytest.fixture
def bare() -> Iterator[StubCluster]:
    with stub_cluster(_objects()) as stub:
        stub.forbidden.add("/api/v1/services")
        yield stub


@pytest.fixture
def served() -> Iterator[StubCluster]:
    with stub_cluster({**_objects(), **_page()}) as stub:
        yield stub


def ask(stub: StubCluster, tmp_path: Path, *arguments: str | Path) -> Result:
    config = stub.kubeconfig(tmp_path)
    return CliRunner().invoke(main, [*map(str, arguments), "--kubeconfig", str(config)])


@pytest.mark.parametrize("forbidden", [True, False])
def test_without_a_page_the_resources_say_how_it_stands(
    bare: StubCluster, tmp_path: Path, forbidden: bool
) -> None:
    if not forbidden:
        bare.forbidden.clear()  # services are not known there
    result = ask(bare, tmp_path, "status", "oncall")
    assert result.exit_code == 0, result.output
    assert "3/4" in result.output and "from the resources alone: " in result.output


def test_plan_and_history_by_the_resources(bare: StubCluster, tmp_path: Path) -> None:
    plan = ask(bare, tmp_path, "plan", "oncall")
    assert plan.exit_code == 0, plan.output
    assert "oncall-inc-000002-p2" in plan.output
    history = ask(bare, tmp_path, "history", "oncall")
    assert "queries-lost" in history.output


@pytest.mark.parametrize(
    "words", [["queries"], ["explain", "count.1"], ["explain", "oncall", "--checkpoint"], ["simulate"]]
)
def test_what_needs_the_page_says_how_to_reach_it(
    bare: StubCluster, tmp_path: Path, words: list[str]
) -> None:
    result = ask(bare, tmp_path, *words, "-n", "streams")
    assert result.exit_code == 4
    assert "give --url" in result.output


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["status", "oncall"], "count.1"),
        (["queries", "oncall"], "count.1"),
        (["explain", "oncall", "count.1"], "count.1"),
        (["explain", "oncall", "--checkpoint"], "inc-000002"),
        (["plan", "oncall"], "inc-000002-p2"),
        (["history", "oncall"], "queries-caught-up"),
        (["simulate", "oncall", "--arrive", "1@10s"], "every query is available"),
    ],
)
def test_through_the_page_everything_is_known(
    served: StubCluster, tmp_path: Path, words: list[str], expected: str
) -> None:
    result = ask(served, tmp_path, *words)
    assert result.exit_code == 0, result.output
    assert expected in result.output
    assert served.methods == {"GET"}


def test_url_instead_of_the_proxy(tmp_path: Path) -> None:
    answers = {
        path.replace(PAGE, "/api/v1/topologies/streams/oncall"): body for path, body in _page().items()
    }
    with stub_cluster(_objects()) as stub, stub_cluster(answers) as page:
        result = ask(stub, tmp_path, "status", "oncall", "--url", page.url, "-o", "json")
        assert json.loads(result.stdout)["topology"] == "oncall"
        broken = ask(stub, tmp_path, "queries", "oncall", "--url", stub.url)
        assert broken.exit_code == 4
        assert "404" in broken.output


def test_pause_and_resume_patch_the_spec_and_nothing_else(bare: StubCluster, tmp_path: Path) -> None:
    for command, paused in (("pause", True), ("resume", False)):
        result = ask(bare, tmp_path, command, "oncall")
        assert result.exit_code == 0, result.output
        path, body = bare.patches[-1]
        assert path.startswith(f"{GROUP}/streamtopologies/oncall?fieldManager=reprise-cli")
        assert body == {"spec": {"paused": paused}}


PLANS = f"{GROUP}/recoveryplans"


def propose(stub: StubCluster) -> str:
    """Let the newest plan wait for approval; its name."""
    plans = sorted(stub.answers[PLANS]["items"], key=lambda plan: str(plan["spec"]["time"]))
    for plan in plans:
        plan["status"] = {"state": "Superseded"}
    plans[-1]["status"] = {"state": "Proposed"}
    return str(plans[-1]["metadata"]["name"])


def test_approve_annotates_the_plan_that_waits_and_nothing_else(bare: StubCluster, tmp_path: Path) -> None:
    refused = ask(bare, tmp_path, "approve", "oncall")
    assert (refused.exit_code, "no plan of streams/oncall waits" in refused.stderr) == (2, True)
    name = propose(bare)
    for words in ((), ("--plan", name)):
        result = ask(bare, tmp_path, "approve", "oncall", *words)
        assert (result.exit_code, result.output) == (0, f"reprise.dev/approved of streams/{name} is true\n")
        path, body = bare.patches.pop()
        assert path.startswith(f"{PLANS}/{name}?fieldManager=reprise-cli")
        assert body == {"metadata": {"annotations": {"reprise.dev/approved": "true"}}}
    assert not bare.patches


def test_a_plan_that_is_not_the_one_that_was_read_is_not_approved(bare: StubCluster, tmp_path: Path) -> None:
    name = propose(bare)
    result = ask(bare, tmp_path, "approve", "oncall", "--plan", "oncall-inc-000001-p1-0000")
    assert (result.exit_code, f"is not proposed; {name} is" in result.stderr) == (2, True)
    assert not bare.patches


def test_restart_ends_the_drivers_pod_and_no_other_life_of_its_name(
    bare: StubCluster, tmp_path: Path
) -> None:
    none = ask(bare, tmp_path, "restart", "oncall")
    assert (none.exit_code, none.output) == (0, "streams/oncall has no driver; the operator starts one\n")
    folder = "/api/v1/namespaces/streams/pods"
    bare.answers[folder] = {"items": [{"metadata": {"name": "oncall-driver", "uid": "u-7"}}]}
    result = ask(bare, tmp_path, "restart", "oncall")
    assert result.output == "oncall-driver is told to end; the operator starts another\n"
    ((path, body),) = bare.deleted
    assert path == f"{folder}/oncall-driver"
    assert body["preconditions"] == {"uid": "u-7"} and "gracePeriodSeconds" not in body
    bare.forbidden.add(path)
    forbidden = ask(bare, tmp_path, "restart", "oncall")
    assert (forbidden.exit_code, "not allowed" in forbidden.output + forbidden.stderr) == (4, True)


@pytest.mark.parametrize("command", ["approve", "restart"])
def test_what_is_for_kubernetes_says_so_of_a_run(command: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(main, [command, "--out", str(tmp_path)])
    assert (result.exit_code, "on Kubernetes" in result.stderr) == (2, True)


def test_drain_patches_an_annotation_and_nothing_else(served: StubCluster, tmp_path: Path) -> None:
    known = json.loads(ask(served, tmp_path, "status", "oncall", "-o", "json").stdout)["nodes"]
    node = next(entry["name"] for entry in known if entry["state"] != "lost")
    meta = served.answers[f"{GROUP}/streamtopologies/oncall"]["metadata"]
    meta["resourceVersion"] = "41"
    notes = meta.setdefault("annotations", {})
    notes["reprise.dev/drain"] = "another"

    def written_by_somebody_else() -> None:
        meta["resourceVersion"] = str(int(meta["resourceVersion"]) + 1)
        notes["reprise.dev/drain"] = "another,third"

    served.on_conflict = written_by_somebody_else
    for words, left in (
        (("drain", node, "oncall"), f"another,third,{node}"),
        (("drain", node, "oncall", "--undo"), "another,third"),
    ):
        served.conflicts = 3  # somebody else writes, too
        result = ask(served, tmp_path, *words)
        assert result.exit_code == 0, result.output
        path, body = served.patches[-1]
        assert path.startswith(f"{GROUP}/streamtopologies/oncall?fieldManager=reprise-cli")
        assert body["metadata"]["resourceVersion"] == meta["resourceVersion"]
        assert set(body["metadata"]["annotations"]["reprise.dev/drain"].split(",")) == set(left.split(","))
    served.conflicts = 100
    assert "modified" in ask(served, tmp_path, "drain", node, "oncall").output
    result = ask(served, tmp_path, "drain", "no-such", "oncall")
    assert result.exit_code == 2
    assert "there is no node 'no-such'" in result.output


def test_without_a_name_the_only_topology_is_meant(bare: StubCluster, tmp_path: Path) -> None:
    assert "streams/oncall" in ask(bare, tmp_path, "status", "-n", "streams").output
    items = bare.answers[f"{GROUP}/streamtopologies"]["items"]
    items.append({"metadata": {"name": "other"}})
    result = ask(bare, tmp_path, "status", "-n", "streams")
    assert result.exit_code == 2
    assert "namespace streams has oncall, other" in result.output


def test_what_is_not_there(bare: StubCluster, tmp_path: Path) -> None:
    result = ask(bare, tmp_path, "status", "nobody")
    assert result.exit_code == 4
    assert "no StreamTopology streams/nobody" in result.output


def test_report_holds_resources_and_page_and_says_what_is_missing(
    bare: StubCluster, served: StubCluster, tmp_path: Path
) -> None:
    for stub, kind in ((bare, "txt"), (served, "json")):
        path = tmp_path / f"{kind}.tar.gz"
        result = ask(stub, tmp_path, "report", "oncall", "--to", path)
        assert result.exit_code == 0, result.output
        with tarfile.open(path) as tar:
            names = tar.getnames()
        for name in (
            "resources.json",
            "events.json",
            "pods.json",
            "spec.json",
            f"status.{kind}",
            f"records.{kind}",
        ):
            assert f"reprise-report/{name}" in names


def test_export_from_the_page(served: StubCluster, tmp_path: Path) -> None:
    result = ask(served, tmp_path, "incident", "export", "--name", "oncall", "--to", tmp_path / "post")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "post" / "inc-000002.md").exists()


def test_what_may_not_be_read_is_one_line(bare: StubCluster, tmp_path: Path) -> None:
    bare.forbidden.add(f"{GROUP}/incidents")
    result = ask(bare, tmp_path, "status", "oncall")
    assert result.exit_code == 4
    assert result.output.splitlines()[-1].startswith("error: 403: GET ")


def test_the_plugin_means_kubernetes_without_being_told(bare: StubCluster, tmp_path: Path) -> None:
    config = ["--kubeconfig", str(bare.kubeconfig(tmp_path))]
    plugin = CliRunner().invoke(main, ["history", *config], prog_name="kubectl-reprise")
    assert plugin.exit_code == 0, plugin.output
    assert "queries-lost" in plugin.output
    nowhere = CliRunner().invoke(main, ["history"], prog_name="reprise")
    assert "which topology? give --out" in nowhere.output
    missing = CliRunner().invoke(main, ["history", "--kubeconfig", "none"], prog_name="kubectl-reprise")
    assert missing.exit_code == 4


def test_no_cluster_at_all(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["status", "x", "--kubeconfig", str(tmp_path / "none")])
    assert result.exit_code == 4
    assert "no cluster" in result.output


@pytest.mark.parametrize("readable", [True, False])
def test_the_pages_token_is_read_with_the_rights_of_who_asks(tmp_path: Path, readable: bool) -> None:
    """The API server decides who may read the Secret; without it the page is asked, and says what it lacks."""
    page = _page()
    service = page["/api/v1/services"]["items"][0]
    service["metadata"]["annotations"] = {"reprise.dev/page-token": "rec-operator-web"}
    secret = "/api/v1/namespaces/ops/secrets/rec-operator-web"
    token = base64.b64encode(b"the-token-of-the-page").decode()
    with stub_cluster({**_objects(), **page, secret: {"data": {"token": token}}}) as stub:
        if not readable:
            stub.forbidden.add(secret)
        config = stub.kubeconfig(tmp_path)
        result = CliRunner().invoke(main, ["status", "oncall", "--kubeconfig", str(config)])
        assert result.exit_code in (0, 1), result.output
        assert stub.tokens.get(PAGE) == ("the-token-of-the-page" if readable else None)
        assert set(stub.tokens) <= {PAGE, f"{PAGE}/records"}, "it is shown to the page alone"


def test_a_skip_is_an_annotation_of_this_very_object(
    served: StubCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = ask(served, tmp_path, "skip", "oncall", "count.1", "--yes")
    assert refused.exit_code == 1
    assert "all later output could differ" in refused.output
    assert served.patches == []
    monkeypatch.setattr(skip_command, "_require_able", lambda *_: None)
    path = f"{GROUP}/streamtopologies/oncall"
    meta = served.answers[path]["metadata"]
    meta |= {"uid": "u-1", "resourceVersion": "7", "annotations": {SKIP: "count.0=u-1.5,count.2=other.6"}}
    result = ask(served, tmp_path, "skip", "oncall", "count.1", "--yes")
    assert result.exit_code == 0, result.output
    _, body = served.patches[-1]
    value = body["metadata"]["annotations"][SKIP]
    assert body["metadata"]["resourceVersion"] == "7"
    assert re.fullmatch(r"count\.0=u-1\.5,count\.1=u-1\.[0-9a-f]+", value), "that of another object is none"
    meta["annotations"] = {SKIP: value}
    assert set(skips_by_hand(meta)) == {"count.0", "count.1"}
    undone = ask(served, tmp_path, "skip", "oncall", "count.0", "--undo")
    assert undone.exit_code == 0, undone.output
    assert served.patches[-1][1]["metadata"]["annotations"][SKIP].startswith("count.1=u-1.")
    again = ask(served, tmp_path, "skip", "oncall", "count.3", "--undo")
    assert "does not ask for it" in again.output
    assert len(served.patches) == 2
    assert skips_by_hand({**meta, "uid": "u-2"}) == {}, "a copy of the object asks for nothing"


def test_list_says_of_each_topology_how_it_stands(tmp_path: Path) -> None:
    found = _objects()
    ready = {"type": "Ready", "status": "False", "reason": "QueriesDown"}
    found[f"{GROUP}/streamtopologies"]["items"][0]["status"]["conditions"].append(ready)
    found[f"{GROUP}/streamtopologies"]["items"][0]["status"]["incident"] = "long-name-" * 9
    new = {"metadata": {"namespace": "apart", "name": "new"}, "spec": {}}
    items = [*found[f"{GROUP}/streamtopologies"]["items"], new]
    found["/apis/reprise.dev/v1alpha1/streamtopologies"] = {"items": items}
    with stub_cluster(found) as stub:
        here = ask(stub, tmp_path, "list", "-n", "streams")
        everywhere = ask(stub, tmp_path, "list", "-A", "-o", "json")
        both = ask(stub, tmp_path, "list", "-A", "-n", "streams")
    assert here.exit_code == 0, here.output
    (line,) = [x.split() for x in here.output.splitlines() if "oncall" in x]
    assert line == ["streams", "oncall", "False", "QueriesDown", "3/4", "2/3", "long-name-" * 9]
    first, second = json.loads(everywhere.output)
    assert (first["name"], first["ready"], first["reason"]) == ("new", "Unknown", "NotLookedAtYet")
    assert (second["name"], second["queries"]) == ("oncall", "3/4")
    assert (both.exit_code, "two ways" in both.stderr) == (2, True)


def test_a_log_cannot_command_the_terminal(tmp_path: Path) -> None:
    pods = "/api/v1/namespaces/streams/pods"
    hostile = "row \x1b]0;title\x07\x1b[2J\x9b2K\r\tZ\u00fcrich\nlast\n"
    found = {**_objects(), pods: {"items": [{"metadata": {"name": "a"}}]}, f"{pods}/a/log": hostile}
    with stub_cluster(found) as stub:
        config = str(stub.kubeconfig(tmp_path))
        result = CliRunner().invoke(
            main, ["logs", "oncall", "--kubeconfig", config], color=True
        )  # a terminal
    assert result.output.splitlines()[1:] == [
        r"row \x1b]0;title\x07\x1b[2J\x9b2K\r" + "\tZ\u00fcrich",
        "last",
    ]


def test_logs_are_those_of_each_pod_or_why_they_cannot_be_read(tmp_path: Path) -> None:
    pods = "/api/v1/namespaces/streams/pods"
    found = {
        **_objects(),
        pods: {"items": [{"metadata": {"name": name}} for name in ("oncall-b", "oncall-a")]},
        f"{pods}/oncall-a/log": "first\nlast\n",
    }
    with stub_cluster(found) as stub:
        result = ask(stub, tmp_path, "logs", "oncall", "--role", "executor")
        stub.answers[pods] = {"items": []}
        none = ask(stub, tmp_path, "logs", "oncall")
    assert result.exit_code == 0, result.output
    assert result.output.startswith("==> oncall-a <==\nfirst\nlast\n==> oncall-b <==\nnot read: ")
    assert (none.exit_code, none.stderr) == (4, "error: streams/oncall has no driver\n")


def _started_with(**spec: Any) -> dict[str, Any]:
    """The ConfigMap of a driver that was started with other values of these fields."""
    document = json.loads(oncall.resource().document)
    document["metadata"] |= {"namespace": "streams", "name": "oncall"}
    document["spec"] |= spec
    return {CONFIG_MAPS: {"items": [{"data": {"topology.json": json.dumps(document)}}]}}


def _diff(stub: StubCluster, tmp_path: Path, *more: str) -> Result:
    file = tmp_path / "t.yaml"
    file.write_text(oncall.TEXT)
    return ask(stub, tmp_path, "diff", "oncall", "-n", "streams", "-f", file, *more)


def test_a_diff_shows_both_where_the_newest_resource_is_not_what_runs(tmp_path: Path) -> None:
    """The resource was changed and that is not in effect: nothing changes by the file, and yet a driver is started."""
    with stub_cluster(
        {**_objects(), **_started_with(upgrade="replay", nodes={"count": 9, "cpu": "1"})}
    ) as stub:
        said = _diff(stub, tmp_path)
        rows = json.loads(_diff(stub, tmp_path, "-o", "json").output)
    assert said.exit_code == 0, said.output
    assert said.output.startswith("nothing changes\ncompared with what its driver still runs")
    assert "with a new driver" in said.output
    assert {row["before_is"] for row in rows} == {"running"}
    assert ("spec.nodes.count", 9) in {(row["path"], row["before"]) for row in rows}
    assert "spec.upgrade" not in {row["path"] for row in rows}, "it takes effect in place"


def test_what_is_refused_of_queries_follows_from_what_runs(tmp_path: Path) -> None:
    """The newest resource is not in effect: by that alone the query could come."""
    leaf = {"name": "leaf", "class": "reprise.operators:Map", "with": {"where": "count > 0"},
            "inputs": [{"from": "count", "forward": True}], "parallelism": 4, "output": {}}  # fmt: skip
    document = json.loads(oncall.resource().document)
    document["spec"]["operators"].append(leaf)
    file = tmp_path / "more.yaml"
    file.write_text(json.dumps(document))
    order = {**document["spec"]["batch"], "order": "arrival"}
    for runs, code in ((_started_with(), 0), (_started_with(batch=order), 1)):
        with stub_cluster({**_objects(), **runs}) as stub:
            result = ask(stub, tmp_path, "diff", "oncall", "-n", "streams", "-f", file)
        assert result.exit_code == code, result.output
        assert ("refused: spec.batch.order" in result.output) == bool(code)


def test_a_diff_says_where_what_runs_cannot_be_read(tmp_path: Path) -> None:
    with stub_cluster(_objects()) as stub:
        assert _diff(stub, tmp_path).output == "nothing changes\n", "no driver was started yet"
        stub.forbidden.add(CONFIG_MAPS)
        result = _diff(stub, tmp_path)
    assert result.exit_code == 0
    assert (
        "compared with the resource alone: what its driver was started with cannot be read" in result.output
    )
