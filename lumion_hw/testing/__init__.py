"""Test tools for users: an emulated bench as a pytest fixture, and contract tests for drivers of every interface.

The fixture ``bench`` needs no import. To test a new driver, subclass a contract. :func:`wired` connects an emulated
device by a wire that a test can disturb. Import from this package; its modules are private.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
