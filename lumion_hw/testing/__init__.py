"""For those who test: an emulated bench as a pytest fixture, and the promises of every interface as test suites.

The fixture ``bench`` comes with the package and needs no import. Drivers of new instruments subclass a contract;
:func:`wired` puts an emulated device behind a wire that can be cut and disturbed. The modules inside are private: users
import from here.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
