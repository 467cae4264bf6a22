"""The public names of a package, each imported from its module when it is first asked for.

Importing a package, or one module of it, then loads none of its other modules: numpy and scipy take half a second, and
commands that only print their help must not wait for them (docs/decisions/0001-foundation.md).
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def public_names(
    package: str, names: Mapping[str, tuple[str, ...]], packages: tuple[str, ...] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package (PEP 562).

    The package assigns them out of sight of type checkers, which would otherwise take any name for one that exists.
    It has ``__all__``, and imports the same names for type checkers; tests/testing/test_public_names.py compares.

    Args:
        package: Its ``__name__``.
        names: Public names by the module below the package that has them.
        packages: Packages below it that have public names of their own: shown, and imported when they are asked for.
    """
    module_of = {name: module for module, listed in names.items() for name in listed}

    def get(name: str) -> Any:
        if name in module_of:
            return getattr(importlib.import_module(f"{package}.{module_of[name]}"), name)
        if name in packages:
            return importlib.import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return get, lambda: sorted({*vars(sys.modules[package])["__all__"], *packages})
