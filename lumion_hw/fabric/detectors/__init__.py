"""Failure detectors, which observe photodiodes, receivers, network carrier, processes, heartbeats or health commands.

A detector is a small class with its own options. It is registered as an entry point of the group
``lumion_hw.detectors`` and named in ``fabric.detectors`` of a bench file; other packages can register their own.
"""

from lumion_hw.fabric.detectors.kind import Detector, DetectorOptions, WatchTargets, create_detectors

__all__ = ["Detector", "DetectorOptions", "WatchTargets", "create_detectors"]
