"""The files that a demo run writes."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

_CONTENTS = {
    "report": "all figures: circuits, link budgets, recovery",
    "calibration_report": "the calibration in detail, with maps of the mesh",
    "picture": "the mesh with its circuits after the recovery",
    "picture_before": "the mesh with its circuits before the fault",
    "timeline": "the steps of the recovery",
    "calibration": "the calibration record, for lumion connect and others",
    "events": "every event of the run",
}
"""Contents of the files, in the order of interest."""


@dataclass(frozen=True)
class Artifacts:
    """The files that a run writes.

    Attributes:
        events: Event log, JSON lines.
        picture_before: Figure of the mesh with the paths before the server was replaced.
        picture: Figure of the mesh: at first without paths, at the end with the paths after the replacement.
        timeline: Figure of the steps of the replacement.
        calibration_report: Report of the calibration, with maps of the mesh.
    """

    calibration: Path
    events: Path
    picture_before: Path
    picture: Path
    timeline: Path
    report: Path
    calibration_report: Path

    @classmethod
    def in_directory(cls, directory: Path) -> Artifacts:
        """Return the paths of the files in a run directory."""
        return cls(
            directory / "calibration.json",
            directory / "events.jsonl",
            directory / "mesh-before.svg",
            directory / "mesh.svg",
            directory / "timeline.svg",
            directory / "report.md",
            directory / "calibration-report.html",
        )

    def document(self) -> dict[str, str]:
        """Return the paths by name, for JSON."""
        return {field.name: str(getattr(self, field.name)) for field in fields(self)}

    def contents(self) -> list[tuple[str, str]]:
        """Return the file names, each with a description."""
        return [(getattr(self, name).name, text) for name, text in _CONTENTS.items()]
