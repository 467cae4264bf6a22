"""Kinds of cells of which a mesh consists.

Every cell has two couplers and two arms, like a programmable unit cell (PUC). Simple elements are special cases: a
phase shifter has couplers without coupling; a crossing has couplers that exchange both waveguides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

CellStates = Literal["any", "bar", "cross"]


@dataclass(frozen=True)
class CellKind:
    """One kind of cell.

    Attributes:
        eta_in: Designed fraction of the power that the coupler at end A moves to the other waveguide.
        eta_out: Designed fraction of the power that the coupler at end B moves to the other waveguide.
        heated: Whether the upper and the lower arm can have a heater.
        loss_share: Assumed loss, relative to a PUC with two couplers and two heated arms.
    """

    name: str
    description: str
    eta_in: float = 0.5
    eta_out: float = 0.5
    heated: tuple[bool, bool] = (False, False)
    loss_share: float = 1.0

    @property
    def interferes(self) -> bool:
        """Whether the arms interfere, so that their phase difference changes the split ratio."""
        return 0.0 < self.eta_in < 1.0 and 0.0 < self.eta_out < 1.0

    @property
    def has_couplers(self) -> bool:
        """Whether the cell has couplers that mix its two waveguides."""
        return any(0.0 < eta < 1.0 for eta in (self.eta_in, self.eta_out))

    @property
    def passes(self) -> CellStates:
        """State of a cell without couplers, ``bar`` or ``cross``; ``any`` for a cell with couplers."""
        if self.has_couplers:
            return "any"
        return "bar" if self.eta_in == self.eta_out else "cross"

    @property
    def is_switch(self) -> bool:
        """Whether heaters can set every split ratio."""
        return self.interferes and any(self.heated)


CELL_KINDS: Mapping[str, CellKind] = {
    kind.name: kind
    for kind in (
        CellKind("two-arm", "Mach-Zehnder interferometer with a heater on both arms", heated=(True, True)),
        CellKind("upper-arm", "Mach-Zehnder interferometer with a heater on the upper arm", heated=(True, False)),
        CellKind("lower-arm", "Mach-Zehnder interferometer with a heater on the lower arm", heated=(False, True)),
        CellKind("fixed", "Mach-Zehnder interferometer without a heater"),
        CellKind("upper-phase", "phase shifter on the upper waveguide", 0.0, 0.0, (True, False), 0.2),
        CellKind("lower-phase", "phase shifter on the lower waveguide", 0.0, 0.0, (False, True), 0.2),
        CellKind("two-phases", "phase shifters on both waveguides", 0.0, 0.0, (True, True), 0.2),
        CellKind("coupler", "coupler that splits the power evenly", 0.5, 0.0, (False, False), 0.3),
        CellKind("crossing", "crossing of two waveguides", 1.0, 0.0, (False, False), 0.1),
    )
}
"""All kinds of cells, by name."""
PUC = "two-arm"
NO_CHANNEL = -1
"""Drive channel of an arm without a heater."""
