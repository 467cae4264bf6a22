"""What fails, how often, and how long until it is replaced: at one rate, or by causes from a file."""

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
    """One kind of fault.

    Attributes:
        name: What fails.
        takes: Whether an accelerator alone is lost, or the server with all of its accelerators.
        per_accelerator_day: Faults per accelerator and day; those of servers are counted per accelerator as well.
        repair_days: Days until the part is back in service.
    """

    name: str
    scope: FaultScope
    per_accelerator_day: float
    repair_days: float

    def __post_init__(self) -> None:
        if self.scope not in _SCOPES:
            raise ConfigError(f"{self.name}: takes {self.scope!r}", hint="Give accelerator or server.")
        for what, value in (("faults per day", self.per_accelerator_day), ("days to repair", self.repair_days)):
            if not (math.isfinite(value) and value >= 0.0):
                raise ConfigError(f"{self.name}: {what} are zero or more and finite, found {value}")


@dataclass(frozen=True)
class Faults:
    """What has failed in a state.

    Attributes:
        per_rack: Least and most accelerators that have failed in every rack, drawn evenly, or ``None``.
        accelerator_unavailable: Otherwise: share of the time that an accelerator alone is lost.
        server_unavailable: Share of the time that a whole server is lost.
    """

    per_rack: tuple[int, int] | None = None
    accelerator_unavailable: float = 0.0
    server_unavailable: float = 0.0

    def __post_init__(self) -> None:
        for share in (self.accelerator_unavailable, self.server_unavailable):
            if not 0.0 <= share <= 1.0:
                raise ConfigError(f"a share of the time is between 0 and 1, found {share}")
        if self.per_rack is not None and not 0 <= self.per_rack[0] <= self.per_rack[1]:
            raise ConfigError(f"{self.per_rack[0]} to {self.per_rack[1]} failures in a rack", hint="Give least, most.")

    @classmethod
    def from_rate(cls, per_accelerator_day: float, repair_days: float, server_share: float, per_server: int) -> Faults:
        """Return the faults of a rate.

        Args:
            per_accelerator_day: Faults per accelerator and day, of all kinds.
            repair_days: Days until a part is replaced.
            server_share: Share of the faults that take the whole server.
            per_server: Accelerators of a server.
        """
        if not 0.0 <= server_share <= 1.0:
            raise ConfigError(f"a share of the faults is between 0 and 1, found {server_share}")
        alone = FaultRate("accelerators", "accelerator", per_accelerator_day * (1.0 - server_share), repair_days)
        server = FaultRate("servers", "server", per_accelerator_day * server_share, repair_days)
        return cls.from_causes((alone, server), per_server)

    @classmethod
    def from_causes(cls, causes: Iterable[FaultRate], per_server: int) -> Faults:
        """Return the faults of causes that strike independently of each other, each with its own time to repair.

        Args:
            causes: The causes.
            per_server: Accelerators of a server.
        """
        up = dict.fromkeys(_SCOPES, 1.0)
        for each in causes:
            per_day = each.per_accelerator_day * (per_server if each.scope == "server" else 1)
            up[each.scope] *= 1.0 - unavailable_share(per_day, each.repair_days)
        return cls(None, 1.0 - up["accelerator"], 1.0 - up["server"])


def read_causes(path: AnyPath) -> tuple[FaultRate, ...]:
    """Read causes of faults from a CSV file.

    In each line a name, ``accelerator`` or ``server``, faults per accelerator and day, days to repair; empty lines and
    lines that begin with ``#`` are left out.

    Raises:
        ConfigError: The file cannot be read, or holds something else; the message names the line.
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
        raise ConfigError(f"{path}: holds no cause of faults", hint=_HINT)
    return tuple(causes)


def _cause(cells: list[str], where: str) -> FaultRate:
    if len(cells) != 4:
        raise ConfigError(f"{where}: expected 4 entries, found {len(cells)}", hint=_HINT)
    name, scope, *numbers = cells
    kind = next((each for each in _SCOPES if each == scope), None)
    if kind is None:
        raise ConfigError(f"{where}: expected accelerator or server, found {scope[:40]!r}", hint=_HINT)
    try:
        per_day, days = (float(each) for each in numbers)
    except ValueError:
        raise ConfigError(f"{where}: expected two numbers, found {', '.join(numbers)[:60]!r}", hint=_HINT) from None
    try:
        return FaultRate(name, kind, per_day, days)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error.message}", hint=error.hint) from error
