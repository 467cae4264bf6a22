"""lumion-hw: drivers, calibration, path set-up, recovery and an emulator for photonic-fabric benches.

``Bench.open(path)`` opens a bench of real devices, ``Bench.emulate(path, seed=...)`` the same file without hardware.
Everything it raises is a ``LumionError``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lumion_hw.bench.bench import Bench
    from lumion_hw.errors import LumionError
    from lumion_hw.mesh.record import CalibrationRecord
    from lumion_hw.storage import load_record, save_record

__version__ = "0.1.0"
__all__ = ["Bench", "CalibrationRecord", "LumionError", "__version__", "load_record", "save_record"]
_HOME = {
    "Bench": "bench.bench",
    "CalibrationRecord": "mesh.record",
    "LumionError": "errors",
    "load_record": "storage",
    "save_record": "storage",
}


def __getattr__(name: str) -> Any:
    """Import a room only when something of it is asked for: importing the package stays fast."""
    if name in _HOME:
        return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names, which completion shows."""
    return sorted({*globals(), *__all__})
