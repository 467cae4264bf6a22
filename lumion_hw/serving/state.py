"""The state of a served bench at one moment: immutable values, from which PV Access, page and metrics are made."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from lumion_hw.fabric.spans import Span
from lumion_hw.mesh.layout.topology import State

PointValue = float | int | bool | str | NDArray[np.float64] | None
"""A number, a text, a boolean or a one-dimensional array; ``None`` if the point was never read."""


class AlarmSeverity(enum.IntEnum):
    """Alarm severity of a value, with the numbers of EPICS."""

    NONE = 0
    MINOR = 1
    MAJOR = 2
    INVALID = 3


@dataclass(frozen=True)
class Point:
    """One reading or setting of the bench.

    Attributes:
        name: ``device.quantity``, with ``.channel`` if the device has several channels.
        value: The last read value; stale if ``severity`` is ``INVALID``.
        unit: Unit of numbers; empty for texts and booleans.
        limits: Lowest and highest value that may be written; ``None`` for readings and unknown limits.
        writable: Whether the point can be set.
        taken_s: Time at which the value was read, in seconds since 1970.
        severity: ``INVALID`` if there is no value, or if it is stale because the device is silent.
        alarm: Reason of the severity; empty without an alarm.
        choices: Texts that may be written; empty unless ``kind`` is ``choice``.
        kind: Type of the value, also before it was first read.
    """

    name: str
    value: PointValue
    unit: str = ""
    limits: tuple[float, float] | None = None
    writable: bool = False
    taken_s: float = 0.0
    severity: AlarmSeverity = AlarmSeverity.NONE
    alarm: str = ""
    choices: tuple[str, ...] = ()
    kind: Literal["number", "flag", "choice", "array"] = "number"


@dataclass(frozen=True)
class ServedPath:
    """One path of a circuit through the mesh.

    Attributes:
        circuit: Name of the circuit.
        source: Input port.
        target: Output port.
        pucs: PUCs along the path, in order.
        power_dbm: Power in the waveguide before the first PUC, between PUCs and after the last, so one more value than
            ``pucs``; calculated from the calibration. ``None`` if unknown.
    """

    circuit: str
    source: int
    target: int
    pucs: tuple[int, ...]
    power_dbm: tuple[float | None, ...]


@dataclass(frozen=True)
class ServedMesh:
    """The mesh, with the data that ``lumion mesh show`` draws.

    Attributes:
        states: State of each PUC whose state is known, parked PUCs included.
        heat_mw: Power of both heaters of each PUC, from the present currents, shape ``(n_pucs,)``.
        parked: Unused PUCs whose state diverts stray light.
        dead: PUCs that the calibration marks as broken.
        paths: Paths of the active circuits.
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
        name: Names of its modules, such as ``sfp-a:sfp-b``.
        source: Device name of the transmitting module.
        target: Device name of the receiving module.
        since_s: Time of its set-up, in seconds since 1970.
        age_s: Time since its set-up, in seconds.
        lease_left_s: Time until its lease ends, in seconds; ``None`` for a circuit without a lease.
        seen_s: Time of its last measurement, in seconds since 1970; ``None`` if never measured.
        proof: Last measured values, with units in the names (:class:`~lumion_hw.circuits.ActiveCircuit`).
        lost_db: Increase of the loss since set-up, in dB; ``None`` without light or without a measurement.
        marks: Warnings about the circuit, such as ``degraded: ...``.
        fault: Reason why the circuit is broken; empty while it carries light.
        severity: ``MAJOR`` if broken, ``INVALID`` if unknown, ``MINOR`` with warnings.
        unseen: Reason why the present condition is unknown and ``proof`` and ``lost_db`` are old; empty if known.
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

    @property
    def margin_db(self) -> float | None:
        """Last measured power margin over the receiver sensitivity, in dB; ``None`` while the circuit is broken."""
        return None if self.fault else self.proof.get("margin_db")

    @property
    def alarm(self) -> str:
        """Reason of the severity; empty without an alarm."""
        return self.fault or self.unseen or "; ".join(self.marks)

    @property
    def is_known(self) -> bool:
        """Whether the circuit works and its present margin is known."""
        return not self.fault and not self.unseen


@dataclass(frozen=True)
class ServedEvent:
    """One line of the event log: its number (from 1), time in seconds since 1970, name and data."""

    number: int
    time_s: float
    event: str
    data: Mapping[str, Any]


@dataclass(frozen=True)
class ServedRecovery:
    """The last recovery of the fabric.

    Attributes:
        time_s: Time of the report, in seconds since 1970.
        failed: Name of the replaced server or accelerator; empty if a path was replaced.
        spare: Name of the spare that replaced it; empty if a path was replaced.
        words: Reason of the recovery.
        spans: Durations of the steps of the recovery, in order, starting with the detection.
    """

    time_s: float
    failed: str
    spare: str
    words: str
    spans: tuple[Span, ...]


@dataclass(frozen=True)
class ServedJob:
    """A long task that a client has started: a connect, a calibration, a recovery.

    Attributes:
        number: Running number of the job.
        what: ``connect``, ``disconnect``, ``calibrate``, ``recover``, ``fail`` or ``repaired``.
        by: Name of the client that started the job.
        begun_s: Start time, in seconds since 1970.
        stage: Name of the current stage.
        done: Number of completed steps of this stage.
        total: Number of steps of this stage; 0 if unknown.
        residuals: Fit residuals of the finished stages of a calibration, by names with units
            (:func:`calibration.run.journaled_run.calibrate`).
        is_over: Whether the job has ended.
        error: Reason of a failure; empty without one.
        result: Result as a JSON value.
    """

    number: int
    what: str
    by: str
    begun_s: float
    stage: str = ""
    done: int = 0
    total: int = 0
    residuals: Mapping[str, float] = field(default_factory=dict)
    is_over: bool = False
    error: str = ""
    result: Any = None


@dataclass(frozen=True)
class ServedLease:
    """The lease: the right to change the bench.

    Attributes:
        owner: Name of the holder; empty if no client holds the lease.
        number: Fencing number; it only grows, also across restarts.
        since_s: Time at which the lease was taken, in seconds since 1970.
        age_s: Time since the lease was taken, in seconds.
        left_s: Time until the lease ends without a request from its holder, in seconds.
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
        silent: Silent devices by name: start of the silence in seconds since 1970, and its reason.
        keeps: What the server maintains: ``nothing``, ``circuits`` or ``fabric``.
        trouble: Reason why circuits or fabric are not maintained now; empty while they are.
        faults: Latched faults of the mesh controller with their measured values; with any fault all heaters are off and
            every circuit is dark.
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
        number: Running number of the state.
        time_s: Time of day on the server, in seconds since 1970.
        bench: Name of the bench.
        points: Readings and settings by name, in the order of the bench.
        mesh: The mesh; ``None`` if the bench has no mesh with heater currents.
        circuits: The active circuits.
        events: The last events, oldest first.
        recovery: The last recovery; ``None`` before the first.
        job: The running or last job; ``None`` before the first.
        lease: The lease.
        health: Health of the server and the devices.
        record_sha256: Content hash of the calibration record in use; empty without a record.
        is_emulated: Whether the bench is emulated.
    """

    number: int
    time_s: float
    bench: str
    points: Mapping[str, Point]
    mesh: ServedMesh | None
    circuits: tuple[ServedCircuit, ...]
    events: tuple[ServedEvent, ...]
    recovery: ServedRecovery | None
    job: ServedJob | None
    lease: ServedLease
    health: ServedHealth
    record_sha256: str = ""
    is_emulated: bool = False


@dataclass(frozen=True)
class MarginSample:
    """Power margins of the active circuits at one time, for curves over time.

    Attributes:
        time_s: Time, in seconds since 1970.
        margin_db: Margin in dB by circuit name; ``None`` without light or without a measurement.
    """

    time_s: float
    margin_db: Mapping[str, float | None]
