"""The page in a real browser: that it shows the document and nothing else, to eyes, keyboards and screen readers alike.

Screenshots of each moment are left in the folder that REPRISE_SCREENSHOTS names, to be looked at by people.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from selenium.webdriver.chrome.webdriver import WebDriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from reprise.controller.web import Board, WebServer
from reprise.controller.web.app import STREAMS
from reprise.controller.zookeeper.observation import Observation
from reprise.spark_jobs.topology import expand
from tests.web import moments
from tests.web.browser import complaints
from tests.web.moments import Look
from tests.web.pages import CELLS, accessible, assert_shows, picture, show, until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def looks() -> dict[str, Look]:
    """Moments by the name of the topology that is shown at it."""
    closed = moments.topology2().kill("n5", "n6").add("n11", "n12", "n13")
    closed.world.run(10.0)
    return {
        "steady": moments.of(moments.topology2()),
        "burst": moments.of(moments.eight_of_ten(moments.topology2())),
        "closed": moments.of(closed),
        "hundred": moments.of(moments.wide(50).kill("n2", "n3", "n4").add("n11")),
        "thousand": moments.of(moments.wide(500)),
        "standbys": moments.with_standbys(),
        "domains": moments.in_domains(),
    }


class Watched(Board):
    """The looks of this module stand still; they count as looked at all the same."""

    def age(self, key: tuple[str, str]) -> float | None:
        return None if super().age(key) is None else 0.0


@pytest.fixture(scope="module")
def board(looks: dict[str, Look]) -> Board:
    found = Watched()
    for name, look in looks.items():
        found.show("default", name, *look)
    return found


@pytest.fixture
def browser(browser: WebDriver) -> Iterator[WebDriver]:
    """The console has nothing to complain of, either."""
    yield browser
    assert complaints(browser) == []


def opened(driver: WebDriver, server: WebServer, name: str, seen: Observation) -> None:
    """Its page, with this observation drawn."""
    driver.get(f"{server.url}/t/default/{name}")
    until(
        driver,
        lambda d: d.execute_script("return document.body.dataset.time") == str(seen.time).removesuffix(".0"),
        f"{name} is shown",
    )
    until(
        driver,
        lambda d: d.find_element(By.ID, "live").get_attribute("data-mode") == "live",
        "the stream is open",
    )


@pytest.mark.parametrize(
    "name",
    ["burst", *(pytest.param(name, marks=pytest.mark.wide) for name in ("steady", "closed", "hundred"))],
)
def test_the_page_shows_the_document(
    browser: WebDriver, server: WebServer, looks: dict[str, Look], name: str
) -> None:
    opened(browser, server, name, looks[name][1])
    assert_shows(browser, moments.said(*looks[name]))
    accessible(browser)
    picture(browser, name)


def test_an_incident_is_told_with_its_time_line_plan_and_bound(
    browser: WebDriver, server: WebServer, looks: dict[str, Look]
) -> None:
    opened(browser, server, "burst", looks["burst"][1])
    said = moments.said(*looks["burst"])
    headline = browser.find_element(By.ID, "headline").text
    assert (
        said["incident"]["id"] in headline
        and "8 nodes lost (n3, n4, n5" in headline
        and "6 of 15 queries" in headline
    )
    entries = len(said["incident"]["events"]) + len(said["incident"]["starts"])
    assert len(browser.find_elements(By.CSS_SELECTOR, "#events li")) == entries
    plan = browser.find_element(By.ID, "plan-body").text
    assert all(entry["reason"] in plan for entry in said["plan"]["left_out"]) and said["plan"]["left_out"]
    assert all(entry["query"] in plan for entry in said["plan"]["chosen"])
    label = browser.find_element(By.ID, "chart").get_attribute("aria-label")
    assert label is not None and "61.3 % by priority" in label and "at most 61.3 %" in label
    browser.find_element(By.CSS_SELECTOR, "#chart-table summary").click()
    rows = browser.find_elements(By.CSS_SELECTOR, "#chart-rows tr")
    assert "61.3 %" in rows[-1].text and "100 %" in rows[0].text
    assert browser.execute_script("return document.querySelector('#chart canvas').width > 300")


@pytest.mark.wide
def test_a_change_appears_without_reloading_and_without_losing_the_focus(
    browser: WebDriver, server: WebServer, board: Board
) -> None:
    life = moments.topology2()
    board.show("default", "live", *moments.of(life))
    opened(browser, server, "live", life.seen())
    browser.execute_script("window.mark = 1; document.querySelector('[data-partition=\"o5.0\"]').focus()")
    for change in (lambda: life.kill(*(f"n{n}" for n in range(3, 11))), lambda: life.add("n11", "n12")):
        change()
        board.show("default", "live", *moments.of(life))
        shown = str(life.seen().time).removesuffix(".0")
        until(
            browser,
            lambda d, s=shown: d.execute_script("return document.body.dataset.time") == s,
            "the change is shown",
        )
        assert_shows(browser, moments.said(*moments.of(life)))
    assert browser.execute_script("return [window.mark, document.activeElement.dataset.partition]") == [
        1,
        "o5.0",
    ]
    board.show(
        "default", "live", life.resource, replace(life.seen(), connected=False, time=life.seen().time + 1)
    )
    until(
        browser,
        lambda d: "ZooKeeper does not answer" in d.find_element(By.ID, "headline").text,
        "ZooKeeper is away",
    )
    board.forget("default", "live")


@pytest.mark.wide
def test_pages_left_behind_or_in_other_tabs_hold_no_stream_and_catch_up(
    browser: WebDriver, server: WebServer, board: Board
) -> None:
    """A browser has six connections to a server: seven streams, and the seventh page would be empty."""
    life = moments.topology2()
    for number in range(9):
        board.show("default", f"visit{number}", *moments.of(life))
        opened(browser, server, f"visit{number}", life.seen())
    streams = server._app[STREAMS]
    until(browser, lambda _: len(streams) == 1, "eight streams have ended")
    life.kill("n5", "n6")
    board.show("default", "visit7", *moments.of(life))
    browser.back()
    until(browser, lambda d: "incident" in d.find_element(By.ID, "headline").text, "it was asked for again")
    first = browser.current_window_handle
    browser.switch_to.new_window("tab")
    until(browser, lambda _: not streams, "a hidden page needs no stream")
    life.add("n11", "n12")
    board.show("default", "visit7", *moments.of(life))
    shown = str(life.seen().time).removesuffix(".0")
    browser.close()
    browser.switch_to.window(first)
    until(
        browser,
        lambda d: d.execute_script("return document.body.dataset.time") == shown,
        "the tab shows what has changed",
    )
    for number in range(9):
        board.forget("default", f"visit{number}")


@pytest.mark.wide
def test_without_a_stream_the_page_asks_from_time_to_time(
    browser: WebDriver, server: WebServer, board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reprise.controller.web.app.MAX_STREAMS", 0)
    life = moments.topology2()
    board.show("default", "asked", *moments.of(life))
    browser.get(f"{server.url}/t/default/asked")
    until(browser, lambda d: d.find_element(By.ID, "live").get_attribute("data-mode") == "polling", "it asks")
    life.kill("n5", "n6")
    board.show("default", "asked", *moments.of(life))
    until(browser, lambda d: "incident" in d.find_element(By.ID, "headline").text, "the incident is shown")
    browser.get("about:blank")
    assert any("503" in line for line in complaints(browser))  # the refused stream, and nothing else
    board.forget("default", "asked")


@pytest.mark.wide
def test_everything_can_be_reached_and_done_with_the_keyboard(
    browser: WebDriver, server: WebServer, looks: dict[str, Look]
) -> None:
    opened(browser, server, "burst", looks["burst"][1])

    def press(*keys: str) -> None:
        ActionChains(browser).send_keys(*keys).perform()

    def focused(what: str = "dataset.partition") -> Any:
        return browser.execute_script(f"return document.activeElement.{what}")

    press(Keys.TAB)
    assert focused("className") == "skip"
    seen = []
    for _ in range(40):
        press(Keys.TAB)
        seen.append(
            focused(
                "closest('#graph') ? 'graph' : document.activeElement.id || document.activeElement.className"
            )
        )
        if seen[-1] == "graph":
            break
    assert (
        "theme" in seen
        and "events" in seen
        and "scroll tall" in seen
        and "detail-level" in seen
        and seen[-1] == "graph"
    )
    press(Keys.HOME)
    assert focused("textContent").startswith("sourcesource, 1 partition: 1 running")
    press(Keys.ARROW_DOWN, Keys.ARROW_RIGHT)
    assert focused() == "parser.0"
    outline = browser.execute_script("return getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none"
    press(Keys.ENTER)
    detail = browser.find_element(By.ID, "detail")
    assert detail.is_displayed() and "Partition parser.0" in detail.text and "source.0" in detail.text
    press(Keys.ESCAPE)
    assert not detail.is_displayed() and focused() == "parser.0"
    press(Keys.HOME, Keys.ENTER)
    assert focused("ariaExpanded") == "false"
    press(Keys.TAB)
    assert focused("closest('#graph')") is None  # the whole graph is one stop


@pytest.mark.wide
def test_a_query_that_is_chosen_is_outlined_in_the_graph(
    browser: WebDriver, server: WebServer, looks: dict[str, Look]
) -> None:
    resource, seen = looks["burst"]
    opened(browser, server, "burst", seen)
    button = browser.find_element(By.XPATH, "//tbody[@id='query-rows']//button[text()='o13.0']")
    button.click()
    script = "return [...document.querySelectorAll('.cell[data-in=\"true\"]')].map(c => c.dataset.partition)"
    until(
        browser,
        lambda d: set(d.execute_script(script)) == expand(resource).queries["o13.0"].partitions,
        "its partitions",
    )
    assert "waiting" in browser.find_element(By.ID, "detail").text
    accessible(browser)
    picture(browser, "selected")


@pytest.mark.wide
def test_a_partition_says_where_its_standby_is_and_in_which_failure_domain(
    browser: WebDriver, server: WebServer, looks: dict[str, Look]
) -> None:
    _, seen = looks["standbys"]
    opened(browser, server, "standbys", seen)
    detail = browser.find_element(By.ID, "detail")
    assert seen.desired is not None
    at = seen.desired.standbys
    for partition, words in {
        "parser.0": [
            f"{at['parser.0']}, at batch 40",
            "zone",
            "a, of its partition a: in the same failure domain",
        ],
        "parser.1": [f"{at['parser.1']}, not ready", "zone", "b, of its partition a: apart"],
        "parser.2": [f"{at['parser.2']}, not ready", "not known, of its partition a: nobody can say"],
        "parser.3": ["none is placed"],
    }.items():
        browser.find_element(By.CSS_SELECTOR, f"[data-partition='{partition}']").click()
        until(browser, lambda _, p=partition: f"Partition {p}" in detail.text, partition)
        assert all(word in detail.text for word in words), detail.text


@pytest.mark.wide
def test_each_node_says_its_failure_domain_and_each_domain_what_would_be_lost_with_it(
    browser: WebDriver, server: WebServer, looks: dict[str, Look]
) -> None:
    opened(browser, server, "domains", looks["domains"][1])
    domains = moments.said(*looks["domains"])["failure_domains"]
    panel = browser.find_element(By.ID, "nodes").text
    said = f"of a priority of {domains['priority']}, {domains['lost']:g} would be lost with one of {len(domains['items'])}"
    assert said in panel
    lines = [item.text.split("\n") for item in browser.find_elements(By.CSS_SELECTOR, "#domain-list li")]
    unknown = [i for i in domains["items"] if i["value"] is None]
    assert len(lines) == len(domains["items"]) == len(unknown) + 2
    for (name, text), item in zip(lines, domains["items"], strict=True):
        own = [n.removesuffix("#1") for n in item["nodes"]]
        assert name == (item["value"] or f"{own[0]}, domain not known")
        assert f"({', '.join(own)}); {item['lost']} would be lost with it" in text
        assert ("without standbys" in text) == (item["lost"] != item["priority"])
    assert [panel.count(f"; zone {zone}\n") for zone in ("b", "not known")] == [1, len(unknown)]
    accessible(browser)
    picture(browser, "domains")
    opened(browser, server, "standbys", looks["standbys"][1])
    assert not browser.find_element(By.ID, "domains").is_displayed()


@pytest.mark.wide
def test_a_thousand_partitions_are_shown_by_operator_and_can_be_opened(
    browser: WebDriver, server: WebServer, looks: dict[str, Look]
) -> None:
    opened(browser, server, "thousand", looks["thousand"][1])
    assert browser.execute_script(CELLS) == {}
    boxes = [box.text.split("\n") for box in browser.find_elements(By.CSS_SELECTOR, ".operator")]
    assert ["parser", "operator, 500 partitions: 500 running", "500", "500 running", "batch 40"] in boxes
    accessible(browser)
    picture(browser, "thousand")
    heads = browser.find_elements(By.CSS_SELECTOR, ".operator-head")
    next(head for head in heads if "parser" in head.text).click()
    assert len(browser.execute_script(CELLS)) == 500


@pytest.mark.wide
def test_dark_and_narrow_are_readable_too(
    browser: WebDriver, server: WebServer, looks: dict[str, Look]
) -> None:
    show(browser, prefers_color_scheme="dark")
    opened(browser, server, "burst", looks["burst"][1])
    assert (
        browser.execute_script("return getComputedStyle(document.body).backgroundColor") == "rgb(14, 17, 22)"
    )
    accessible(browser)
    picture(browser, "dark")
    show(browser, width=400, height=800)
    opened(browser, server, "burst", looks["burst"][1])
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 400
    assert_shows(browser, moments.said(*looks["burst"]))
    accessible(browser)
    picture(browser, "narrow", 400)


@pytest.mark.wide
def test_nothing_moves_for_who_asks_for_that(
    browser: WebDriver, server: WebServer, looks: dict[str, Look]
) -> None:
    script = "return getComputedStyle(document.querySelector('.cell')).transitionDuration"
    opened(browser, server, "steady", looks["steady"][1])
    assert browser.execute_script(script) == "0s"
    show(browser, prefers_reduced_motion="no-preference")
    assert browser.execute_script(script) != "0s"


@pytest.mark.wide
def test_the_list_leads_to_each_topology(
    browser: WebDriver, server: WebServer, looks: dict[str, Look]
) -> None:
    browser.get(server.url)
    until(
        browser, lambda d: len(d.find_elements(By.CSS_SELECTOR, "#rows tr")) == len(looks), "all are listed"
    )
    accessible(browser)
    picture(browser, "list", 1200)
    browser.find_element(By.LINK_TEXT, "burst").click()
    until(browser, lambda d: "incident" in d.find_element(By.ID, "headline").text, "its page")


@pytest.mark.wide
def test_a_text_that_looks_like_markup_stays_text(
    browser: WebDriver, server: WebServer, board: Board, looks: dict[str, Look]
) -> None:
    resource, seen = looks["steady"]
    nasty = "<img src=x onerror=alert(1)>"
    board.show("default", "nasty", resource, replace(seen, problems=(nasty,)))
    opened(browser, server, "nasty", seen)
    assert nasty in browser.find_element(By.ID, "problems").text
    assert browser.find_elements(By.CSS_SELECTOR, "img") == []
    board.forget("default", "nasty")
