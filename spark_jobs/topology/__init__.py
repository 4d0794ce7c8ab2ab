"""The topology model: from a StreamTopology resource to partitions, edges, queries and routes.

`load_topology` reads and checks a YAML file; `expand` gives the partition graph; `make_operator` and
`make_source` build the user's classes; `route` splits an output over the partitions of an edge; `to_json` and
`from_json` carry a resource to executors.
"""

from reprise.spark_jobs.topology.binding import is_deterministic, make_operator, make_sink, make_source
from reprise.spark_jobs.topology.check import SpecWarning, check
from reprise.spark_jobs.topology.graph import Downstream, Partition, Query, Topology, Upstream, expand
from reprise.spark_jobs.topology.load import load_text, load_topology
from reprise.spark_jobs.topology.parse import from_json, from_object, override, to_json
from reprise.spark_jobs.topology.resource import (
    Grouping,
    InputSpec,
    Mode,
    OperatorSpec,
    OutputSpec,
    SinkSpec,
    SourceSpec,
    StreamTopology,
)
from reprise.spark_jobs.topology.routing import RoutingError, route, split
from reprise.spark_jobs.topology.schema import json_schema

__all__ = [
    "Downstream",
    "Grouping",
    "InputSpec",
    "Mode",
    "OperatorSpec",
    "OutputSpec",
    "Partition",
    "Query",
    "RoutingError",
    "SinkSpec",
    "SourceSpec",
    "SpecWarning",
    "StreamTopology",
    "Topology",
    "Upstream",
    "check",
    "expand",
    "from_json",
    "from_object",
    "is_deterministic",
    "json_schema",
    "load_text",
    "load_topology",
    "make_operator",
    "make_sink",
    "make_source",
    "override",
    "route",
    "split",
    "to_json",
]
