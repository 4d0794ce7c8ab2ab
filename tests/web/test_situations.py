"""The page in the situations in which it is needed and goes wrong first, on a desk and on a phone, in light and dark.

Each is looked at for words, for geometry (nothing cut, nothing over another, nothing pushed sideways) and by axe; with
REPRISE_SCREENSHOTS each leaves a picture for people.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from typing import Any

import pytest
from selenium.webdriver.chrome.webdriver import WebDriver
from selenium.webdriver.common.by import By

from reprise.controller.analysis.upcoming import upcoming
from reprise.controller.status import document, plain
from reprise.controller.topology_view import with_promises
from reprise.controller.web import Board, WebServer
from tests.web import moments, situations
from tests.web.browser import complaints
from tests.web.geometry import assert_not_pushed_sideways, assert_nothing_cut_or_over_another
from tests.web.moments import Look
from tests.web.pages import accessible, assert_shows, picture, show, until

pytestmark = [pytest.mark.slow, pytest.mark.wide]
DESK, PHONE = (1440, 1000), (390, 844)
WHY = "spec.operators[3].inputs[0].from: there is no source or operator 'enriched-payments-by-merchant'; is it 'enriched'?"

WATERMARKS = {
    (None, False): "–",
    (None, True): "input has ended",
    (situations.MARK_US / 1e6, False): datetime.fromtimestamp(situations.MARK_US / 1e6)
    .astimezone()
    .strftime("%Y-%m-%d %H:%M:%S"),
}
"""What is shown of a watermark, and of where the input has ended."""


@pytest.fixture(scope="module")
def looks() -> dict[str, Look]:
    return {
        "calm": moments.of(moments.topology2()),
        "burst": moments.of(moments.eight_of_ten(moments.topology2())),
        "long-names": situations.long_incident(),
        "hundred": situations.hundred_partitions(),
    }


@pytest.fixture
def board() -> Board:
    return Board()


@pytest.fixture(
    params=[
        "desk",
        "phone-dark",
        "desk-dark",
        "phone",
    ]
)
def view(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def resize(browser: WebDriver, view: str) -> int:
    width, height = PHONE if view.startswith("phone") else DESK
    show(browser, width, height, prefers_color_scheme="dark" if view.endswith("dark") else "light")
    return width


def text(browser: WebDriver, name: str) -> str:
    return browser.find_element(By.ID, name).text


def drawn(browser: WebDriver, server: WebServer, name: str, look: Look) -> None:
    browser.get(f"{server.url}/t/default/{name}")
    shown = str(look[1].time).removesuffix(".0")
    until(browser, lambda d: d.execute_script("return document.body.dataset.time") == shown, "it is drawn")


def looked_at(browser: WebDriver, view: str, name: str) -> None:
    """All that holds of every situation."""
    width = resize(browser, view)
    assert_not_pushed_sideways(browser, width, phone=view.startswith("phone"))
    assert_nothing_cut_or_over_another(browser)
    accessible(browser)
    assert headings(browser)[0][0] == 1
    picture(browser, f"{name}-{view}", width)


def headings(browser: WebDriver) -> list[tuple[int, str]]:
    """Level and words of those that are shown, in order; a level is never skipped."""
    script = """return [...document.querySelectorAll('h1, h2, h3')].filter(h => h.getClientRects().length)
        .map(h => [Number(h.tagName[1]), h.textContent])"""
    found = [(int(level), str(words)) for level, words in browser.execute_script(script)]
    assert all(after - before <= 1 for (before, _), (after, _) in pairwise(found))
    return found


@pytest.mark.parametrize("name", ["calm", "burst", "long-names", "hundred"])
def test_a_topology_is_readable_whatever_its_names_and_size(
    browser: WebDriver, server: WebServer, board: Board, looks: dict[str, Look], name: str, view: str
) -> None:
    board.show("default", name, *looks[name])
    resize(browser, view)
    drawn(browser, server, name, looks[name])
    looked_at(browser, view, name)
    said = moments.said(*looks[name])
    shown = browser.execute_script(
        "return [...document.querySelectorAll('.operator-head b')].map(b => b.textContent)"
    )
    assert sorted(shown) == sorted(operator["name"] for operator in said["graph"]["operators"])
    assert browser.find_element(By.ID, "down").is_displayed() == (
        said["queries"]["available"] < said["queries"]["total"]
    )
    assert complaints(browser) == []


def test_who_is_down_stands_above_the_graph_in_the_order_of_the_plan_with_its_time(
    browser: WebDriver, server: WebServer, board: Board, looks: dict[str, Look]
) -> None:
    board.show("default", "burst", *looks["burst"])
    drawn(browser, server, "burst", looks["burst"])
    resource, seen = looks["burst"]
    expected = upcoming(document(with_promises(resource), seen))
    said = plain(expected)
    script = "return [...document.querySelectorAll('#down-rows tr')].map(r => [...r.children].map(c => c.textContent))"
    rows = browser.execute_script(script)
    assert [row[1] for row in rows] == [entry["query"] for entry in said] and len(rows) > 5
    assert [row[0] for row in rows] == [str(place + 1) for place in range(len(rows))]
    assert all(entry["waits_for"] == row[7] for entry, row in zip(said, rows, strict=True))
    assert all("s" in row[4] for row in rows), "how long each has been down"
    assert text(browser, "next").startswith(f"Next: {expected[0].query} (priority ")
    enters = [entry.enters_at for entry in expected if entry.enters_at is not None]
    assert enters == sorted(enters)
    tops = browser.execute_script(
        "return ['down', 'topology'].map(id => document.getElementById(id).getBoundingClientRect().top)"
    )
    assert tops[0] < tops[1]
    first = expected[0].expected
    assert first.low is not None and first.high is not None
    assert " by " in rows[0][5] or "expected now" in rows[0][5]


def test_a_node_that_came_is_on_the_time_line_with_the_phases_of_its_start(
    browser: WebDriver, server: WebServer, board: Board, looks: dict[str, Look]
) -> None:
    board.show("default", "long-names", *looks["long-names"])
    drawn(browser, server, "long-names", looks["long-names"])
    entry = browser.find_element(By.XPATH, "//ol[@id='events']/li[b='node started']")
    assert "n11, in 5.8 s from requested: agent +0.6 s, heartbeat +0.7 s" in entry.text
    assert entry.text.endswith("ready +4.9 s, planned +5.0 s, work +5.8 s")
    widths = browser.execute_script(
        "return [...arguments[0].querySelectorAll('.start-phase')]"
        ".map(p => [p.dataset.phase, p.getBoundingClientRect().width])",
        entry,
    )
    assert max(widths, key=lambda part: part[1])[0] == "executor" and len(widths) == 8


def test_gaps_and_wishes_to_skip_are_at_the_query_and_at_the_incident(
    browser: WebDriver, server: WebServer, board: Board, view: str
) -> None:
    look = situations.skipped()
    board.show("default", "skipped", *look)
    resize(browser, view)
    drawn(browser, server, "skipped", look)
    said = moments.said(*look)
    incident, items = said["incident"], {q["id"]: q for q in said["queries"]["items"]}
    assert_shows(browser, said)
    first, second = incident["marked_spans"]
    taken, asked = (next(s for s in said["skips"] if s["taken"] is done) for done in (True, False))
    assert items[first]["gaps"] == [[7, 9], [31, 44], [50, 50]] and items[second]["gaps"] == [[33, 33]]
    cell = "//tbody[@id='query-rows']/tr[th//button[text()='{}']]/td[last()]"
    why = {q: browser.find_element(By.XPATH, cell.format(q)).get_attribute("textContent") for q in items}
    assert why[first].endswith("may lack rows in batches 7 to 9, 31 to 44, 50")
    assert why[second].endswith("may lack rows in batch 33")
    assert "begin anew" in why[taken["query"]] and "nobody has taken that up yet" in why[asked["query"]]
    assert sum("lack rows" in text for text in why.values()) == 2
    assert sum("without what it has missed" in text for text in why.values()) == 2
    down = """return Object.fromEntries([...document.querySelectorAll('#down-rows tr')]
        .map(r => [r.children[1].textContent, r.children[7].textContent]))"""
    waits = browser.execute_script(down)
    assert "begin anew" in waits[taken["query"]] and "nobody has taken that up yet" in waits[asked["query"]]
    assert [line.text for line in browser.find_elements(By.CSS_SELECTOR, "#wishes li")] == [
        f"{asked['query']} is to do without what it has missed; nobody has taken that up yet.",
        f"{taken['query']} does without what it has missed: {', '.join(taken['partitions'])} begin anew.",
    ]
    rows = browser.execute_script(
        "return [...document.querySelectorAll('#gaps tbody tr')].map(r => [...r.children].map(c => c.textContent))"
    )
    (began,) = incident["skipped_spans"]
    assert rows == [[first, "15", "31 to 44, 50"], [second, "1", "33"], [began, "12", "31 to 42"]]
    captions = [
        c.get_attribute("textContent") for c in browser.find_elements(By.CSS_SELECTOR, "#gaps caption")
    ]
    assert captions[0].startswith("16 batches of 2 queries may lack rows")
    browser.find_element(By.XPATH, f"//tbody[@id='query-rows']//button[text()='{first}']").click()
    until(browser, lambda d: f"Query {first}" in text(d, "detail"), "it is chosen")
    assert "may lack rows in batches 7 to 9, 31 to 44, 50; each is marked" in text(browser, "detail")
    looked_at(browser, view, "skipped")
    assert complaints(browser) == []


def test_where_nothing_is_lacking_and_nothing_is_asked_for_nothing_is_said_of_it(
    browser: WebDriver, server: WebServer, board: Board, looks: dict[str, Look]
) -> None:
    board.show("default", "burst", *looks["burst"])
    drawn(browser, server, "burst", looks["burst"])
    assert not any(browser.find_element(By.ID, name).is_displayed() for name in ("gaps", "wishes"))
    assert not browser.find_elements(By.CSS_SELECTOR, ".note")


@pytest.mark.parametrize(
    ("case", "promised"),
    [
        ("amnesia", "gap (amnesia of other)"),
        ("arbitrary", "precise, by checkpoint (not deterministic: other)"),
        ("own", "precise, perhaps by checkpoint (no word whether they are deterministic: other)"),
    ],
)
def test_each_output_says_what_is_promised_of_it(
    browser: WebDriver, server: WebServer, board: Board, case: str, promised: str
) -> None:
    """The least of all that it reads decides, and nothing else does."""
    look = situations.promises(case)
    board.show("default", "promises", *look)
    drawn(browser, server, "promises", look)
    fact = """return [...document.querySelectorAll('#detail .facts dt')].filter(t => t.textContent === 'output')
        .map(t => t.nextElementSibling.textContent)"""
    for query, said in {"even.0": "precise", "other.0": promised, "behind.0": promised}.items():
        browser.find_element(By.XPATH, f"//tbody[@id='query-rows']//button[text()='{query}']").click()
        until(browser, lambda d, q=query: f"Query {q}" in text(d, "detail"), "it is chosen")
        assert browser.execute_script(fact) == [said], query
    accessible(browser)


def test_each_partition_says_its_throughput_lag_checkpoint_and_error_with_units(
    browser: WebDriver, server: WebServer, board: Board, looks: dict[str, Look]
) -> None:
    board.show("default", "hundred", *looks["hundred"])
    drawn(browser, server, "hundred", looks["hundred"])
    browser.find_element(By.ID, "more-partitions").click()
    said = {p["id"]: p for p in moments.said(*looks["hundred"])["partitions"]}
    script = "return [...document.querySelectorAll('#partition-rows tr')].map(r => [...r.children].map(c => c.textContent))"
    rows: dict[str, list[Any]] = {row[0]: row for row in browser.execute_script(script)}
    assert rows.keys() == said.keys()
    for name, partition in said.items():
        row = rows[name]
        assert row[5] == ("1.2 k" if partition["input_rows_s"] else "–")
        assert row[6] == WATERMARKS[partition["watermark"], partition["input_ended"]]
        assert row[7] == (f"batch {partition['checkpoint']}" if partition["checkpoint"] else "none yet")
        assert row[9] == (
            partition["error"] or ("" if partition["state"] == "running" else partition["reason"])
        )
        if partition["lag_s"] is not None:
            assert row[4].startswith(str(partition["lag"])) and row[4].endswith(" s)")
    assert any(partition["error"] for partition in said.values())
    assert {row[6] for row in rows.values()} == set(WATERMARKS.values())
    assert "rows/s" in browser.find_element(By.CSS_SELECTOR, "#partitions thead").text


def test_three_topologies_in_one_list(
    browser: WebDriver, server: WebServer, board: Board, looks: dict[str, Look], view: str
) -> None:
    for name in ("calm", "burst"):
        board.show("default", name, *looks[name])
    resource, seen = looks["long-names"]
    board.show("payments-production-europe", resource.name, resource, seen)
    board.refuse("payments-production-europe", resource.name, WHY)
    resize(browser, view)
    browser.get(server.url)
    until(browser, lambda d: len(d.find_elements(By.CSS_SELECTOR, "#rows tr")) == 3, "all are listed")
    looked_at(browser, view, "three")
    assert f"its newest spec is refused: {WHY}" in text(browser, "rows") and resource.name in text(
        browser, "rows"
    )
    assert complaints(browser) == []


def test_an_empty_controller_says_so(browser: WebDriver, server: WebServer, view: str) -> None:
    resize(browser, view)
    browser.get(server.url)
    until(browser, lambda d: "looks after no topology" in d.find_element(By.ID, "none").text, "it says so")
    looked_at(browser, view, "empty")


def test_what_is_not_looked_after_is_no_green_page(
    browser: WebDriver, server: WebServer, board: Board, looks: dict[str, Look], view: str
) -> None:
    resize(browser, view)
    browser.get(f"{server.url}/t/default/nobody")
    until(browser, lambda d: d.find_element(By.ID, "phase").text == "not looked after here", "it says so")
    assert text(browser, "notice-words") == "nobody is not looked after here."
    assert browser.find_elements(By.CSS_SELECTOR, "main > .panel:not(.notice)")[0].is_displayed() is False
    assert [words for _, words in headings(browser)] == ["nobody"]
    colour = browser.execute_script("return getComputedStyle(document.getElementById('phase')).borderColor")
    green = browser.execute_script(
        "return getComputedStyle(document.documentElement).getPropertyValue('--running')"
    )
    assert colour != rgb(green)
    looked_at(browser, view, "nobody")
    board.show("default", "nobody", *looks["calm"])
    until(
        browser,
        lambda d: d.find_element(By.ID, "phase").text == "steady",
        "it is drawn as soon as it is known",
    )
    board.forget("default", "nobody")
    until(browser, lambda d: "any more" in d.find_element(By.ID, "notice-words").text, "it has gone")
    assert browser.find_element(By.ID, "headline").is_displayed()
    assert browser.execute_script("return document.body.dataset.old") == "true"


def rgb(colour: str) -> str:
    values = [int(colour.strip()[k : k + 2], 16) for k in (1, 3, 5)]
    return f"rgb({', '.join(map(str, values))})"


def test_a_refused_spec_is_said_with_its_reason(
    browser: WebDriver, server: WebServer, board: Board, looks: dict[str, Look], view: str
) -> None:
    board.refuse("default", "new", WHY)
    resize(browser, view)
    browser.get(f"{server.url}/t/default/new")
    until(browser, lambda d: d.find_element(By.ID, "phase").text == "refused", "it is refused")
    assert text(browser, "notice-words") == "Its spec is refused, so nothing of it was started."
    assert text(browser, "notice-help") == WHY
    assert not browser.find_element(By.ID, "now").is_displayed()
    looked_at(browser, view, "refused")
    board.show("default", "new", *looks["calm"])
    until(
        browser,
        lambda d: "stays in force" in d.find_element(By.ID, "notice-words").text,
        "an earlier one runs",
    )
    assert browser.find_element(By.ID, "phase").text == "steady"
    board.refuse("default", "new", "")
    until(browser, lambda d: not d.find_element(By.ID, "notice").is_displayed(), "the spec was repaired")


def test_a_lost_controller_dims_the_page_and_says_how_old_it_is(
    browser: WebDriver, board: Board, served: list[str], looks: dict[str, Look], view: str
) -> None:
    board.show("default", "burst", *looks["burst"])
    lost = WebServer(board, "127.0.0.1", 0)
    lost.start()
    served.append(lost.url)
    try:
        resize(browser, view)
        drawn(browser, lost, "burst", looks["burst"])
        bright = browser.execute_script("return getComputedStyle(document.getElementById('headline')).color")
    finally:
        lost.stop()
    until(
        browser,
        lambda d: d.find_element(By.ID, "notice-words").text == "The controller does not answer.",
        "it is told",
    )
    until(
        browser, lambda d: " s old: as of " in d.find_element(By.ID, "notice-age").text, "and how old it is"
    )
    first = age(browser)
    until(browser, lambda d: age(d) > first, "it grows")
    dim = browser.execute_script("return getComputedStyle(document.getElementById('headline')).color")
    assert dim != bright
    assert text(browser, "phase") == "waiting, as known last" and text(browser, "live") == "✕ no answer"
    assert browser.find_element(By.ID, "notice-words").get_attribute("role") == "alert"
    looked_at(browser, view, "dead-controller")


def age(browser: WebDriver) -> int:
    return int(browser.find_element(By.ID, "notice-age").text.split()[0])


def test_a_controller_that_has_stopped_looking_is_told_from_one_that_looks(
    browser: WebDriver, served: list[str], looks: dict[str, Look]
) -> None:
    now = [0.0]
    board = Board(lambda: now[0])
    board.show("default", "calm", *looks["calm"])
    server = WebServer(board, "127.0.0.1", 0)
    server.start()
    served.append(server.url)
    try:
        drawn(browser, server, "calm", looks["calm"])
        assert not browser.find_element(By.ID, "notice").is_displayed()
        now[0] = 95.0
        drawn(browser, server, "calm", looks["calm"])
        until(browser, lambda d: d.find_element(By.ID, "notice").is_displayed(), "it is old")
        assert "has not looked at this topology" in text(browser, "notice-words")
        assert text(browser, "notice-age").startswith("1 min 3")
    finally:
        server.stop()


def test_zookeeper_away_dims_what_was_known_last(
    browser: WebDriver, server: WebServer, board: Board, looks: dict[str, Look]
) -> None:
    resource, seen = looks["burst"]
    board.show("default", "burst", resource, replace(seen, connected=False))
    drawn(browser, server, "burst", (resource, seen))
    assert "ZooKeeper does not answer" in text(browser, "notice-words")
    assert browser.execute_script("return document.body.dataset.old") == "true"
    accessible(browser)


def test_on_a_phone_tables_are_cards_and_stay_tables_to_who_hears_them(
    browser: WebDriver, server: WebServer, board: Board, looks: dict[str, Look]
) -> None:
    board.show("default", "long-names", *looks["long-names"])
    resize(browser, "phone")
    drawn(browser, server, "long-names", looks["long-names"])
    tree = browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    roles = [node["role"]["value"] for node in tree if not node.get("ignored")]
    assert roles.count("table") >= 3 and roles.count("columnheader") >= 20 and roles.count("rowheader") >= 10
    named = json.dumps([node.get("name") for node in tree])
    assert all(name in named for name in situations.NAMES)
    card = browser.find_element(By.CSS_SELECTOR, "#down-rows tr")
    assert card.size["width"] <= 390
    titles = browser.execute_script(
        "return [...arguments[0].querySelectorAll('td')].map(c => getComputedStyle(c, '::before').content)",
        card,
    )
    assert '"priority"' in titles and '"why"' in titles
