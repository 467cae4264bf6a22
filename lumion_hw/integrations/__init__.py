"""Benches as instruments of other frameworks: QCoDeS, and bluesky with ophyd-async.

Each function needs an extra: ``pip install 'lumion-hw[qcodes]'`` or ``'lumion-hw[bluesky]'``. Import from this package;
its modules are private.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
