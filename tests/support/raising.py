"""An operator whose code raises at a batch, each time that it is given that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reprise.spark_jobs.contract import Inbox, Kind, Place
from reprise.spark_jobs.operators import FlatMap


class RaisesAt(FlatMap):
    """`raises`: partition -> batch."""

    kind = Kind.CONVERGENT

    def __init__(self, explode: Sequence[str], select: Sequence[str], raises: Mapping[str, int]) -> None:
        super().__init__(explode, select)
        self.raises = raises
        self.partition = ""

    def initial(self, place: Place) -> Any:
        self.partition = place.partition
        return super().initial(place)

    def step(self, state: Any, inbox: Inbox) -> Any:
        if self.raises.get(self.partition) == inbox.batch:
            raise ValueError("cannot be parsed")
        return super().step(state, inbox)
