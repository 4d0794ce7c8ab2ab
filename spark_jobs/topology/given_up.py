"""What sources and sinks give up by settings of theirs, whatever the operators between them promise.

Their classes declare it (`gives_up`), so it is known of a resource without a connection and without an instance.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from reprise.spark_jobs.topology.binding import resolve
from reprise.spark_jobs.topology.class_path import of_library
from reprise.spark_jobs.topology.resource import StreamTopology


def given_up(resource: StreamTopology, own_code: bool) -> dict[str, tuple[str, ...]]:
    """Sources, and operators with a sink -> what their settings give up, for people.  `own_code`: whether classes that are
    not of the library may be imported here and asked, too."""
    named = [(source.name, source.class_path, source.parameters) for source in resource.sources]
    named += [
        (o.name, o.output.sink.class_path, o.output.sink.parameters)
        for o in resource.operators
        if o.output is not None and o.output.sink is not None
    ]
    return {
        name: found
        for name, class_path, parameters in named
        if (own_code or of_library(class_path)) and (found := tuple(_settings(name, class_path, parameters)))
    }


def _settings(name: str, class_path: str, parameters: Mapping[str, Any]) -> Iterator[str]:
    try:
        cls = resolve(class_path)
    except ValueError:  # whoever makes an instance says what is wrong
        return
    defaults = {p.name: p.default for p in inspect.signature(cls).parameters.values()}
    for parameter, values in getattr(cls, "gives_up", {}).items():
        value = parameters.get(parameter, defaults.get(parameter))
        if isinstance(value, str) and value in values:
            yield f"{parameter}: {value} of {name}, {values[value]}"
