"""Where the ``lumion-calibrate`` command begins: nothing is loaded before Ctrl-C is taken care of."""

from __future__ import annotations

from collections.abc import Sequence

from lumion_hw.cli import run


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code, as for ``lumion``; 3 means out of tolerance."""
    return run("calibration.cli:calibrate", "lumion-calibrate", args)
