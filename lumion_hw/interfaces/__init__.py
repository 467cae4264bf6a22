"""What a device can do: one ``typing.Protocol`` per kind of device, with its value types.

Drivers implement these structurally; nothing here imports a driver. Every value carries its unit in its name, and a
reading is a number or an error, never a sentinel. The modules inside are private: users import from here. Each kind has
a suite in :mod:`lumion_hw.testing.contracts` that a lab's own driver is held to.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
