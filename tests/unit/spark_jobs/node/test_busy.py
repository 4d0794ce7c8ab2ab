"""The note of what a host does: whole, and readable while a thread is inside of user code."""

from __future__ import annotations

import threading

from reprise.spark_jobs.node.busy import Activity, Note, Work


def test_work_is_said_with_its_operator_its_batch_and_how_long_it_takes() -> None:
    work = Work(Activity.STEP, "count", "count.3", 41, since=100.0)
    assert (
        work.describe(now=107.4)
        == "in operator count, partition count.3, batch 41 for 7 s (applying a batch)"
    )


def test_the_operator_of_a_name_with_dots_is_all_before_the_number() -> None:
    note = Note()
    note.begin(Activity.OUTPUT, "per.country.12", 5)
    found = note.describe()
    assert found is not None
    assert found.startswith(
        "in operator per.country, partition per.country.12, batch 5 for 0 s (waiting for its sink)"
    )


def test_there_is_a_note_only_while_something_is_done() -> None:
    note = Note()
    assert note.describe() is None
    note.begin(Activity.INSTALL, "a.0", 1)
    note.begin(Activity.FREEZE, "b.0", 2)
    found = note.describe()
    assert found is not None and "b.0" in found and "freezing its state" in found
    note.clear()
    assert note.describe() is None


def test_a_reader_sees_one_piece_of_work_and_never_half_of_two() -> None:
    note, mixed = Note(), list[str]()
    pairs = {"a": "1", "b": "2"}
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            for name, batch in pairs.items():
                note.begin(Activity.STEP, f"{name}.0", int(batch))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(2000):
            if (said := note.describe()) is not None:
                name = said.removeprefix("in operator ")[0]
                if f"partition {name}.0, batch {pairs[name]} " not in said:
                    mixed.append(said)
    finally:
        stop.set()
        thread.join()
    assert mixed == []
