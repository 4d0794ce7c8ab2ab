"""Where wishes to skip stand, and which of them are new: each is taken once (`reprise.scheduler.skips`).

A wish stands in a znode under the query itself, which goes when it is taken, or in an annotation, which stays, as it belongs
to people.  Both may be there at once, and that one of them is taken must not let the other, which was taken long ago, seem
new: so each place has its own name, and `Desired.skips` the last id of each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from reprise.scheduler.model import SkipWish
from reprise.scheduler.steps import Step, TakeSkip

ANNOTATION = "annotation/"


def annotated(query: str) -> str:
    """Where a wish of an annotation stands."""
    return ANNOTATION + query


def query_of(place: str) -> str:
    """The query that the wish at a place is about."""
    return place.removeprefix(ANNOTATION)


def fresh(wishes: Mapping[str, SkipWish], taken: Mapping[str, str]) -> dict[str, SkipWish]:
    """Those that nobody has taken, by their place."""
    return {place: wish for place, wish in sorted(wishes.items()) if taken.get(place) != wish.id}


def pending(wishes: Mapping[str, SkipWish], taken: Mapping[str, str]) -> tuple[str, ...]:
    """Queries with a wish that nobody has taken."""
    return tuple(sorted({query_of(place) for place in fresh(wishes, taken)}))


def takes(places: Iterable[str]) -> tuple[Step, ...]:
    """The steps that take the wishes at these places, beside the desired state that has their ids."""
    return tuple(TakeSkip(place) for place in places if query_of(place) == place)


def void(wishes: Mapping[str, SkipWish]) -> tuple[dict[str, str], tuple[Step, ...]]:
    """What `Desired.skips` has, and what is done, where none of these is to be carried out ever: they are older than the
    first desired state, as an annotation is that nobody has removed, and what they were about was another loss."""
    return {place: wish.id for place, wish in wishes.items()}, takes(wishes)
