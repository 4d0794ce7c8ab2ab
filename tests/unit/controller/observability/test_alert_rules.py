"""What every alert has, and that pages and chart follow the one source."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
import yaml

from reprise.controller.cli.app import COMMANDS, main
from reprise.controller.crd.crds import KINDS as CUSTOM
from reprise.controller.observability.alerts import ALERTS, Alert, defaults
from reprise.controller.observability.metrics.catalogue import METRICS
from reprise.controller.observability.metrics.metric import Place
from tools.alerts_render import RUNBOOKS_DEFAULT, rules_file

ROOT = Path(__file__).parents[4]
PAGES = ROOT / "docs" / "runbooks"
KINDS = {kind.plural for kind in CUSTOM} | {"pods", "nodes", "events", "leases", "configmaps"}
SERIES = {series: metric for metric in METRICS for series in metric.series}


@pytest.mark.parametrize("alert", ALERTS, ids=lambda a: a.name)
def test_an_alert_is_complete(alert: Alert) -> None:
    assert re.fullmatch(r"Reprise[A-Z][A-Za-z]+", alert.name)
    assert alert.summary and alert.description
    assert alert.hold in defaults()
    named = set(re.findall(r"<(\w+)>", alert.expr))
    assert named <= set(defaults())
    assert set(re.findall(r"\breprise_[a-z_]+", alert.expr)) <= set(SERIES)
    assert not re.search(r"[<>=] *[2-9]", alert.expr), "a threshold without a name"


def test_all_thresholds_are_used() -> None:
    assert {t.name for alert in ALERTS for t in alert.thresholds} == set(defaults())


def test_alerts_do_not_rest_on_a_process_that_may_be_dead_but_for_what_only_it_knows() -> None:
    for alert in ALERTS:
        needed = re.sub(r"unless on \(topology\) \w+", "", alert.expr)  # what is not there excludes nothing
        metrics = [SERIES[name] for name in re.findall(r"\breprise_[a-z_]+", needed)]
        # a dead driver has no buffers, and drops no rows
        if alert.name not in ("RepriseBufferNearLimit", "RepriseLateRowsDropped"):
            assert all(Place.CONTROLLER in metric.places for metric in metrics)


def test_values_take_the_place_of_names() -> None:
    (group,) = yaml.safe_load(rules_file(defaults() | {"driverAge": "77"}))["groups"]
    rules = {rule["alert"]: rule for rule in group["rules"]}
    assert "> 77" in rules["RepriseDriverSilent"]["expr"]
    assert not re.search(r"<[a-z]\w*>", yaml.safe_dump(group))
    for name, rule in rules.items():
        assert rule["annotations"]["runbook_url"] == f"{RUNBOOKS_DEFAULT}/{name}.md"


def test_the_chart_s_thresholds_are_those_of_the_source() -> None:
    values = yaml.safe_load((ROOT / "charts/reprise/values.yaml").read_text())
    rule = values["metrics"]["prometheusRule"]
    assert {name: str(value) for name, value in rule["thresholds"].items()} == defaults()
    assert rule["runbooks"] == "", "the page serves them"


def test_every_alert_has_its_page_and_no_page_is_left_over() -> None:
    assert {p.name for p in PAGES.glob("*.md")} == {alert.page for alert in ALERTS}


@pytest.mark.parametrize("alert", ALERTS, ids=lambda a: a.name)
def test_a_page_has_its_severity_and_its_thresholds(alert: Alert) -> None:
    text = (PAGES / alert.page).read_text()
    assert f"Severity: {alert.severity.value}." in text
    assert [t.name for t in alert.thresholds if f"`{t.name}`" not in text] == []


@pytest.mark.parametrize("alert", ALERTS, ids=lambda a: a.name)
def test_commands_on_a_page_are_those_of_the_command_line(alert: Alert) -> None:
    """`reprise` commands with their options; `kubectl` with kinds that there are."""
    commands = [
        line.strip()
        for block in re.findall(r"```bash\n(.*?)```", (PAGES / alert.page).read_text(), re.DOTALL)
        for line in block.splitlines()
    ]
    assert commands
    for command in (c for c in commands if c.startswith("reprise ")):
        words = command.split()
        assert words[1] in COMMANDS, command
        known = {o for p in sub_command(words[1]).params for o in p.opts}
        options = [w for w in command.partition("#")[0].split()[2:] if w.startswith("-")]
        assert {w.partition("=")[0] for w in options} <= known, command
    for command in (c for c in commands if c.startswith("kubectl ")):
        found = re.search(r" (?:get|describe) ([a-z,]+)", command)
        assert found is None or set(found[1].split(",")) <= KINDS, command
        assert found or " logs " in command, command


def sub_command(name: str) -> click.Command:
    found = main.get_command(click.Context(main), name)
    assert found is not None
    return found
