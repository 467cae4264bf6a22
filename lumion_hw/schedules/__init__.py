"""Schedules: sequences of circuits for collectives, for phases of a job and for measured demand, and what they cost.

The modules inside are private: users import from here (docs/schedules.md).
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
