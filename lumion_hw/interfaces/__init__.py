"""Device interfaces: one ``typing.Protocol`` per kind of device, with its value types.

Import from this package; its modules are private. :mod:`lumion_hw.testing.contracts` has tests that a driver must pass.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
