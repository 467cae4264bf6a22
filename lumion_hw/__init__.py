"""lumion-hw: drivers, calibration, path set-up, recovery and an emulator for photonic-fabric benches.

``Bench.open(path)`` opens a bench of real devices, ``Bench.emulate(path, seed=...)`` the same file without hardware.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lumion_hw.bench.bench import Bench

__version__ = "0.1.0"
__all__ = ["Bench", "__version__"]


def __getattr__(name: str) -> Any:
    """Import the bench room only when it is asked for: importing the package stays fast."""
    if name == "Bench":
        from lumion_hw.bench.bench import Bench

        return Bench
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
