"""The calibration record: what is known of one mesh, in one immutable, self-contained document.

Units are in every name. The record says whose it is (serial, mesh and channel map), how it was made, and how well; it
is refused when any of that does not fit. It is written atomically and carries a hash of its own content.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lumion_hw.errors import CalibrationError
from lumion_hw.mesh.heater import HeaterLaw
from lumion_hw.mesh.topology import HexMesh, State

SCHEMA = "lumion-calibration"
SCHEMA_VERSION = 1


@dataclass(frozen=True)
class HeaterEntry:
    """One heater.

    Attributes:
        channel: Drive channel of the controller.
        law: Phase against current; ``None`` if the heater has no effect.
        residual_sigma: Rms residual of the fringe fit, in units of the reading noise.
        note: What was found wrong, empty if nothing.
    """

    channel: int
    law: HeaterLaw | None
    residual_sigma: float | None
    note: str = ""


@dataclass(frozen=True)
class PucEntry:
    """One PUC.

    Attributes:
        passive_phase_rad: Passive phase of the upper arm over the lower, -π … π; ``None`` if not found.
        passive_phase_sigma_rad: Its standard error.
        loss_db: Insertion loss.
        loss_sigma_db: Its standard error, prior included.
        upper: Heater of the upper arm.
        lower: Heater of the lower arm.
        note: What was found wrong, empty if nothing.
    """

    passive_phase_rad: float | None
    passive_phase_sigma_rad: float | None
    loss_db: float
    loss_sigma_db: float
    upper: HeaterEntry
    lower: HeaterEntry
    note: str = ""


@dataclass(frozen=True)
class PortEntry:
    """One port with a fibre.

    Attributes:
        port: Port number.
        input_loss_db: Fibre into mesh, against the power the module reports; ``None`` where nothing was injected.
        input_loss_sigma_db: Its standard error.
        output_loss_db: Mesh into fibre, against the power meter; ``None`` where there is none.
        output_loss_sigma_db: Its standard error.
        monitor_ma_per_mw: Photocurrent per power leaving the mesh at this port.
    """

    port: int
    input_loss_db: float | None
    input_loss_sigma_db: float | None
    output_loss_db: float | None
    output_loss_sigma_db: float | None
    monitor_ma_per_mw: float | None


@dataclass(frozen=True)
class CrosstalkEntry:
    """Differential phase of each PUC per heat of each heater.

    Attributes:
        differential_rad_per_mw: Shape ``(n_pucs, 2 n_pucs)``, as nested tuples.
    """

    differential_rad_per_mw: tuple[tuple[float, ...], ...]

    def differential_rad(self, power_mw: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the differential phase that heat of shape ``(2 n_pucs,)`` adds to each PUC."""
        shift: NDArray[np.float64] = np.asarray(self.differential_rad_per_mw) @ power_mw
        return shift


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
        provenance: Software version, seed, command and the like.
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

    @property
    def loss_db(self) -> NDArray[np.float64]:
        """Loss of every PUC, shape ``(n_pucs,)``."""
        return np.array([entry.loss_db for entry in self.pucs])

    def unusable_states(self) -> tuple[tuple[int, State], ...]:
        """Return the PUC states that routing must not use: both states of every PUC that cannot be set."""
        return tuple(
            (puc, state)
            for puc, entry in enumerate(self.pucs)
            if entry.passive_phase_rad is None
            for state in ("bar", "cross")
        )

    def port(self, number: int) -> PortEntry:
        """Return the entry of a port. Raises ``CalibrationError`` if the record has none."""
        for entry in self.ports:
            if entry.port == number:
                return entry
        raise CalibrationError(f"the calibration record has no port {number}", hint="Calibrate this bench again.")

    def heater_power_mw(self, currents_ma: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the heat of each heater as this record's nominal resistance reckons it, shape ``(2 n_pucs,)``."""
        power: NDArray[np.float64] = currents_ma**2 * self.heater_ohm * 1e-3
        return power

    def check_device(self, serial: str, mesh: HexMesh, heater_channels: tuple[int, ...]) -> None:
        """Refuse a record of another controller, mesh or channel map.

        Raises:
            CalibrationError: The record does not belong to this device; the message says what differs.
        """
        for what, mine, found in (
            ("controller serial", self.device_serial, serial),
            ("mesh", self.mesh_sha256, mesh.sha256),
            ("heater channel map", self.heater_channels, heater_channels),
        ):
            if mine != found:
                shown = (mine, found) if what == "controller serial" else ("the recorded one", "another one")
                raise CalibrationError(
                    f"this calibration record belongs to {what} {shown[0]}, found {shown[1]}",
                    hint="Use the record of this device, or calibrate it.",
                )

    def to_json(self) -> str:
        """Return the document, its content hash included."""
        body = dataclasses.asdict(self)
        document = {"schema": SCHEMA, "schema_version": SCHEMA_VERSION, "content_sha256": _content_hash(body), **body}
        return json.dumps(document, indent=1, allow_nan=False) + "\n"

    def save(self, path: Path) -> None:
        """Write the document so that a reader finds the old one or the new one, never half of it."""
        write_atomically(path, self.to_json())

    @classmethod
    def load(cls, path: Path) -> CalibrationRecord:
        """Read a document.

        Raises:
            CalibrationError: It is not a calibration record, of another schema version, or changed since written.
        """
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise CalibrationError(f"{path}: cannot be read: {error.strerror}") from error
        except ValueError as error:
            raise CalibrationError(f"{path}: is not JSON: {error}") from error
        return cls._from_document(document, path)

    @classmethod
    def _from_document(cls, document: Any, path: Path) -> CalibrationRecord:
        from pydantic import TypeAdapter, ValidationError

        if not isinstance(document, dict) or document.pop("schema", None) != SCHEMA:
            raise CalibrationError(f"{path}: is not a calibration record")
        version = document.pop("schema_version", None)
        if version != SCHEMA_VERSION:
            raise CalibrationError(f"{path}: has schema version {version}, this software reads {SCHEMA_VERSION}")
        stated = document.pop("content_sha256", None)
        if stated != _content_hash(document):
            raise CalibrationError(f"{path}: its content does not match its hash", hint="It was edited or damaged.")
        try:
            return TypeAdapter(cls).validate_python(document)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise CalibrationError(f"{path}: {where}: {first['msg']}") from error


def _content_hash(body: dict[str, Any]) -> str:
    """Return the hash over the canonical form of a document without its own hash."""
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def write_atomically(path: Path, text: str) -> None:
    """Write a text file by temporary file, fsync and rename, then fsync of the directory."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
