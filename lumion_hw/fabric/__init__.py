"""Servers joined by light: jobs and their circuits, detection of failures, spares that stand by, and recovery.

The modules inside are private: users import from here.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
