"""lumion-hw: drivers, calibration, path set-up, recovery and an emulator for photonic-fabric benches.

``Bench.open(path)`` opens a bench of real devices; ``Bench.emulate(path, seed=...)`` emulates the same bench without
hardware. All errors are subclasses of ``LumionError``. ``dir(lumion_hw)`` lists the public names and sub-packages; all
other names are private.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

__version__ = "0.1.0"
