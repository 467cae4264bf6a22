"""Bench files and open benches: a YAML file becomes a checked model, then open devices and their wiring.

Scripts open benches with :class:`lumion_hw.Bench`. This package provides functions that read, check and draft bench
files, and the classes with which other packages declare kinds of devices (CONTRIBUTING.md). Its modules are private.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
