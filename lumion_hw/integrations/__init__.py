"""Benches as instruments of other frameworks (QCoDeS, bluesky with ophyd-async), and jobs of torchrun.

Each function needs an extra: ``pip install 'lumion-hw[qcodes]'``, ``[bluesky]`` or ``[rehearsal]`` (torch). Import from
this package; its modules are private.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
