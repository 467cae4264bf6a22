"""The state of a served bench at one moment, as immutable values."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from lumion_hw.errors import ConfigError
from lumion_hw.fabric import FabricAlarm, FabricStatus, RecoveryStatus
from lumion_hw.fabric.status import Severity
from lumion_hw.joined import JoinedStatus
from lumion_hw.mesh.layout.topology import State

MAX_STAGES = 50
"""Number of stages of a job that are kept."""
MAX_RESIDUALS = 400
"""Number of residuals of a job that are kept."""
MAX_CURVE_NUMBERS = 2000
"""Largest number of values in the curve of a scan."""
_MAX_CURVE_NAME = 120

PointValue = float | int | bool | str | NDArray[np.float64] | None
"""A number, a text, a boolean or a one-dimensional array; ``None`` if the point was never read."""


class AlarmSeverity(enum.IntEnum):
    """Alarm severity, with the numbers of EPICS."""

    NONE = 0
    MINOR = 1
    MAJOR = 2
    INVALID = 3


@dataclass(frozen=True)
class Point:
    """One reading or setting of the bench.

    Attributes:
        name: ``device.quantity`` or ``device.quantity.channel``.
        value: The last value; out of date if ``severity`` is ``INVALID``.
        unit: Unit of the value; empty for texts and booleans.
        limits: Lowest and highest allowed value; ``None`` for readings and unknown limits.
        time_s: Time of the reading, in seconds since 1970.
        severity: ``INVALID`` if there is no value or the device does not answer.
        alarm: Reason of the severity; empty without an alarm.
        choices: Allowed texts, if ``kind`` is ``choice``.
        kind: Type of the value.
    """

    name: str
    value: PointValue
    unit: str = ""
    limits: tuple[float, float] | None = None
    writable: bool = False
    time_s: float = 0.0
    severity: AlarmSeverity = AlarmSeverity.NONE
    alarm: str = ""
    choices: tuple[str, ...] = ()
    kind: Literal["number", "flag", "choice", "array"] = "number"


@dataclass(frozen=True)
class ServedPath:
    """One path of a circuit through the mesh.

    Attributes:
        pucs: PUCs along the path, in order.
        power_dbm: Calculated power before the first PUC, between PUCs and after the last: one more value than ``pucs``.
            ``None`` if unknown.
    """

    circuit: str
    source: int
    target: int
    pucs: tuple[int, ...]
    power_dbm: tuple[float | None, ...]


@dataclass(frozen=True)
class ServedMesh:
    """The mesh, as drawn by ``lumion mesh show``.

    Attributes:
        states: Known states of PUCs, including parked (unused) PUCs.
        heat_mw: Power of both heaters of each PUC, shape ``(n_pucs,)``.
        parked: Unused PUCs whose state diverts stray light.
        dead: PUCs that the calibration found broken.
    """

    states: Mapping[int, State]
    heat_mw: tuple[float, ...]
    parked: frozenset[int]
    dead: frozenset[int]
    paths: tuple[ServedPath, ...]


@dataclass(frozen=True)
class ServedCircuit:
    """An active circuit.

    Attributes:
        name: Names of both modules, such as ``sfp-a:sfp-b``.
        source: Device name of the transmitting module.
        target: Device name of the receiving module.
        lease_left_s: Time until the lease of the circuit ends; ``None`` without a lease.
        seen_s: Time of the last measurement, in seconds since 1970; ``None`` if never measured.
        proof: Last measured values (:class:`~lumion_hw.circuits.ActiveCircuit`).
        lost_db: Increase of the loss since set-up; ``None`` without light or measurement.
        marks: Warnings about the circuit, such as ``degraded: ...``.
        fault: Reason why the circuit is broken; empty while it carries light.
        severity: ``MAJOR`` if broken, ``INVALID`` if unknown, ``MINOR`` with warnings.
        unseen: Reason why the present condition is unknown; empty if it is known.
        min_margin_db: Margin that the request of the circuit demands.
    """

    name: str
    source: str
    target: str
    since_s: float
    age_s: float
    lease_left_s: float | None
    seen_s: float | None
    proof: Mapping[str, float | None]
    lost_db: float | None
    marks: tuple[str, ...]
    fault: str
    severity: AlarmSeverity
    unseen: str = ""
    min_margin_db: float = 0.0

    @property
    def margin_db(self) -> float | None:
        """Last measured power margin over the receiver sensitivity; ``None`` while the circuit is broken."""
        return None if self.fault else self.proof.get("margin_db")

    @property
    def alarm(self) -> str:
        """Reason for the severity; empty without an alarm."""
        return self.fault or self.unseen or "; ".join(self.marks)

    @property
    def is_known(self) -> bool:
        """Whether the circuit works and its present margin is known."""
        return not self.fault and not self.unseen


@dataclass(frozen=True)
class ServedEvent:
    """One line of the event log: number (from 1), time in seconds since 1970, name and data."""

    number: int
    time_s: float
    event: str
    data: Mapping[str, Any]


@dataclass(frozen=True)
class ServedCurve:
    """Readings of a running scan over the setting that it changes.

    Attributes:
        setting: Name of the setting.
        setting_unit: Unit of the setting.
        x: Values of the setting.
        unit: Unit of all readings.
        readings: Values by name of the reading, one per value of the setting; ``None`` without a number.
    """

    setting: str
    setting_unit: str
    x: tuple[float, ...]
    unit: str
    readings: Mapping[str, tuple[float | None, ...]]

    @classmethod
    def from_document(cls, document: object) -> ServedCurve:
        """Check a curve that a client has sent. Raises ``ConfigError`` if it is too large or has another form."""
        try:
            fields: Mapping[str, Any] = dict(document)  # type: ignore[call-overload] # checked here
            x = tuple(float(value) for value in fields["x"])
            readings = {
                str(name)[:_MAX_CURVE_NAME]: tuple(None if value is None else float(value) for value in values)
                for name, values in fields["readings"].items()
            }
            texts = (str(fields[name])[:_MAX_CURVE_NAME] for name in ("setting", "setting_unit", "unit"))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"this is not the curve of a scan ({error!r})") from error
        numbers = [value for values in (x, *readings.values()) for value in values]
        if len(numbers) > MAX_CURVE_NUMBERS or any(len(values) != len(x) for values in readings.values()):
            raise ConfigError(
                f"a curve with {len(numbers)} numbers in {len(readings)} readings of {len(x)} points is not shown",
                hint=f"Send equally many values for each reading, and at most {MAX_CURVE_NUMBERS} numbers.",
            )
        setting, setting_unit, unit = texts
        return cls(setting, setting_unit, x, unit, readings)


@dataclass(frozen=True)
class ServedJob:
    """A task that a client has started, such as a calibration.

    Attributes:
        kind: Name of the call, such as ``connect``; ``scan`` if an attached program runs it.
        begun_s: Start time, in seconds since 1970.
        done: Number of completed steps of the current stage.
        total: Number of steps of the current stage; 0 if unknown.
        residuals: Fit residuals of the completed stages of a calibration, by names with units.
        stages: Names of the last stages, with their start times in seconds since 1970.
        residual_log: Time in seconds since 1970, name and value of the last residuals, oldest first.
        error: Reason of a failure; empty without one.
        curve: Readings so far of a scan; ``None`` without them.
    """

    number: int
    kind: str
    by: str
    begun_s: float
    stage: str = ""
    done: int = 0
    total: int = 0
    residuals: Mapping[str, float] = field(default_factory=dict)
    is_over: bool = False
    error: str = ""
    result: Any = None
    stages: tuple[tuple[str, float], ...] = ()
    residual_log: tuple[tuple[float, str, float], ...] = ()
    curve: ServedCurve | None = None

    def with_progress(self, now_s: float, stage: str, done: int, total: int) -> ServedJob:
        """Return the job with new progress; a new stage begins at ``now_s``, in seconds since 1970."""
        is_new = not self.stages or self.stages[-1][0] != stage
        stages = (*self.stages, (stage, now_s))[-MAX_STAGES:] if is_new else self.stages
        return replace(self, stage=stage, done=done, total=total, stages=stages)

    def with_residual(self, now_s: float, name: str, value: float) -> ServedJob:
        """Return the job with another residual, measured at ``now_s``, in seconds since 1970."""
        log = (*self.residual_log, (now_s, name, value))[-MAX_RESIDUALS:]
        return replace(self, residuals={**self.residuals, name: value}, residual_log=log)


@dataclass(frozen=True)
class ServedLease:
    """The lease: the right of one client to change the bench.

    Attributes:
        owner: Name of the holder; empty if no client holds the lease.
        number: Number that increases with every lease, also across restarts.
        since_s: Time at which the lease was taken, in seconds since 1970.
        left_s: Time in seconds until the lease ends if its holder sends no request.
    """

    owner: str = ""
    number: int = 0
    since_s: float = 0.0
    age_s: float = 0.0
    left_s: float = 0.0


@dataclass(frozen=True)
class ServedHealth:
    """Health of the server and the devices.

    Attributes:
        started_s: Start time of the server, in seconds since 1970.
        silent: Devices that do not answer: since when (seconds since 1970) and why, by name.
        keeps: What the server maintains: ``nothing``, ``circuits`` or ``fabric``.
        trouble: Reason why circuits or fabric are not maintained; empty while they are.
        faults: Latched faults of the mesh controller; with any fault all heaters are off and every circuit is dark.
    """

    started_s: float
    silent: Mapping[str, tuple[float, str]]
    keeps: str
    trouble: str = ""
    faults: tuple[str, ...] = ()


@dataclass(frozen=True)
class ServedState:
    """The complete state of a served bench at one moment.

    Attributes:
        time_s: Time of day on the server, in seconds since 1970.
        points: Readings and settings by name, in the order of the bench.
        mesh: The mesh; ``None`` if the bench has no mesh with heater currents.
        events: The last events, oldest first.
        job: The running or last job; ``None`` before the first.
        record_sha256: Hash of the calibration record; empty without a record.
        fabric: Jobs, servers, spares and the last recovery; ``None`` if the bench file has no servers.
        joined: Circuits over several meshes; ``None`` if this server does not watch them.
    """

    number: int
    time_s: float
    bench: str
    points: Mapping[str, Point]
    mesh: ServedMesh | None
    circuits: tuple[ServedCircuit, ...]
    events: tuple[ServedEvent, ...]
    job: ServedJob | None
    lease: ServedLease
    health: ServedHealth
    record_sha256: str = ""
    is_emulated: bool = False
    fabric: FabricStatus | None = None
    joined: JoinedStatus | None = None

    @property
    def fabric_alarms(self) -> tuple[FabricAlarm, ...]:
        """Alarms of the fabric and of the circuits over several meshes."""
        return tuple(alarm for part in (self.fabric, self.joined) if part is not None for alarm in part.alarms)

    @property
    def recovery(self) -> RecoveryStatus | None:
        """The last recovery; ``None`` before the first."""
        return None if self.fabric is None else self.fabric.recovery


def alarm_severity(severity: Severity) -> AlarmSeverity:
    """Return the severity of an alarm of the fabric with its EPICS number."""
    return AlarmSeverity[severity.upper()]


@dataclass(frozen=True)
class MarginSample:
    """Power margins of the active circuits at one time.

    Attributes:
        time_s: Time, in seconds since 1970.
        margin_db: Margin by circuit name; ``None`` without light or measurement.
    """

    time_s: float
    margin_db: Mapping[str, float | None]
