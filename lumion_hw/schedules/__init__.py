"""Schedules: sequences of circuits for collectives, phases of a job and measured demand, with their costs.

The modules are private: import names from this package (docs/schedules.md).
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
