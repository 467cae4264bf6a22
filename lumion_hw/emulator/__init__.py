"""The emulated bench: devices that speak the same bytes as the hardware, over one optical world, seed and clock.

``Bench.emulate`` makes them all. From here come single ones, the server that puts them on wires, and what an emulated
device of one's own is made of; the engine of SCPI instruments is :mod:`lumion_hw.emulator.scpi`. All other modules
inside are private.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
