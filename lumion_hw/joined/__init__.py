"""Circuits over several meshes that are joined by fibres; see docs/joined.md.

Start with :func:`load_joined` and :class:`JoinedMeshes`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
