"""Interfaces of optical transponders."""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from lumion_hw.interfaces.quality import Quality


@dataclass(frozen=True)
class TransponderIdentity:
    """Identity that the module reports.

    Attributes:
        date_code: Date code, ``YYMMDD`` plus lot.
        technology: Type of the module, such as ``10GBASE-ER``.
        wavelength_nm: Nominal wavelength.
    """

    vendor: str
    part_number: str
    revision: str
    serial: str
    date_code: str
    technology: str
    wavelength_nm: float


@dataclass(frozen=True)
class Monitors:
    """Readings of a module's own monitors. Powers below the measurable range are ``None``.

    Attributes:
        temperature_c: Case temperature; ``None`` if the module does not measure it, as most copper cables.
        supply_v: Supply voltage; ``None`` if the module does not measure it.
        tx_bias_ma: Laser bias; ``None`` if the module does not measure it.
        tx_power_dbm: Launched power; also ``None`` if the module does not measure it, as copper cables.
        rx_power_dbm: Received power, likewise.
        timestamp_s: Host clock when the values were read.
    """

    temperature_c: float | None
    supply_v: float | None
    tx_bias_ma: float | None
    tx_power_dbm: float | None
    rx_power_dbm: float | None
    timestamp_s: float


@dataclass(frozen=True)
class LaneMonitors:
    """Readings of one lane. A quantity that is not measured, or a power below the measurable range, is ``None``.

    Attributes:
        lane: Lane, from 1.
        tx_bias_ma: Laser bias.
        tx_power_dbm: Launched power.
        rx_power_dbm: Received power: the average, or for some modules the modulation amplitude (OMA).
    """

    lane: int
    tx_bias_ma: float | None
    tx_power_dbm: float | None
    rx_power_dbm: float | None


@dataclass(frozen=True)
class SignalStatus:
    """Live status of a module.

    Attributes:
        rx_los: Whether the receiver has lost its signal.
        tx_fault: Whether the transmitter has shut itself down.
        tx_disabled: Whether the transmitter is switched off, by pin or by software.
        data_ready: Whether the monitor values are valid.
        timestamp_s: Host clock when the status was read.
    """

    rx_los: bool
    tx_fault: bool
    tx_disabled: bool
    data_ready: bool
    timestamp_s: float


class Transponder(Protocol):
    """An optical module. Thread-safe; unsupported operations raise ``NotSupportedError``."""

    def identify(self) -> TransponderIdentity:
        """Read the identity of the module. Raises ``IdentityError`` if the module is not the expected one."""

    def can_switch(self) -> bool:
        """Return whether software can switch the transmitter and read its state."""

    def enable(self) -> None:
        """Switch the transmitter on and wait until the module reports a power within its limits.

        Raises:
            DeviceError: The module reports a fault, or no power within its start-up time.
        """

    def disable(self) -> None:
        """Switch the transmitter off and verify that it is dark."""

    def monitors(self) -> Monitors:
        """Read the module's monitors."""

    def status(self) -> SignalStatus:
        """Read the live status."""

    def close(self) -> None:
        """Release the link; idempotent. The transmitter stays as it is."""


@dataclass(frozen=True)
class Application:
    """One application of a module: its host interface, its media interface, and their lanes.

    Attributes:
        number: Number in the module's list (AppSel code), from 1.
        first_host_lanes: Host lanes, from 1, on which the application may begin.
        first_media_lanes: Media lanes, from 1, on which the application may begin.
        media_id: Code of the media interface.
        host_id: Code of the host interface.
    """

    number: int
    host_interface: str
    media_interface: str
    host_lanes: int
    media_lanes: int
    first_host_lanes: tuple[int, ...]
    first_media_lanes: tuple[int, ...]
    media_id: int
    host_id: int


@dataclass(frozen=True)
class TuningRange:
    """One frequency grid of a laser, with its lowest and highest frequency."""

    grid: str
    spacing_ghz: float
    min_thz: float
    max_thz: float


@dataclass(frozen=True)
class TransponderCapabilities:
    """Capabilities that a module advertises.

    Attributes:
        applications: Available applications.
        tunable: Whether the module has a tunable laser.
        coherent: Whether the module is coherent.
        tuning: Frequency grids; empty if the laser cannot be tuned.
        fine_tuning_ghz: Lowest and highest fine-tuning offset and its step; ``None`` without fine tuning.
        tx_power_dbm: Lowest and highest output power; ``None`` if the power cannot be set.
        durations_s: Longest duration of each state change; ``None`` if not advertised.
        monitors: Names of the available monitors.
        loopbacks: Names of the available loopbacks.
        performance: Units of the available link performance quantities, by name.
        statistics: Whether the module collects statistics over intervals.
    """

    applications: tuple[Application, ...]
    tunable: bool
    coherent: bool
    tuning: tuple[TuningRange, ...]
    fine_tuning_ghz: tuple[float, float, float] | None
    tx_power_dbm: tuple[float, float] | None
    durations_s: Mapping[str, float | None]
    monitors: tuple[str, ...]
    loopbacks: tuple[str, ...]
    performance: Mapping[str, str]
    statistics: bool


@dataclass(frozen=True)
class TuningResult:
    """Result of tuning a laser: the settings written, and the frequency that the laser reports."""

    grid: str
    channel: int
    fine_ghz: float
    frequency_thz: float


@dataclass(frozen=True)
class TransponderSettings:
    """Present settings of a module.

    Attributes:
        powered: Whether the module is out of low-power mode.
        enabled: Whether the transmitter is on.
        applications: Number of the application (AppSel code) of each data path, by first host lane.
        frequency_thz: Laser frequency; ``None`` if the laser cannot be tuned or its grid is unknown.
        tx_power_dbm: Output power; ``None`` if it cannot be set.
    """

    powered: bool
    enabled: bool
    applications: Mapping[int, int]
    frequency_thz: float | None
    tx_power_dbm: float | None


@dataclass(frozen=True)
class Reading:
    """A measured value of a module with its quality.

    Attributes:
        value: Value in ``unit``; ``None`` without a value.
        unit: Unit; empty for ratios and counts.
        quality: Quality of the value. Only an ``OK`` value is a measurement.
        source: Register from which the value was read.
    """

    value: float | None
    unit: str
    quality: Quality
    source: str

    def __repr__(self) -> str:
        value = "nothing" if self.value is None else f"{self.value:.6g} {self.unit}".rstrip()
        quality_text = "" if self.quality is Quality.OK else f", {self.quality.value}"
        return f"<Reading {value}{quality_text}, from {self.source}>"


@dataclass(frozen=True)
class LinkQuantity:
    """A quantity of a link: its present value and its statistics over the last interval; ``None`` where unavailable.

    ``others`` contains the same quantity from other registers, for comparison.
    """

    current: Reading | None = None
    average: Reading | None = None
    minimum: Reading | None = None
    maximum: Reading | None = None
    others: tuple[Reading, ...] = ()

    @property
    def best(self) -> Reading | None:
        """Present value, or the average if there is no present value."""
        return self.current or self.average


@dataclass(frozen=True)
class Performance:
    """Link performance over one statistics interval of the module.

    Attributes:
        timestamp_s: Host clock when the values were read.
        interval: Number of the interval since the module was opened, from 1.
        interval_start_s: Host clock at the start of the interval; ``None`` for the first.
        interval_end_s: Host clock at the end of the interval.
        quantities: Quantities by name: ``prefec_ber``, ``osnr``, ``esnr``, ``cd``, ``dgd``, ``pdl``, ``q`` and so on.
        remarks: Inconsistencies between the values, in plain words.
    """

    timestamp_s: float
    interval: int
    interval_start_s: float | None
    interval_end_s: float
    quantities: Mapping[str, LinkQuantity]
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class StickyFlag:
    """A flag that was set at least once since the user cleared it.

    Attributes:
        name: Name of the flag, such as ``rx_los``.
        lane: Lane; ``None`` for a flag of the whole module.
        first_seen_s: Host clock when the flag was first read as set.
        last_seen_s: Host clock when the flag was last read as set.
        count: Number of reads in which the flag was set.
    """

    name: str
    lane: int | None
    first_seen_s: float
    last_seen_s: float
    count: int


class LockStage(enum.Enum):
    """Step that a link has not passed yet, in the order of docs/transponders.md, "Why is there no link?"."""

    ABSENT = "absent"
    NOT_RESPONDING = "not_responding"
    FAULT = "fault"
    LOW_POWER = "low_power"
    POWERING_UP = "powering_up"
    CONFIG_REJECTED = "config_rejected"
    CONFIG_IN_PROGRESS = "config_in_progress"
    DP_INIT = "dp_init"
    TX_DISABLED = "tx_disabled"
    TX_FAILURE = "tx_failure"
    TUNING = "tuning"
    TUNING_REJECTED = "tuning_rejected"
    WAVELENGTH_UNLOCKED = "wavelength_unlocked"
    RX_LOS = "rx_los"
    RX_POWER_LOW = "rx_power_low"
    RX_POWER_HIGH = "rx_power_high"
    RX_LOL = "rx_lol"
    BER_HIGH = "ber_high"
    BER_STALE = "ber_stale"
    LOCKED = "locked"


@dataclass(frozen=True)
class LockReport:
    """Whether a link is up, and if not, the reason.

    Attributes:
        stage: Step that the link has not passed yet.
        detail: Description of the stage and its cause.
        lane: Lane that keeps the link down; ``None`` if the cause is not a single lane.
        code: Register code that identifies the stage.
        code_name: Name of this register code.
        flag: Name of the flag that identifies the stage.
        values: Values and limits that were compared, by name with unit.
        elapsed_s: Duration of the wait.
        stages: Duration of each stage, in the order of first appearance.
    """

    stage: LockStage
    detail: str
    lane: int | None = None
    code: int | None = None
    code_name: str = ""
    flag: str = ""
    values: Mapping[str, float] = field(default_factory=dict)
    elapsed_s: float = 0.0
    stages: tuple[tuple[LockStage, float], ...] = ()

    @property
    def locked(self) -> bool:
        """Whether the link is up."""
        return self.stage is LockStage.LOCKED


@runtime_checkable
class CoherentTransponder(Transponder, Protocol):
    """A module with a tunable laser and a coherent receiver.

    A state change that takes longer than the module advertised raises ``DeviceTimeoutError``.
    """

    def capabilities(self) -> TransponderCapabilities:
        """Return the capabilities that the module advertises."""

    def power_up(self) -> None:
        """Leave low-power mode and wait until the module is ready. The transmitter stays dark if it was dark."""

    def power_down(self) -> None:
        """Enter low-power mode and wait until the module confirms it."""

    def select_application(self, number: int, first_lane: int | None = None) -> None:
        """Run an application (a host and a media interface), by default from the first possible host lane.

        The transmitter is off afterwards. Other lanes do not change.

        Raises:
            ConfigError: The module does not offer the application on this lane.
            ConfigRejectedError: The module refused the application.
        """

    def tune(self, frequency_thz: float, grid_ghz: float | None = None) -> TuningResult:
        """Tune the laser and verify the frequency. A transmitter that was on is on again afterwards.

        Raises:
            LimitError: The module cannot emit this frequency; nothing was changed.
            DeviceError: The module refused the frequency.
        """

    def set_tx_power_dbm(self, power_dbm: float) -> None:
        """Set the output power. Raises ``LimitError``, and changes nothing, if the power is out of range."""

    def settings(self) -> TransponderSettings:
        """Read the present settings of the module."""

    def wait_for_lock(self, timeout_s: float) -> LockReport:
        """Wait until the link is up. Return a report, with the reason if the link stays down.

        Problems are reported, not raised; even a missing module is reported.

        Args:
            timeout_s: Longest wait, from now.
        """

    def performance(self) -> Performance:
        """End the module's statistics interval and return the link performance in it."""

    def flags(self) -> Collection[StickyFlag]:
        """Read the flags and return all flags seen since the last :meth:`clear_flags`."""

    def clear_flags(self) -> None:
        """Clear the stored flags. A flag whose cause persists returns at the next read."""


@runtime_checkable
class BreakoutTransponder(CoherentTransponder, Protocol):
    """A module that runs several independent data paths, such as 4x100G in one 400G-DR4.

    A data path is a set of host and media lanes that run one application. Calls on the module itself act on all data
    paths, and its link is up when all are up.
    """

    def path(self, first_lane: int) -> CoherentTransponder:
        """Return the data path that begins on host lane ``first_lane``, counted from 1.

        Raises:
            ConfigError: No application begins on this host lane.
        """


@runtime_checkable
class LanedTransponder(Transponder, Protocol):
    """A module whose media lanes can be connected to fibres one by one."""

    def media_lane(self, number: int) -> Transponder:
        """Return the driver of one media lane, from 1. Closing it does not close the module.

        Raises:
            ConfigError: The module does not have this lane.
        """


@runtime_checkable
class LaneMonitoring(Protocol):
    """A module that measures each of its lanes."""

    def lane_monitors(self) -> tuple[LaneMonitors, ...]:
        """Read the monitors of all lanes."""


@runtime_checkable
class MonitorAdvertising(Protocol):
    """A module that advertises which monitors it has."""

    def missing_monitors(self) -> frozenset[str]:
        """Return the quantities of ``Monitors`` that the module does not measure; empty if unknown. Reads nothing."""
