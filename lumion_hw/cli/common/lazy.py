"""Command groups that know their commands by name and load a command only when it is called."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click

from lumion_hw.cli.common.own_packages import imported
from lumion_hw.errors import name_hint


@dataclass(frozen=True)
class LazyCommand:
    """One row of a command table.

    Attributes:
        name: What the user types.
        target: ``module:attribute`` of the click command.
        short_help: One line for the group's help, so that the help loads nothing.
    """

    name: str
    target: str
    short_help: str

    def load(self) -> click.Command:
        """Import the module and return its command.

        Raises:
            TypeError: The attribute is not a click command.
        """
        command = imported(self.target)
        if not isinstance(command, click.Command):
            raise TypeError(f"{self.target} is not a click command")
        return command


class NamedGroup(click.Group):
    """A group that answers a mistyped command with the closest ones."""

    other_programs: Sequence[str] = ()
    """Programs of this package that a user may look for among the commands."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the arguments name.

        Raises:
            UsageError: It does not exist; the message names the closest commands of the table.
        """
        name = args[0]
        if name not in self.list_commands(ctx) and not name.startswith("-") and not ctx.resilient_parsing:
            names = [*self.list_commands(ctx), *self.other_programs]
            ctx.fail(f"No such command {name!r}. {name_hint(name, names, 'The commands are')}")
        return super().resolve_command(ctx, args)


class LazyGroup(NamedGroup):
    """A group made from a table of :class:`LazyCommand`.

    Args:
        table: The commands.
        other_programs: Programs of this package that a user may look for among the commands.
    """

    def __init__(
        self, *args: Any, table: Sequence[LazyCommand] = (), other_programs: Sequence[str] = (), **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.table = {row.name: row for row in table}
        self.other_programs = tuple(other_programs)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order of the table."""
        return [*self.table, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load and return a command, or ``None`` if there is none of this name."""
        row = self.table.get(cmd_name)
        return row.load() if row else super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands of the table, from the table alone."""
        with formatter.section("Commands"):
            formatter.write_dl([(row.name, row.short_help) for row in self.table.values()])
