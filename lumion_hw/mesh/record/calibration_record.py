"""The calibration record: what is known of one mesh, in one immutable, self-contained document.

Units are in every name. The record says whose it is (serial, mesh and channel map), how it was made, and how well; it
is refused when any of that does not fit. It carries a hash of its own content. Large arrays lie in a side file beside
it whose hash is part of the content. :mod:`lumion_hw.storage` reads and writes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lumion_hw.errors import CalibrationError, ConfigError
from lumion_hw.files.json_text import check_numbers
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
"""What stands before the content of a document and is not part of its hash."""
CROSSTALK_PAIRS = "crosstalk_pairs"
"""Array of a record: shape ``(2E + J, 2E)``; phase of arms and joints per heat of heaters beyond the kernel, rad/mW."""
EMULATED_CHIP = "emulated_chip"
"""Key of the provenance of a record that was made on an emulated chip, with the name of that chip."""
_STATES: tuple[State, State] = ("bar", "cross")


NOT_CERTIFIED = "not certified: "
"""Beginning of the faults of a record that say why its calibration was not certified."""


@dataclass(frozen=True)
class CalibrationRecord:
    """What is known of one mesh.

    Attributes:
        device_serial: Serial number of the mesh controller.
        device_model: Its model.
        device_firmware: Its firmware.
        mesh_label: Layout in words.
        mesh_sha256: Hash of the mesh's canonical text.
        heater_channels: Drive channel of every heater, upper and lower arm of PUC 0 first.
        monitor_ports: Port of every monitor channel.
        wavelength_nm: Wavelength it holds for.
        created_utc: When it was finished (ISO 8601).
        complete: False if the calibration was interrupted.
        heater_ohm: Nominal heater resistance, for heat sums.
        pucs: One entry per PUC, in order.
        ports: One entry per fibre port.
        crosstalk: Thermal crosstalk, if it was measured.
        faults: What was found wrong, one sentence each.
        quality: Counts, residuals and times of the run, units in the names.
        provenance: Software version, seed, plan and journal hashes, interruptions, command line and the like.
        device_vendor: Maker of the controller.
        parent_sha256: Content hash of the record this one was re-fitted from.
        conditions: What it was made under and how far it holds.
        joints: Joint phases, if loops were calibrated; without them it serves switching only.
        dispersion: What changes with wavelength, if it was measured.
        covariance: What the covariance in ``arrays`` is about.
        defects: The faults as data.
        raw: The raw readings, in a file of their own.
        mesh_document: The mesh as :meth:`MeshTopology.to_dict` writes it, for layouts that no label describes.
        physics: What was needed beyond the model of every chip; written only where there is any.
        arrays: Large arrays by name, kept in the side file: ``covariance_factor``, ``crosstalk_pairs``.
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
        """Why the calibration was not certified, one sentence each; empty if it was, or if nothing says."""
        named = tuple(fault for fault in self.faults if fault.startswith(NOT_CERTIFIED))
        if named or self.quality.get("fit_certified", 1.0):
            return named
        return (f"{NOT_CERTIFIED}the fit does not explain all readings",)

    def __repr__(self) -> str:
        """Return one line; the entries are attributes."""
        missing = "" if self.complete else ", incomplete"
        return (
            f"<CalibrationRecord of {self.device_serial}, {self.mesh_label}: {len(self.pucs)} PUCs at "
            f"{self.wavelength_nm:g} nm, {self.created_utc}, {len(self.faults)} faults{missing}>"
        )

    def _repr_html_(self) -> str:
        """Return what tells it from others as a table for a notebook."""
        from lumion_hw.files.html import html_pairs

        found = [entry.passive_phase_sigma_rad for entry in self.pucs if entry.passive_phase_sigma_rad is not None]
        pairs = {
            "record": self.record_id,
            "controller": f"{self.device_model} {self.device_serial}",
            "mesh": self.mesh_label,
            "wavelength": f"{self.wavelength_nm:g} nm",
            "made": self.created_utc,
            "complete": self.complete,
            "PUCs that can be set": f"{sum(entry.is_settable for entry in self.pucs)} of {len(self.pucs)}",
            "standard error of a phase": f"{1e3 * float(np.median(found)):.3g} mrad (median)" if found else None,
            "loss of a PUC": f"{float(np.median(self.loss_db)):.3g} dB (median)" if self.pucs else None,
            "faults": "; ".join(self.faults),
        }
        return html_pairs("Calibration record", pairs)

    def to_pandas(self) -> pd.DataFrame:
        """Return the unit cells as a table: a row per PUC, fields of heaters and couplers after the name of the part.

        Columns are those of :class:`PucEntry`: ``passive_phase_rad``, ``loss_db``, ``upper_law_rho2_rad_per_ma2`` and
        so on, with NaN or ``None`` where nothing was found.

        Raises:
            ConfigError: pandas is not installed.
        """
        from lumion_hw.files.frames import require_pandas

        pandas = require_pandas()
        table: pd.DataFrame = pandas.DataFrame([_flat(asdict(entry)) for entry in self.pucs])
        table.index.name = "puc"
        table.attrs.update(record=self.record_id, wavelength_nm=self.wavelength_nm)
        return table

    @property
    def loss_db(self) -> NDArray[np.float64]:
        """Loss of every PUC, shape ``(n_pucs,)``."""
        return np.array([entry.loss_db for entry in self.pucs])

    @property
    def reference_hz(self) -> float:
        """Optical frequency at which the phases are given."""
        if self.conditions.reference_hz is not None:
            return self.conditions.reference_hz
        return frequency_hz_from_wavelength_m(self.wavelength_nm * 1e-9)

    @cached_property
    def mesh(self) -> MeshTopology:
        """The mesh itself.

        Raises:
            CalibrationError: The label describes no layout this software knows, or not the mesh that was calibrated.
        """
        try:
            document = self.mesh_document
            mesh = mesh_from_label(self.mesh_label) if document is None else mesh_from_dict(document)
        except ConfigError as error:
            raise CalibrationError(f"the record does not say what mesh {self.mesh_label!r} is: {error}") from error
        if mesh.sha256 != self.mesh_sha256:
            raise CalibrationError(
                f"mesh {self.mesh_label!r} of this software is not the one that was calibrated",
                hint="Calibrate again, so that the record holds the mesh itself.",
            )
        return mesh

    @cached_property
    def content_sha256(self) -> str:
        """Hash over the canonical form of the document without its own hash."""
        return content_hash(self.body())

    @property
    def record_id(self) -> str:
        """Name of this record: whose, when, and the beginning of the content hash."""
        when = self.created_utc.replace("-", "").replace(":", "").split("+")[0]
        return f"{self.device_serial}-{when}-{self.content_sha256[:12]}"

    @property
    def extra_physics(self) -> dict[str, NDArray[np.float64]]:
        """Values of the physics beyond the model of every chip, by name; of pairs ``(2E + J, 2E)``, rad/mW.

        Raises:
            CalibrationError: The array of the pairs is not there.
        """
        values = {entry.name: np.array(entry.values) for entry in self.physics if entry.values}
        for entry in self.physics:
            if entry.name == CROSSTALK_PAIRS and not entry.values:
                if CROSSTALK_PAIRS not in self.arrays:
                    raise CalibrationError(
                        "the record's crosstalk of pairs is missing", hint="Keep its side file beside the record."
                    )
                values[entry.name] = np.asarray(self.arrays[CROSSTALK_PAIRS], dtype=np.float64)
        return values

    def usable_states(self, puc: int) -> tuple[State, ...]:
        """Return the routing states that a PUC can take as far as faults go; not whether its heaters reach them."""
        for defect in self.defects:
            if defect.element == "puc" and defect.number == puc and defect.usable_states is not None:
                return defect.usable_states
        return () if self.pucs[puc].passive_phase_rad is None else _STATES

    def unusable_states(self) -> tuple[tuple[int, State], ...]:
        """Return the PUC states that routing must not use: both of a PUC that cannot be set, unless stuck in one."""
        return tuple(
            (puc, state) for puc in range(len(self.pucs)) for state in _STATES if state not in self.usable_states(puc)
        )

    def port(self, number: int) -> PortEntry:
        """Return the entry of a port. Raises ``CalibrationError`` if the record has none."""
        for entry in self.ports:
            if entry.port == number:
                return entry
        raise CalibrationError(f"the calibration record has no port {number}", hint="Calibrate this bench again.")

    def heater_power_mw(self, currents_ma: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the heat of each heater, shape ``(2 n_pucs,)``.

        That of the nominal resistance, times what the heater's law bends up, times its heat factor where it has one.
        """
        heaters = [heater for entry in self.pucs for heater in (entry.upper, entry.lower)]
        bent = [
            heater.law.bend(float(current)) * heater.heat_factor if heater.law else heater.heat_factor
            for heater, current in zip(heaters, currents_ma, strict=True)
        ]
        power: NDArray[np.float64] = currents_ma**2 * self.heater_ohm * 1e-3 * np.array(bent)
        return power

    def check_device(
        self,
        serial: str,
        mesh: MeshTopology,
        heater_channels: tuple[int, ...],
        monitor_ports: tuple[int, ...] | None = None,
    ) -> None:
        """Refuse a record of another controller, mesh or channel map.

        Raises:
            CalibrationError: The record does not belong to this device; the message says what differs.
        """
        # Monitors found dead are not in the record: those that are have to be there, in this order.
        ports = self.monitor_ports if monitor_ports is None else monitor_ports
        monitors = tuple(port for port in ports if port in self.monitor_ports)
        for what, mine, found in (
            ("controller serial", self.device_serial, serial),
            ("mesh", self.mesh_sha256, mesh.sha256),
            ("heater channel map", self.heater_channels, heater_channels),
            ("monitor channel map", self.monitor_ports, monitors),
        ):
            if mine != found:
                shown = (mine, found) if what == "controller serial" else ("the recorded one", "another one")
                raise CalibrationError(
                    f"this calibration record belongs to {what} {shown[0]}, found {shown[1]}",
                    hint="Use the record of this device, or calibrate it.",
                )

    def check_complete(self, *, allow_incomplete: bool = False) -> None:
        """Refuse the record of an interrupted run, unless that is said to be all right.

        Raises:
            CalibrationError: It is incomplete.
        """
        if not self.complete and not allow_incomplete:
            known = sum(entry.passive_phase_rad is not None for entry in self.pucs)
            raise CalibrationError(
                "this calibration record is incomplete: its run was interrupted",
                hint=f"Run the calibration again; {known} of {len(self.pucs)} PUCs are known.",
            )

    def body(self) -> dict[str, Any]:
        """Return the content that is hashed: all fields, the conventions, and the hashes of map and arrays."""
        body = asdict(replace(self, arrays={}))
        del body["arrays"]
        for port in body["ports"]:
            if port["lit_with"] is None:
                del port["lit_with"]  # so that records from before there was any keep their hash
        if body["conditions"]["heater_tau_s"] is None:
            del body["conditions"]["heater_tau_s"]  # likewise
        if not body["physics"]:
            del body["physics"]  # likewise
        body["conventions"] = CONVENTIONS
        body["channel_map_sha256"] = content_hash([list(self.heater_channels), list(self.monitor_ports)])
        body["arrays_sha256"] = arrays_sha256(self.arrays) if self.arrays else None
        return body

    def to_json(self, arrays_file: str | None = None) -> str:
        """Return the document, its content hash included.

        Args:
            arrays_file: Name of the side file, if the arrays are kept.

        Raises:
            ConfigError: It holds NaN or infinity, which JSON does not have; the message names the place.
        """
        body = self.body()
        check_numbers(body, "the calibration record")
        values = (SCHEMA, SCHEMA_VERSION, self.record_id, self.content_sha256, arrays_file)
        return readable(dict(zip(HEADER, values, strict=True)) | body) + "\n"


def _flat(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested fields as one level, named by all levels; a part that is missing has none."""
    found: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, Mapping):
            found |= {f"{name}_{inner}": each for inner, each in _flat(value).items()}
        elif name not in ("law", "coupler"):  # these are missing
            found[name] = value
    return found
