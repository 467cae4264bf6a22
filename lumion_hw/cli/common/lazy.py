"""Command groups that import a command only when it is called."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click

from lumion_hw.cli.common.own_packages import import_target
from lumion_hw.errors import name_hint


@dataclass(frozen=True)
class LazyCommand:
    """One command of a command group, imported on first use.

    Attributes:
        name: Name that the user types.
        target: ``module:attribute`` of the click command.
        short_help: Line in the help of the group.
    """

    name: str
    target: str
    short_help: str

    def load(self) -> click.Command:
        """Import the module and return its command.

        Raises:
            TypeError: The attribute is not a click command.
        """
        command = import_target(self.target)
        if not isinstance(command, click.Command):
            raise TypeError(f"{self.target} is not a click command")
        return command


class NamedGroup(click.Group):
    """A command group that suggests similar commands after a mistyped command."""

    other_programs: Sequence[str] = ()
    """Other programs of this package to suggest."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the subcommand named by the first argument.

        Raises:
            UsageError: The command does not exist; the message suggests similar commands.
        """
        name = args[0]
        if name not in self.list_commands(ctx) and not name.startswith("-") and not ctx.resilient_parsing:
            names = [*self.list_commands(ctx), *self.other_programs]
            ctx.fail(f"No such command {name!r}. {name_hint(name, names, 'The commands are')}")
        return super().resolve_command(ctx, args)


class LazyGroup(NamedGroup):
    """Command group defined by a table of :class:`LazyCommand`.

    Args:
        other_programs: Other programs of this package to suggest.
    """

    def __init__(
        self, *args: Any, table: Sequence[LazyCommand] = (), other_programs: Sequence[str] = (), **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.table = {row.name: row for row in table}
        self.other_programs = tuple(other_programs)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the command names in the order of the table."""
        return [*self.table, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command; ``None`` if it does not exist."""
        row = self.table.get(cmd_name)
        return row.load() if row else super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the command list of ``--help`` without importing the commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(row.name, row.short_help) for row in self.table.values()])
