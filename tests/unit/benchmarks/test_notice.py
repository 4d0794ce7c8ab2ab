"""What `make bench-notice` runs, and what it makes of the records of runs and of the times at which batches were shown."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from benchmarks import command, notice
from benchmarks.notice_figures import (
    ANNOUNCED,
    COLUMNS,
    UNANNOUNCED,
    Loss,
    fractions,
    loss_of,
    middle,
    stood_still,
    table,
    unavailable,
)
from reprise.controller.local.run.config import Outcome, RunConfig, RunResult
from reprise.spark_jobs.operators.local import run_local
from reprise.spark_jobs.topology import check

REPORT = {
    "zero": 100.0,
    "failure": 10.0,
    "incidents": [
        {"plans": [{"added": {"o0.0": "n1#1"}}, {"added": {"o0.0": "n3#1", "o1.0": "n3#1"}}]},
        {"plans": []},
    ],
    "series": {"elapsed": [0.0, 5.0, 10.0, 12.0, 14.0, 20.0], "share": [0.2, 1.0, 1.0, 0.5, 0.75, 1.0]},
}


def options(*more: str) -> argparse.Namespace:
    return notice._options(["--out", "out", *more])


def test_the_area_is_that_above_the_availability_from_the_fault_on() -> None:
    assert unavailable(REPORT, 10.0) == pytest.approx(2 * 0.5 + 6 * 0.25)
    assert unavailable(REPORT, 3.0) == pytest.approx(1 * 0.5)
    assert unavailable(REPORT, 90.0) == unavailable(REPORT, 10.0), "a stream that has ended is available"


def test_a_query_stands_still_from_the_fault_or_its_last_batch_to_its_next() -> None:
    writes = [
        {"query": q, "at": at} for q, at in [("a", 9.0), ("a", 11.0), ("a", 14.5), ("b", 13.0), ("b", 13.5)]
    ]
    assert stood_still(writes, 10.0) == pytest.approx(3.5)
    assert stood_still(writes[:1], 10.0) == 0.0


def test_the_nodes_that_are_lost_are_far_from_each_other_and_one_stays() -> None:
    assert notice.lost_nodes(8, 4) == ["n2", "n4", "n6", "n8"]
    assert notice.lost_nodes(8, 3) == ["n2", "n5", "n8"]
    assert notice.lost_nodes(4, 2) == ["n2", "n4"]
    for refused in ("0", "8"):
        with pytest.raises(SystemExit):
            options("--lose", refused)


def test_the_same_nodes_are_lost_with_and_without_notice() -> None:
    found = notice.variants(options("--notice", "7"))
    (resource, kill), (same, announced) = found[UNANNOUNCED], found[ANNOUNCED]
    assert len(found) == 2 and resource == same
    assert kill["kill"] == announced["notice"] and announced["for"] == 7.0
    assert kill["batch"] == announced["batch"]
    assert {operator.availability for operator in resource.operators} == {"checkpoint"}


@pytest.mark.parametrize("mode", notice.STANDBYS)
def test_with_standbys_the_most_valuable_queries_have_them_and_no_other_operator(mode: str) -> None:
    found = notice.variants(options("--standbys", mode))
    assert list(found) == [UNANNOUNCED, ANNOUNCED, f"{UNANNOUNCED}, {mode}", f"{ANNOUNCED}, {mode}"]
    resource, fault = found[f"{ANNOUNCED}, {mode}"]
    check(resource)
    assert fault == found[ANNOUNCED][1]
    assert {o.name for o in resource.operators if o.availability == mode} == {"parser", "o0", "o1", "o4"}
    top, _ = notice.most_valuable(resource)
    assert top == {"o0.0", "o4.0", "o1.0"}
    assert options("--standbys").standbys == notice.STANDBYS[0]


def test_states_are_larger_by_what_is_asked_for_and_outputs_are_the_same() -> None:
    (heavy, _) = notice.variants(options("--state-mb", "3", "--rate", "20"))[UNANNOUNCED]
    (usual, _) = notice.variants(options("--rate", "20"))[UNANNOUNCED]
    check(heavy)
    weights = {o.name: o.parameters.get("megabytes") for o in heavy.operators}
    assert weights == {"parser": None, **{f"o{k}": 3 for k in range(15)}}
    for mine, other in zip(run_local(heavy, 14), run_local(usual, 14), strict=True):
        assert mine == other
    with pytest.raises(SystemExit):
        options("--state-mb", "-1")


def test_figures_of_an_earlier_version_do_not_say_what_plans_restored() -> None:
    (row,) = table("", [Loss(1, ANNOUNCED, "done", lost_s=1.0, same=True)]).rows
    assert row[COLUMNS.index("restored by plans")] == "-"


def run_of(out: Path, **more: Any) -> RunResult:
    (out / "logs").mkdir(parents=True)
    (out / "sink" / "o0" / "0").mkdir(parents=True)
    (out / "sink" / "o0" / "0" / "batch-00000001.jsonl").write_text("{}\n")
    writes = [{"query": "o0.0", "at": at} for at in (109.0, 111.0, 112.0)]
    writes += [{"query": "o9.0", "at": at} for at in (110.0, 116.0)]
    (out / "events.jsonl").write_text("".join(json.dumps(write) + "\n" for write in writes))
    decided = ("moved ", "moves-over ", "moved ", "move-prepared ")
    (out / "logs" / "coordinator.log").write_text("".join(f"event=decided rule={d}x\n" for d in decided))
    promoted = "".join(
        f"event=standby-promoted partition={p} node=n1 position=3\n" for p in ("o0.0", "o1.0", "o0.0")
    )
    (out / "logs" / "driver.log").write_text(promoted)
    return RunResult(outcome=Outcome.DONE, out=out, record={}, incident=REPORT, **more)


def test_a_run_says_what_was_lost_what_moved_and_what_was_promoted(tmp_path: Path) -> None:
    found = loss_of(2, ANNOUNCED, run_of(tmp_path), 10.0, {"o0.0"}, True)
    assert found == Loss(
        2, ANNOUNCED, "done", lost_s=2.5, still_s=6.0, top_still_s=1.0, incidents=2, moved=2, promoted=2, restored=2,
        same=True,
    )  # fmt: skip


def test_a_run_that_came_to_no_end_has_no_figures(tmp_path: Path) -> None:
    result = RunResult(outcome=Outcome.TIMEOUT, out=tmp_path, record={}, reason="after 600 s")
    found = loss_of(1, ANNOUNCED, result, 10.0, set(), True)
    assert (found.outcome, found.lost_s, found.same) == ("timeout after 600 s", None, False)
    (row,) = table("", [found]).rows
    assert row[1:5] == ("-", "-", "-", "-") and row[-2:] == ("**no**", "1")


def test_fractions_are_of_runs_that_followed_each_other() -> None:
    found = [
        Loss(1, UNANNOUNCED, "done", lost_s=10.0, same=True),
        Loss(1, ANNOUNCED, "done", lost_s=1.0, same=True),
        Loss(2, UNANNOUNCED, "done", lost_s=2.0, same=True),
        Loss(2, ANNOUNCED, "done", lost_s=1.0, same=True),
        Loss(3, ANNOUNCED, "done", lost_s=9.0, same=True),
    ]
    assert fractions(ANNOUNCED, found) == [0.1, 0.5]
    unannounced, announced = table("", found).rows
    assert unannounced[:3] == (UNANNOUNCED, "6.00 (2.00 to 10.00)", "1.00")
    assert announced[:3] == (ANNOUNCED, "1.00 (1.00 to 9.00)", "0.30 (0.10 to 0.50)")
    assert announced[-2:] == ("yes", "3")


def test_a_median_stands_alone_where_no_value_differs_from_it() -> None:
    assert middle([2.0, 2.001, None], 1) == "2.0"
    assert middle([], 1) == "-"


@pytest.mark.parametrize(
    ("state_mb", "place"), [(None, notice.FIGURES), (0, notice.FIGURES), (48, notice.HEAVY_FIGURES)]
)
def test_figures_of_several_invocations_are_put_into_a_document(
    tmp_path: Path, state_mb: int | None, place: str
) -> None:
    files = []
    for number, cost in enumerate((1.0, 3.0)):
        runs = [
            Loss(1, UNANNOUNCED, "done", lost_s=10.0, same=True),
            Loss(1, ANNOUNCED, "done", lost_s=cost, same=True),
        ]
        saved = {"conditions": f"Taken so, {number}.", "runs": [asdict(run) for run in runs]}
        saved |= {"state_mb": state_mb} if state_mb is not None else {}
        files.append(tmp_path / f"notice-{number}.json")
        files[-1].write_text(json.dumps(saved))
    document, (begin, end) = tmp_path / "figures.md", command.marks(place)
    document.write_text(f"before\n{begin}\nold\n{end}\nafter\n")
    for _ in range(2):
        given = ["--from", *map(str, files), "--write", str(document)]
        assert notice.main(given) == 0
    text = document.read_text()
    assert text.startswith(f"before\n{begin}\n\nTaken so, 0.\nTaken so, 1.\n\n")
    assert text.endswith(f"\n{end}\nafter\n") and "old" not in text
    assert "| with notice | 2.00 (1.00 to 3.00) | 0.20 (0.10 to 0.30) |" in text
    other = tmp_path / "other.json"
    other.write_text(json.dumps({"conditions": "", "state_mb": 7, "runs": []}))
    with pytest.raises(ValueError, match="are not put into one table"):
        notice.main(["--from", str(files[0]), str(other), "--write", str(document)])
    assert document.read_text() == text


class Stub:
    """A cluster of which nothing is asked."""

    def __init__(self, config: object) -> None:
        self.config = config

    def __enter__(self) -> Stub:
        return self

    def __exit__(self, *_: object) -> None:
        return None


def test_all_runs_follow_each_other_and_what_was_measured_is_there_when_one_is_broken_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = list[RunConfig]()

    def run(config: RunConfig, *_: object) -> RunResult:
        begun.append(config)
        if len(begun) == 6:
            raise KeyboardInterrupt
        return run_of(config.out)

    monkeypatch.setattr(notice, "EmbeddedCluster", Stub)
    monkeypatch.setattr(notice, "run_topology", run)
    monkeypatch.setattr(command, "begin", lambda out: out.mkdir())
    out = tmp_path / "out"
    given = ["--out", str(out), "--standbys", "--repeat", "2", "--batch", "40", "--batches", "60"]
    with pytest.raises(KeyboardInterrupt):
        notice.main(given)
    assert [config.faults[0].action for config in begun] == ["kill", "notice"] * 3
    assert len({config.out for config in begun}) == len(begun)
    conditions, found = notice.read([out / "notice.json"])
    assert "over 10 s from the fault on" in conditions[0]
    assert [(one.repeat, one.loss) for one in found] == [
        (1, UNANNOUNCED),
        (1, ANNOUNCED),
        (1, f"{UNANNOUNCED}, active-standby"),
        (1, f"{ANNOUNCED}, active-standby"),
        (2, UNANNOUNCED),
    ]
    assert all(one.lost_s == 2.5 and one.same for one in found)
