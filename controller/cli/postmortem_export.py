"""Writing a post-mortem into a folder: Markdown, pictures, and the records it was made from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from reprise.controller.analysis.postmortem.counterfactual import counterfactuals
from reprise.controller.analysis.postmortem.markdown import markdown
from reprise.controller.analysis.postmortem.pictures import draw
from reprise.controller.analysis.postmortem.story import Story
from reprise.controller.errors import ReportError
from reprise.controller.local.report.layout import write_atomically
from reprise.controller.status.model import AvailabilityPoint
from reprise.controller.zookeeper.recovery_records import encode_incident, encode_plan


def export(story: Story, curve: Sequence[AvailabilityPoint], folder: Path) -> list[Path]:
    """Files of the post-mortem, the page first.  `curve`: availability over time.  ReportError when it cannot be written."""
    otherwise = counterfactuals(story)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        plots = draw(story, curve, otherwise, folder)
        page = folder / f"{story.incident.id}.md"
        write_atomically(page, markdown(story, otherwise, plots))
        raw = {
            "incidents": [json.loads(encode_incident(story.incident))],
            "plans": [json.loads(encode_plan(plan)) for plan in story.plans],
        }
        write_atomically(folder / "plans.json", json.dumps(raw, indent=1) + "\n")
    except OSError as error:
        raise ReportError(f"{folder}: not written: {error.strerror or error}") from error
    except ValueError as error:  # a planner's answer is kept as it is, whatever stands in it
        raise ReportError(f"{story.incident.id}: its records cannot be written: {error}") from error
    return [page, *(folder / name for name in plots), folder / "plans.json"]
