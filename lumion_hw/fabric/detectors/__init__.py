"""What notices failures: light at photodiodes and receivers, network carrier, processes, heartbeats, commands.

A detector is a small class with options of its own, registered as an entry point of the group ``lumion_hw.detectors``
and named in ``fabric.detectors`` of a bench file. Those of other packages are registered in the same way.
"""

from lumion_hw.fabric.detectors.kind import Detector, DetectorOptions, WatchTargets, create_detectors

__all__ = ["Detector", "DetectorOptions", "WatchTargets", "create_detectors"]
