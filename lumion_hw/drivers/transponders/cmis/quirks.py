"""What a module does differently, by option: found by its identity, or told by the user."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field
from typing import Any, Literal

from lumion_hw.interfaces import TransponderIdentity


@dataclass(frozen=True)
class Quirks:
    """Deviations of a module from the standard, or choices that the standard leaves open.

    Attributes:
        inverted_deinit: 10h:128 means "power the data path up", as in CMIS 3.
        power_request: What asks for low power: ``software`` sets LowPwrRequestSW; ``pin`` only allows the pin to ask,
            for boards that hold the pin of a module that ignores the bit.
        tunes_while_active: The laser may be retuned while the data path is active.
        decommission: Lanes of another data path are first put out of use with application 0.
        tx_disable_all: Tx disable is written for all eight media lanes, whichever are used.
        settle_after_apply_s: How long an old result may stand in ConfigStatus after an apply.
        freeze: Statistics are frozen while they are read; ``False`` for a module whose freeze does not work.
        time_factor: Factor on all advertised durations, for a module that takes longer than it says.
    """

    inverted_deinit: bool = False
    power_request: Literal["software", "pin"] = "software"
    tunes_while_active: bool = False
    decommission: bool = True
    tx_disable_all: bool = False
    settle_after_apply_s: float = 0.5
    freeze: bool = True
    time_factor: float = 1.0


@dataclass(frozen=True)
class KnownModule:
    """One row of the table: whom it is about, what is different, and how that is known."""

    vendor: str = ".*"
    part_number: str = ".*"
    from_revision: tuple[int, int] = (0, 0)
    below_revision: tuple[int, int] = (16, 0)
    changes: dict[str, Any] = field(default_factory=dict)
    reason: str = ""

    def fits(self, identity: TransponderIdentity, revision: tuple[int, int]) -> bool:
        """Tell whether a module is one of these."""
        by_name = re.fullmatch(self.vendor, identity.vendor) and re.fullmatch(self.part_number, identity.part_number)
        return bool(by_name) and self.from_revision <= revision < self.below_revision


KNOWN_MODULES: tuple[KnownModule, ...] = (
    KnownModule(
        from_revision=(3, 0),
        below_revision=(4, 0),
        changes={"inverted_deinit": True},
        reason="10h:128 is DataPathPwrUp in CMIS 3 (facts, transponders 3.7)",
    ),
)
"""Modules known to differ. Rows are applied in order; what the user says is applied last."""


def quirks_of(identity: TransponderIdentity, revision: tuple[int, int], told: dict[str, Any] | None = None) -> Quirks:
    """Return what is known of a module, and what the user says of it."""
    changes: dict[str, Any] = {}
    for row in KNOWN_MODULES:
        if row.fits(identity, revision):
            changes |= row.changes
    return dataclasses.replace(Quirks(), **changes | (told or {}))
