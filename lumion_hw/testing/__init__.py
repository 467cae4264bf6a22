"""Test tools for users: an emulated bench as a pytest fixture, and a contract test suite for every interface.

The fixture ``bench`` is installed with the package and needs no import. The tests of a new driver subclass a contract;
:func:`wired` connects an emulated device by a wire that a test can cut and disturb. Import all names from this package;
its modules are private.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
