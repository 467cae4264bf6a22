"""The base class of the parameter types of the commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    ParameterType = click.ParamType
else:

    class ParameterType(click.ParamType):
        """A click parameter type that takes the type of its value in brackets; click's own does from 8.4 on."""

        def __class_getitem__(cls, item: object) -> type:
            """Return the class itself: the type of the value is for type checkers."""
            return cls
