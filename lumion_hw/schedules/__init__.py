"""Schedules: sequences of circuits for collectives, job phases and measured traffic, and their durations.

The modules are private: import names from this package (docs/schedules.md).
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
