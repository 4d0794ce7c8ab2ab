"""The annotation `reprise.dev/savepoint`: handed on to the driver once, also by the next operator."""

from __future__ import annotations

import pytest

from reprise.controller.crd.convert import SAVEPOINT, savepoints_annotation, savepoints_by_hand
from reprise.controller.zookeeper import paths
from reprise.controller.zookeeper.savepoint_records import (
    SavepointEntry,
    SavepointsRecord,
    encode_savepoints,
    parse_savepoints,
    parse_wish,
)
from reprise.spark_jobs.state.savepoint_wish import SavepointWish
from tests.unit.controller.operator.loop.test_skip_annotation import MemoryScene, scene  # noqa: F401  (a fixture)

TAKE, DELETE = SavepointWish("before", "001-a"), SavepointWish("older", "002-b", delete=True)


def annotate(scene: MemoryScene, *wishes: SavepointWish) -> None:  # noqa: F811
    value = savepoints_annotation(scene.body["metadata"]["uid"], wishes)
    meta = {**scene.body["metadata"], "annotations": {SAVEPOINT: value}}
    scene.body = {**scene.body, "metadata": meta}


def wishes(scene: MemoryScene) -> list[SavepointWish]:  # noqa: F811
    folder = f"{scene.root}/{paths.SAVEPOINT_WISHES}"
    return [
        parse_wish(scene.client.get(f"{folder}/{name}")[0], f"{folder}/{name}")
        for name in sorted(scene.client.get_children(folder))
    ]


def test_it_is_handed_on_once_though_it_stays_and_operators_come_and_go(scene: MemoryScene) -> None:  # noqa: F811
    one = scene.running()
    annotate(scene, TAKE, DELETE)
    scene.step(one)
    assert wishes(scene) == [TAKE, DELETE]
    record = SavepointsRecord((SavepointEntry("before", 12, 1.0, 5, TAKE.id),), {DELETE.id: ""})
    assert parse_savepoints(encode_savepoints(record)) == record
    scene.client.create(f"{scene.root}/{paths.SAVEPOINTS}", encode_savepoints(record))
    for wish in (TAKE, DELETE):  # the driver has carried them out
        scene.client.delete(f"{scene.root}/{paths.SAVEPOINT_WISHES}/{wish.id}")
    scene.step(one)
    assert wishes(scene) == []
    one.end()
    later = scene.operator(scene.connect())
    for _ in range(3):
        scene.step(later)
    assert wishes(scene) == [], "what came of it is known"
    again = SavepointWish("later", "003-c")
    annotate(scene, DELETE, again)
    scene.until(lambda: wishes(scene) == [again], "asked for one more", later)


@pytest.mark.parametrize(
    "value", ["before", "other.001-a=before", "uid-skip.=before", "uid-skip.1=", "uid-skip.1=-", ","]
)
def test_what_was_not_written_for_this_object_asks_for_nothing(scene: MemoryScene, value: str) -> None:  # noqa: F811
    assert savepoints_by_hand({"uid": "uid-skip", "annotations": {SAVEPOINT: value}}) == ()


def test_the_newest_wishes_are_kept() -> None:
    many = [SavepointWish(f"s{i}", f"{i:03}") for i in range(30)]
    value = savepoints_annotation("u", many)
    assert value is not None
    assert savepoints_by_hand({"uid": "u", "annotations": {SAVEPOINT: value}}) == tuple(many[10:])
    assert savepoints_annotation("u", []) is None
