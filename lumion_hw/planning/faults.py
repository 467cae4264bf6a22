"""Faults of accelerators and servers: rates and repair times."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from lumion_hw.errors import ConfigError
from lumion_hw.files import AnyPath
from lumion_hw.files.reading import MEGABYTE, read_file
from lumion_hw.planning.spares import unavailable_share

FaultScope = Literal["accelerator", "server"]
_SCOPES: tuple[FaultScope, ...] = get_args(FaultScope)
_HINT = "Give lines of a name, accelerator or server, faults per accelerator and day, days to repair: docs/planning.md."


@dataclass(frozen=True)
class FaultRate:
    """Rate and repair time of one kind of fault.

    Attributes:
        name: Name of the part that fails.
        scope: Whether one accelerator is lost, or the server with all of its accelerators.
        per_accelerator_day: Faults per accelerator and day, also for faults of servers.
        repair_days: Days until the part is back in service.
    """

    name: str
    scope: FaultScope
    per_accelerator_day: float
    repair_days: float

    def __post_init__(self) -> None:
        if self.scope not in _SCOPES:
            raise ConfigError(f"{self.name}: unknown scope {self.scope!r}", hint="Give accelerator or server.")
        for quantity, value in (("faults per day", self.per_accelerator_day), ("days to repair", self.repair_days)):
            if not (math.isfinite(value) and value >= 0.0):
                raise ConfigError(f"{self.name}: {quantity} must be finite and at least 0, found {value}")


@dataclass(frozen=True)
class Faults:
    """Probability distribution of the failures in a fleet at one moment.

    Attributes:
        per_rack: Smallest and largest number of failed accelerators in every rack, drawn uniformly, or ``None``.
        accelerator_unavailable: Fraction of time that a single accelerator is lost; used if ``per_rack`` is ``None``.
        server_unavailable: Fraction of time that a whole server is lost; used if ``per_rack`` is ``None``.
    """

    per_rack: tuple[int, int] | None = None
    accelerator_unavailable: float = 0.0
    server_unavailable: float = 0.0

    def __post_init__(self) -> None:
        for share in (self.accelerator_unavailable, self.server_unavailable):
            if not 0.0 <= share <= 1.0:
                raise ConfigError(f"a fraction of time must be between 0 and 1, found {share}")
        if self.per_rack is not None and not 0 <= self.per_rack[0] <= self.per_rack[1]:
            raise ConfigError(
                f"the range of failures per rack is {self.per_rack[0]} to {self.per_rack[1]}",
                hint="Give the smallest and the largest number of failures per rack, such as 1,4.",
            )

    @classmethod
    def from_rate(cls, per_accelerator_day: float, repair_days: float, server_share: float, per_server: int) -> Faults:
        """Return the distribution of failures for one rate of all faults.

        Args:
            per_accelerator_day: Faults of all kinds per accelerator and day.
            repair_days: Days until a part is replaced.
            server_share: Fraction of the faults that affect a whole server.
            per_server: Accelerators per server.
        """
        if not 0.0 <= server_share <= 1.0:
            raise ConfigError(f"a fraction of faults must be between 0 and 1, found {server_share}")
        single_faults = FaultRate(
            "accelerators", "accelerator", per_accelerator_day * (1.0 - server_share), repair_days
        )
        server = FaultRate("servers", "server", per_accelerator_day * server_share, repair_days)
        return cls.from_causes((single_faults, server), per_server)

    @classmethod
    def from_causes(cls, causes: Iterable[FaultRate], per_server: int) -> Faults:
        """Return the distribution of failures for independent causes, each with its own rate and repair time."""
        up = dict.fromkeys(_SCOPES, 1.0)
        for cause in causes:
            per_day = cause.per_accelerator_day * (per_server if cause.scope == "server" else 1)
            up[cause.scope] *= 1.0 - unavailable_share(per_day, cause.repair_days)
        return cls(None, 1.0 - up["accelerator"], 1.0 - up["server"])


def read_causes(path: AnyPath) -> tuple[FaultRate, ...]:
    """Read causes of faults from a CSV file.

    Each line has a name, ``accelerator`` or ``server``, faults per accelerator and day, and days to repair; empty lines
    and lines that begin with ``#`` are ignored.

    Raises:
        ConfigError: The file cannot be read or has other content; the message names the line.
    """
    path = Path(path)
    try:
        lines = read_file(path, "causes of faults", max_bytes=MEGABYTE, hint=_HINT).decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: expected UTF-8 text", hint="Save the file as UTF-8.") from error
    causes = []
    for number, line in enumerate(lines, start=1):
        if line.strip() and not line.lstrip().startswith("#"):
            causes.append(_cause([cell.strip() for cell in next(csv.reader([line]))], f"{path}:{number}"))
    if not causes:
        raise ConfigError(f"{path}: the file holds no causes of faults", hint=_HINT)
    return tuple(causes)


def _cause(cells: list[str], where: str) -> FaultRate:
    if len(cells) != 4:
        raise ConfigError(f"{where}: expected 4 entries, found {len(cells)}", hint=_HINT)
    name, scope, *numbers = cells
    kind = next((scope_name for scope_name in _SCOPES if scope_name == scope), None)
    if kind is None:
        raise ConfigError(f"{where}: expected accelerator or server, found {scope[:40]!r}", hint=_HINT)
    try:
        per_day, days = (float(number) for number in numbers)
    except ValueError:
        raise ConfigError(f"{where}: expected two numbers, found {', '.join(numbers)[:60]!r}", hint=_HINT) from None
    try:
        return FaultRate(name, kind, per_day, days)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error.message}", hint=error.hint) from error
