"""Reads and checks bench files (YAML), and opens the devices in them.

Scripts use :class:`lumion_hw.Bench`. CONTRIBUTING.md describes how to add a kind of device. The modules of this package
are private.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
