"""Both formats say the same; JSON keeps values, and ids are in every line of the thread that is about them."""

from __future__ import annotations

import io
import json
import logging
import threading
import time
from collections.abc import Iterator

import pytest

from reprise.controller import logs

log = logging.getLogger("reprise.test")


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """What is logged; the root logger is put back afterwards."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    yield io.StringIO()
    root.handlers[:] = before
    root.setLevel(level)
    logs.about(topology=None, incident=None, plan=None)


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_fields_keep_the_values_of_their_arguments(stream: io.StringIO) -> None:
    logs.setup("json", stream=stream)
    log.info("event=decided seq=%d reason=%r plan=%s share=%.1f done=%s", 3, "a 'b' c=d", "-", 0.25, None)
    (line,) = lines(stream)
    assert (line["event"], line["seq"], line["reason"], line["done"]) == ("decided", 3, "a 'b' c=d", None)
    assert line["share"] == 0.25
    assert "plan" not in line and "message" not in line
    assert (line["level"], line["logger"]) == ("INFO", "reprise.test")


@pytest.mark.parametrize(
    ("template", "arguments", "words", "found"),
    [
        ("problem %s", ("no space",), "problem no space", {}),
        ("job failed job=%d reason=%s", (7, "x"), "job failed", {"job": 7, "reason": "x"}),
        ("%s waits for=%s", ("p", "rows"), "p waits", {"for": "rows"}),
        ("load=%d%% at=%s:%d", (80, "h", 1), "", {"load": "80%", "at": "h:1"}),
        ("no fields, 100 %% plain", (), "no fields, 100 % plain", {}),
        ("list=%s", ([1, 2],), "", {"list": "[1, 2]"}),
    ],
)
def test_words_and_fields(
    template: str, arguments: tuple[object, ...], words: str, found: dict[str, object]
) -> None:
    assert logs.fields(template, arguments) == (words, found)


def test_ids_are_in_every_line_of_this_thread_alone(stream: io.StringIO) -> None:
    logs.setup("json", stream=stream)
    logs.about(topology="a/b", incident="inc-1", plan="inc-1-p1")
    log.warning("plain words")
    other = threading.Thread(target=log.warning, args=("event=elsewhere",))
    other.start()
    other.join()
    logs.about(incident=None, plan=None)
    log.warning("event=over")
    about, elsewhere, over = lines(stream)
    assert (about["topology"], about["incident"], about["plan"]) == ("a/b", "inc-1", "inc-1-p1")
    assert "incident" not in elsewhere
    assert over["topology"] == "a/b" and "incident" not in over


def test_text_names_an_id_once(stream: io.StringIO) -> None:
    logs.setup("text", stream=stream)
    logs.about(incident="inc-1", plan="inc-1-p2")
    log.info("event=plan plan=%s", "inc-1-p2")
    assert stream.getvalue().rstrip().endswith("INFO reprise.test event=plan plan=inc-1-p2 incident=inc-1")


def test_the_time_of_a_line_is_in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    record = logging.LogRecord("reprise", logging.INFO, "", 0, "event=x", (), None)
    record.created, record.msecs = 1_767_225_600.25, 250.0
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        assert logs.TextFormatter(logs.TEXT).format(record).startswith("2026-01-01 00:00:00.250Z INFO ")
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_traceback_is_one_line_of_json(stream: io.StringIO) -> None:
    logs.setup("json", stream=stream)
    try:
        raise ValueError("no sevens")
    except ValueError:
        log.exception("event=turn-failed")
    (line,) = lines(stream)
    assert line["event"] == "turn-failed"
    assert "ValueError: no sevens" in str(line["exception"])


def test_the_environment_decides_where_nobody_else_does(
    stream: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(logs.VARIABLE, "json")
    logs.setup(stream=stream, quiet=("reprise.noisy",))
    logging.getLogger("reprise.noisy").info("event=nothing")
    log.info("event=something")
    assert [line["event"] for line in lines(stream)] == ["something"]
