"""A small calibration record written by hand, for the tests of the record and of its inverse."""

from __future__ import annotations

from collections.abc import Sequence

from lumion_hw.mesh.layout.hexagonal import HexMesh
from lumion_hw.mesh.record.calibration_record import CalibrationRecord, CrosstalkEntry, HeaterEntry, PortEntry, PucEntry
from lumion_hw.mesh.waves.heater import HeaterLaw

CELL = HexMesh.columns([1])
"""One hexagon with its four stubs: 10 PUCs, 12 ports."""
LAW = HeaterLaw(2.0, 0.05, 2.5)
"""Reaches 2·6.25 + 0.05·39.0625 = 14.453 rad, 4.6 π."""


def puc_entry(
    puc: int, passive_rad: float | None, upper: HeaterLaw | None = LAW, lower: HeaterLaw | None = LAW
) -> PucEntry:
    """Return one PUC with the given laws; without a passive phase it is one that could not be calibrated."""
    arms = [HeaterEntry(2 * puc + arm, law, None if law is None else 1.1) for arm, law in enumerate((upper, lower))]
    sigma, note = (None, "neither heater has any effect") if passive_rad is None else (0.01, "")
    return PucEntry(passive_rad, sigma, 0.5, 0.03, arms[0], arms[1], note)


def sample_record(
    pucs: Sequence[PucEntry] | None = None, crosstalk: CrosstalkEntry | None = None, complete: bool = True
) -> CalibrationRecord:
    """Return a record of the one-cell mesh; all passive phases differ if no PUCs are given."""
    entries = [puc_entry(puc, 0.6 * puc - 2.7) for puc in range(CELL.n_pucs)] if pucs is None else pucs
    return CalibrationRecord(
        device_serial="MZ-0001",
        device_model="LM-1",
        device_firmware="1.2.3",
        mesh_label=CELL.label,
        mesh_sha256=CELL.sha256,
        heater_channels=tuple(range(2 * CELL.n_pucs)),
        monitor_ports=CELL.fibre_ports,
        wavelength_nm=1550.0,
        created_utc="2025-06-01T12:00:00+00:00",
        complete=complete,
        heater_ohm=1000.0,
        pucs=tuple(entries),
        ports=(PortEntry(1, 6.5, 0.05, None, None, 0.97), PortEntry(3, None, None, 7.2, 0.04, None)),
        crosstalk=crosstalk,
        faults=("PUC 4 lower heater (channel 9): no effect",),
        quality={"held_out_rms_db": 0.05, "settings": 3632.0},
        provenance={"software": "lumion-hw 0.1.0", "seed": "7"},
    )
