"""Device interfaces: one ``typing.Protocol`` per kind of device, with its value types.

Drivers implement these protocols structurally; nothing here imports a driver. Every name of a value includes its unit,
and a reading is a number or an error, never a sentinel. Import from this package; its modules are private. For each
interface, :mod:`lumion_hw.testing.contracts` has tests that a driver must pass.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
