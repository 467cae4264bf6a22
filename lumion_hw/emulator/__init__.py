"""The emulated bench: devices that exchange the same bytes as the hardware and share one optical model."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
