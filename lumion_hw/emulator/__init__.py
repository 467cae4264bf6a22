"""The emulated bench: devices that exchange the same bytes as the hardware and share one optical model.

``Bench.emulate`` creates all devices of a bench. This package exports single emulated devices, the server that connects
them to TCP ports and serial lines, and the base classes for further emulated devices. The engine of SCPI instruments is
:mod:`lumion_hw.emulator.scpi`. All other modules of this package are private.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
