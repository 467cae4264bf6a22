"""What must be the same in the records of two runs that measured the same."""

from __future__ import annotations

import json

import numpy as np

from lumion_hw.mesh.record.calibration_record import CalibrationRecord


def content(record: CalibrationRecord) -> dict[str, object]:
    """Return all of a record but when it was made and what that cost; arrays to the last bit."""
    document = json.loads(record.to_json())
    for dated in ("created_utc", "record_id", "content_sha256"):
        del document[dated]
    for cost in ("cpu_s", "bench_s"):
        del document["quality"][cost]
    return document | {"arrays": {name: np.asarray(array).tobytes() for name, array in record.arrays.items()}}
