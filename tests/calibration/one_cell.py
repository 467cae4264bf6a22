"""A mesh of one cell, six PUCs and four stubs, and whose it is: for tests of what is done with records."""

from __future__ import annotations

from calibration.model.space import ParameterSpace
from calibration.record.conversion import Origin
from lumion_hw.mesh.layout.hexagonal import HexMesh

CELL = HexMesh.columns([1])
SPACE = ParameterSpace(CELL, CELL.fibre_ports, CELL.fibre_ports)
ORIGIN = Origin(
    serial="MZ-0001",
    model="LM-1",
    firmware="1.2.3",
    heater_channels=tuple(range(2 * CELL.n_pucs)),
    wavelength_nm=1550.0,
    heater_max_ma=2.2,
    created_utc="2026-01-01T00:00:00+00:00",
)
