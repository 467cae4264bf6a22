"""Base class of the parameter types of the commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    ParameterType = click.ParamType
else:

    class ParameterType(click.ParamType):
        """Click parameter type that can be subscripted with the type of its value."""

        def __class_getitem__(cls, item: object) -> type:
            """Return the class itself; the value type is only for type checkers."""
            return cls
