"""Files that are installed with the code: examples, what `reprise init` writes, the chart, the CRDs, and the runbooks.

In the repository they are links to the folders in which these files are kept; nothing here is imported.
"""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent
EXAMPLES = FOLDER / "examples"
START = FOLDER / "start"
CHART = FOLDER / "charts" / "reprise"
CRDS = FOLDER / "crds"
RUNBOOKS = FOLDER / "runbooks"
