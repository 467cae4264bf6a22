"""The bench file and what it opens: YAML to a checked model, to connected devices and their wiring.

Scripts open benches with :class:`lumion_hw.Bench`. From here they import what reads, checks and drafts bench files, and
packages of others what a kind of device is declared with (CONTRIBUTING.md). The modules inside are private.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
