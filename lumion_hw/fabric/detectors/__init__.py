"""Failure detectors, which observe photodiodes, receivers, network carrier, processes, heartbeats or health commands.

Other packages can register detectors as entry points of the group ``lumion_hw.detectors``; bench files name them in
``fabric.detectors``.
"""

from lumion_hw.fabric.detectors.kind import Detector, DetectorOptions, WatchTargets, create_detectors

__all__ = ["Detector", "DetectorOptions", "WatchTargets", "create_detectors"]
