"""One topology now, as one document: what the command line, the kubectl plugin and the web page all show.

The law of this package: pure, and from records alone.  `document(topology, observation)` is all there is to know, so two
places that show the same moment cannot disagree.  It holds ids, numbers, states and reasons, and nothing of the settings of
classes, connectors or Spark: no secret can be in it.  Every field is described in docs/status-document.md.
"""

from reprise.controller.status.build import document
from reprise.controller.status.model import StatusDocument
from reprise.controller.status.parse import DocumentError, parse_document
from reprise.controller.status.plain import plain
from reprise.controller.status.records import observation, records

__all__ = [
    "DocumentError",
    "StatusDocument",
    "document",
    "observation",
    "parse_document",
    "plain",
    "records",
]
