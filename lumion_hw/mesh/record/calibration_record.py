"""The calibration record: an immutable document with all calibration data of one mesh.

The record identifies its device (serial number, mesh and channel map) and contains a hash of its own content. Large
arrays are stored in a separate file. :mod:`lumion_hw.storage` reads and writes records.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from lumion_hw.errors import CalibrationError, ConfigError
from lumion_hw.files.json_text import check_numbers, rename_key
from lumion_hw.mesh.layout.cells import CELL_KINDS
from lumion_hw.mesh.layout.topologies import mesh_from_dict, mesh_from_label
from lumion_hw.mesh.layout.topology import MeshTopology, State
from lumion_hw.mesh.record.canonical import arrays_sha256, content_hash, readable
from lumion_hw.mesh.record.entries import (
    CONVENTIONS,
    ArrayFile,
    Conditions,
    CouplerEntry,
    CovarianceEntry,
    CrosstalkEntry,
    CrosstalkKernel,
    Defect,
    Dispersion,
    ExtraPhysics,
    HeaterEntry,
    JointsEntry,
    PortEntry,
    PucEntry,
)
from lumion_hw.quantities import frequency_hz_from_wavelength_m

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "NOT_CERTIFIED",
    "ArrayFile",
    "CalibrationRecord",
    "Conditions",
    "CouplerEntry",
    "CovarianceEntry",
    "CrosstalkEntry",
    "CrosstalkKernel",
    "Defect",
    "Dispersion",
    "ExtraPhysics",
    "HeaterEntry",
    "JointsEntry",
    "PortEntry",
    "PucEntry",
]

SCHEMA = "lumion-calibration"
SCHEMA_VERSION = 2
HEADER = ("schema", "schema_version", "record_id", "content_sha256", "arrays_file")
"""Keys of the document that the content hash does not cover."""
CROSSTALK_PAIRS = "crosstalk_pairs"
"""Name of the array with the crosstalk of single heater-waveguide pairs, added to the crosstalk kernel.

Shape ``(2E + J, 2E)`` for E PUCs and J joints: phase of each arm and joint per heat of each heater, in rad/mW.
"""
HEATER_RESISTANCES = "heater_resistances"
"""Name of the array with measured resistances; each row is heater, current in mA, resistance in ohms."""
EMULATED_CHIP = "emulated_chip"
"""Provenance key that names the emulated chip, if the record was made on one."""
COMMAND_LINE = "command_line"
"""Provenance key of the command that made the record."""
_STATES: tuple[State, State] = ("bar", "cross")


# Stored records contain this text, so it must not change: ``doubts`` finds the faults of older records by it.
NOT_CERTIFIED = "not certified: "
"""Prefix of fault texts that say why the calibration was not certified."""
Use = Literal["switching", "matrices", "single heaters"]
"""Use of a record: circuits through bar and cross states, programmed matrices, or heaters driven alone."""
USES: tuple[Use, ...] = get_args(Use)
"""All uses of a record."""


def not_certified_for(use: Use) -> str:
    """Return the prefix of fault texts that say why the calibration was not certified for one use."""
    return f"not certified for {use}: "


@dataclass(frozen=True)
class CalibrationRecord:
    """All calibration data of one mesh.

    Attributes:
        device_serial: Serial number of the mesh controller.
        device_firmware: Firmware version of the controller.
        mesh_label: Name and size of the layout, such as ``columns 2 3 2``.
        mesh_sha256: Hash of the mesh's canonical text.
        heater_channels: Drive channel of every heater, upper and lower arm of PUC 0 first.
        monitor_ports: Port of every monitor channel.
        wavelength_nm: Wavelength at which the record is valid.
        created_utc: Time when the calibration finished (ISO 8601).
        complete: ``False`` if the calibration was interrupted.
        heater_ohm: Nominal heater resistance, used for total heat.
        pucs: One entry per PUC, in order.
        ports: One entry per fibre port.
        crosstalk: Thermal crosstalk, if measured.
        faults: Faults found, one sentence each.
        quality: Counts, residuals and times of the calibration, with units in the names.
        provenance: Software version, seed, command line, interruptions and so on.
        device_vendor: Manufacturer of the controller.
        parent_sha256: Content hash of the record from which this one was re-fitted.
        conditions: Conditions of the calibration, and its range of validity.
        joints: Phases of joints (waveguides between PUCs), if calibrated; without them the record supports switching
            only.
        dispersion: Dependence on wavelength, if measured.
        covariance: Description of the covariance stored in ``arrays``.
        defects: Faults found, as data.
        raw: File with the raw readings.
        mesh_document: Mesh as written by :meth:`MeshTopology.to_dict`, for layouts without a label.
        physics: Effects fitted in addition to the standard chip model.
        arrays: Large arrays by name: ``covariance_factor``, ``crosstalk_pairs``, ``heater_resistances`` (rows of
            heater, current in mA and resistance in ohms).
    """

    device_serial: str
    device_model: str
    device_firmware: str
    mesh_label: str
    mesh_sha256: str
    heater_channels: tuple[int, ...]
    monitor_ports: tuple[int, ...]
    wavelength_nm: float
    created_utc: str
    complete: bool
    heater_ohm: float
    pucs: tuple[PucEntry, ...]
    ports: tuple[PortEntry, ...]
    crosstalk: CrosstalkEntry | None = None
    faults: tuple[str, ...] = ()
    quality: dict[str, float] = field(default_factory=dict)
    provenance: dict[str, str] = field(default_factory=dict)
    device_vendor: str = ""
    parent_sha256: str | None = None
    conditions: Conditions = field(default_factory=Conditions)
    joints: JointsEntry | None = None
    dispersion: Dispersion | None = None
    covariance: CovarianceEntry | None = None
    defects: tuple[Defect, ...] = ()
    raw: ArrayFile | None = None
    mesh_document: dict[str, Any] | None = None
    physics: tuple[ExtraPhysics, ...] = ()
    arrays: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def doubts(self) -> tuple[str, ...]:
        """Why the calibration was not certified, one sentence each; empty if it was certified or this is unknown."""
        reasons = tuple(fault for fault in self.faults if fault.startswith(NOT_CERTIFIED))
        if reasons or self.quality.get("fit_certified", 1.0):
            return reasons
        # The fit was not certified, and the faults do not say why.
        return (f"{NOT_CERTIFIED}the fit does not explain all readings",)

    def doubts_for(self, use: Use) -> tuple[str, ...]:
        """Return why the calibration was not certified for a use, one sentence each; empty if it was certified."""
        prefix = not_certified_for(use)
        return (*self.doubts, *(fault for fault in self.faults if fault.startswith(prefix)))

    def __repr__(self) -> str:
        """Return a one-line summary of the record."""
        completeness = "" if self.complete else ", incomplete"
        return (
            f"<CalibrationRecord of {self.device_serial}, {self.mesh_label}: {len(self.pucs)} PUCs at "
            f"{self.wavelength_nm:g} nm, {self.created_utc}, {len(self.faults)} faults{completeness}>"
        )

    def _repr_html_(self) -> str:
        from lumion_hw.files.html import html_pairs

        sigmas_rad = [entry.passive_phase_sigma_rad for entry in self.pucs if entry.passive_phase_sigma_rad is not None]
        pairs = {
            "record": self.record_id,
            "controller": f"{self.device_model} {self.device_serial}",
            "mesh": self.mesh_label,
            "wavelength": f"{self.wavelength_nm:g} nm",
            "created": self.created_utc,
            "complete": self.complete,
            "PUCs that can be set": f"{sum(entry.is_settable for entry in self.pucs)} of {len(self.pucs)}",
            "standard error of a phase": f"{1e3 * float(np.median(sigmas_rad)):.3g} mrad (median)"
            if sigmas_rad
            else None,
            "loss of a PUC": f"{float(np.median(self.loss_db)):.3g} dB (median)" if self.pucs else None,
            "faults": "; ".join(self.faults),
        }
        return html_pairs("Calibration record", pairs)

    def to_pandas(self) -> pd.DataFrame:
        """Return the PUCs as a table, one row per PUC.

        Columns are the fields of :class:`PucEntry`: ``passive_phase_rad``, ``loss_db``, ``upper_law_rho2_rad_per_ma2``
        and so on, with NaN or ``None`` for unknown values.

        Raises:
            ConfigError: pandas is not installed.
        """
        from lumion_hw.files.frames import require_pandas

        pandas = require_pandas()
        table: pd.DataFrame = pandas.DataFrame([_flatten(asdict(entry)) for entry in self.pucs])
        table.index.name = "puc"
        table.attrs.update(record=self.record_id, wavelength_nm=self.wavelength_nm)
        return table

    @property
    def loss_db(self) -> NDArray[np.float64]:
        """Insertion loss of every PUC in dB, shape ``(n_pucs,)``."""
        return np.array([entry.loss_db for entry in self.pucs])

    @property
    def reference_hz(self) -> float:
        """Optical frequency to which the phases refer."""
        if self.conditions.reference_hz is not None:
            return self.conditions.reference_hz
        return frequency_hz_from_wavelength_m(self.wavelength_nm * 1e-9)

    @cached_property
    def mesh(self) -> MeshTopology:
        """Mesh topology of the calibrated device.

        Raises:
            CalibrationError: This software does not know the layout, or its layout differs from the calibrated mesh.
        """
        try:
            document = self.mesh_document
            mesh = mesh_from_label(self.mesh_label) if document is None else mesh_from_dict(document)
        except ConfigError as error:
            raise CalibrationError(f"cannot build mesh {self.mesh_label!r} of the record: {error}") from error
        # The phases are listed by PUC number: with another layout they would set arbitrary states.
        if mesh.sha256 != self.mesh_sha256:
            raise CalibrationError(
                f"mesh {self.mesh_label!r} in this software differs from the mesh that was calibrated",
                hint="Calibrate again; the new record will contain the mesh itself.",
            )
        return mesh

    @cached_property
    def content_sha256(self) -> str:
        """SHA-256 of the record's content."""
        return content_hash(self.body())

    @property
    def record_id(self) -> str:
        """Name of the record: serial number of the device, time, and the start of the content hash."""
        timestamp = self.created_utc.replace("-", "").replace(":", "").split("+")[0]
        return f"{self.device_serial}-{timestamp}-{self.content_sha256[:12]}"

    @property
    def extra_physics(self) -> dict[str, NDArray[np.float64]]:
        """Parameters of effects fitted in addition to the standard chip model, by name.

        Pair crosstalk has shape ``(2 n_pucs + n_joints, 2 n_pucs)``, in rad/mW.

        Raises:
            CalibrationError: The pair crosstalk array is missing.
        """
        values = {entry.name: np.array(entry.values) for entry in self.physics if entry.values}
        for entry in self.physics:
            if entry.name == CROSSTALK_PAIRS and not entry.values:
                # Continuing without the array would program the heaters without this crosstalk.
                if CROSSTALK_PAIRS not in self.arrays:
                    raise CalibrationError(
                        "the pair crosstalk of the calibration record is missing",
                        hint="Put the record's side file into the same directory as the record.",
                    )
                values[entry.name] = np.asarray(self.arrays[CROSSTALK_PAIRS], dtype=np.float64)
        return values

    def usable_states(self, puc: int) -> tuple[State, ...]:
        """Return the states (bar, cross) in which a PUC can still be used despite its faults."""
        # A stuck PUC has no passive phase, and can still be used in the state in which it is stuck.
        for defect in self.defects:
            if defect.element == "puc" and defect.number == puc and defect.usable_states is not None:
                return defect.usable_states
        if self.pucs[puc].passive_phase_rad is None:
            return ()
        passes = CELL_KINDS[self.mesh.cell_kinds[puc]].passes
        return _STATES if passes == "any" else (passes,)

    def unusable_states(self) -> tuple[tuple[int, State], ...]:
        """Return the ``(puc, state)`` pairs that routing must not use."""
        return tuple(
            (puc, state) for puc in range(len(self.pucs)) for state in _STATES if state not in self.usable_states(puc)
        )

    def port(self, number: int) -> PortEntry:
        """Return the entry of a port.

        Raises:
            CalibrationError: The record has no entry for this port.
        """
        for entry in self.ports:
            if entry.port == number:
                return entry
        raise CalibrationError(
            f"the calibration record has no entry for port {number}", hint="Calibrate this bench again."
        )

    def heater_power_mw(self, currents_ma: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the heat of each heater in mW, shape ``(2 n_pucs,)``."""
        heaters = [heater for entry in self.pucs for heater in (entry.upper, entry.lower)]
        factors = [
            heater.law.bend(float(current)) * heater.heat_factor if heater.law else heater.heat_factor
            for heater, current in zip(heaters, currents_ma, strict=True)
        ]
        power: NDArray[np.float64] = currents_ma**2 * self.heater_ohm * 1e-3 * np.array(factors)
        return power

    def check_device(
        self,
        serial: str,
        mesh: MeshTopology,
        heater_channels: tuple[int, ...],
        monitor_ports: tuple[int, ...] | None = None,
    ) -> None:
        """Check that the record belongs to this controller, mesh and channel map.

        Raises:
            CalibrationError: The record belongs to another device; the message names the difference.
        """
        # The record omits monitors that were dead. The bench's other monitors must match it, in the same order.
        ports = self.monitor_ports if monitor_ports is None else monitor_ports
        monitors = tuple(port for port in ports if port in self.monitor_ports)
        for name, recorded, actual in (
            ("controller serial", self.device_serial, serial),
            ("mesh", self.mesh_sha256, mesh.sha256),
            ("heater channel map", self.heater_channels, heater_channels),
            ("monitor channel map", self.monitor_ports, monitors),
        ):
            if recorded != actual:
                detail = f"a different {name}"
                if name == "controller serial":
                    detail = f"{recorded}, and this is {actual}"
                raise CalibrationError(
                    f"the calibration record does not match this {name}: it was made for {detail}",
                    hint="Use the record of this device, or calibrate this device.",
                )

    def check_complete(self, *, allow_incomplete: bool = False) -> None:
        """Check that the calibration was not interrupted.

        Raises:
            CalibrationError: The record is incomplete and ``allow_incomplete`` is not set.
        """
        if not self.complete and not allow_incomplete:
            n_calibrated = sum(entry.passive_phase_rad is not None for entry in self.pucs)
            raise CalibrationError(
                "the calibration record is incomplete because its run was interrupted",
                hint=f"Run the calibration again. So far {n_calibrated} of {len(self.pucs)} PUCs are calibrated.",
            )

    def body(self) -> dict[str, Any]:
        """Return the hashed content of the record."""
        # The arrays are in a side file; the body contains their hash instead.
        body = asdict(replace(self, arrays={}))
        del body["arrays"]
        for port in body["ports"]:
            if port["lit_with"] is None:
                del port["lit_with"]  # older records lack this key, and their hash must stay valid
        if body["conditions"]["heater_tau_s"] is None:
            del body["conditions"]["heater_tau_s"]  # for the same reason
        body["physics"] = tuple(rename_key(effect, "description", "words") for effect in body["physics"])
        if not body["physics"]:
            del body["physics"]  # for the same reason
        # Included in the hash: a record with other sign conventions must not be accepted as one with these conventions.
        body["conventions"] = CONVENTIONS
        body["channel_map_sha256"] = content_hash([list(self.heater_channels), list(self.monitor_ports)])
        body["arrays_sha256"] = arrays_sha256(self.arrays) if self.arrays else None
        return body

    def to_json(self, arrays_file: str | None = None) -> str:
        """Return the record as a JSON document, including its content hash.

        Args:
            arrays_file: Name of the file with the arrays, if they are stored.

        Raises:
            ConfigError: The record contains NaN or infinity, which JSON cannot store; the message names the entry.
        """
        body = self.body()
        check_numbers(body, "the calibration record")
        values = (SCHEMA, SCHEMA_VERSION, self.record_id, self.content_sha256, arrays_file)
        return readable(dict(zip(HEADER, values, strict=True)) | body) + "\n"


def _flatten(fields: Mapping[str, Any]) -> dict[str, Any]:
    flattened: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, Mapping):
            flattened |= {f"{name}_{inner}": item for inner, item in _flatten(value).items()}
        elif name not in ("law", "coupler"):  # a missing law or coupler is None here
            flattened[name] = value
    return flattened
