"""The optical transponder or pluggable module, and what a coherent one can do beyond that."""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from lumion_hw.interfaces.quality import Quality


@dataclass(frozen=True)
class TransponderIdentity:
    """Who the module says it is.

    Attributes:
        vendor: Vendor name.
        part_number: Part number.
        revision: Revision.
        serial: Serial number.
        date_code: Date code, ``YYMMDD`` plus lot.
        technology: What it is, such as ``10GBASE-ER``.
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
    """Module monitors. Powers are ``None`` below the module's measurable range.

    Attributes:
        temperature_c: Case temperature.
        supply_v: Supply voltage.
        tx_bias_ma: Laser bias; ``None`` if the module does not measure it.
        tx_power_dbm: Launched power as the module sees it.
        rx_power_dbm: Received power as the module sees it.
        timestamp_s: Host clock when the values were read.
    """

    temperature_c: float
    supply_v: float
    tx_bias_ma: float | None
    tx_power_dbm: float | None
    rx_power_dbm: float | None
    timestamp_s: float


@dataclass(frozen=True)
class SignalStatus:
    """Live status bits.

    Attributes:
        rx_los: Loss of signal at the receiver.
        tx_fault: The transmitter has shut itself down.
        tx_disabled: Transmitter switched off, by pin or by software.
        data_ready: Monitor values are valid.
        timestamp_s: Host clock when the bits were read.
    """

    rx_los: bool
    tx_fault: bool
    tx_disabled: bool
    data_ready: bool
    timestamp_s: float


class Transponder(Protocol):
    """An optical module. Thread-safe; what a module cannot do raises ``NotSupportedError``."""

    def identify(self) -> TransponderIdentity:
        """Read and check the identity."""

    def can_switch(self) -> bool:
        """Tell whether the transmitter can be switched by software, and whether it is on can be read."""

    def enable(self) -> None:
        """Switch the transmitter on and wait until the module reports power in its window.

        Raises:
            DeviceError: The module reports a fault or no power within its start-up time.
        """

    def disable(self) -> None:
        """Switch the transmitter off and verify that it is dark."""

    def monitors(self) -> Monitors:
        """Read the module's monitors."""

    def status(self) -> SignalStatus:
        """Read the module's live status bits."""

    def close(self) -> None:
        """Release the link; idempotent. The transmitter is left as it is."""


@dataclass(frozen=True)
class Application:
    """One way to run a module: an interface on each side, and the lanes it takes.

    Attributes:
        number: AppSel code, from 1.
        host_interface: Host electrical interface in words.
        media_interface: Media interface in words.
        host_lanes: Host lanes it takes.
        media_lanes: Media lanes it takes.
        first_host_lanes: Host lanes, from 1, on which it may begin.
        first_media_lanes: Media lanes, from 1, on which it may begin.
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
    """One grid of a laser and the frequencies on it that the module can make, both ends included."""

    grid: str
    spacing_ghz: float
    min_thz: float
    max_thz: float


@dataclass(frozen=True)
class TransponderCapabilities:
    """What a module says of itself.

    Attributes:
        applications: Ways to run it.
        tunable: It has a tunable laser.
        coherent: It is a coherent module with link performance pages.
        tuning: Grids and ranges; empty if it is not tunable.
        fine_tuning_ghz: Lowest and highest fine offset and its step; ``None`` without fine tuning.
        tx_power_dbm: Lowest and highest output power that can be set; ``None`` if it cannot be set.
        durations_s: Longest time of each stage, as advertised; ``None`` where the module states no bound.
        monitors: Names of the monitors it has.
        loopbacks: Names of the loopbacks it has.
        performance: Quantities that its link performance has, with their units; none if it measures none.
        statistics: It counts and averages over intervals that a freeze ends.
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
    """How a laser was tuned: what was written, and the frequency it then reported."""

    grid: str
    channel: int
    fine_ghz: float
    frequency_thz: float


@dataclass(frozen=True)
class TransponderSettings:
    """What a module has been told.

    Attributes:
        powered: It is out of low power.
        enabled: Its transmitter is on.
        applications: AppSel code of every data path, by its first host lane.
        frequency_thz: Frequency of its laser; ``None`` if it is not tunable, or has not been told a grid it knows.
        tx_power_dbm: Output power; ``None`` if it cannot be set.
    """

    powered: bool
    enabled: bool
    applications: Mapping[int, int]
    frequency_thz: float | None
    tx_power_dbm: float | None


@dataclass(frozen=True)
class Reading:
    """A value with what it is worth.

    Attributes:
        value: The value in ``unit``; ``None`` if the quality says that there is none.
        unit: Unit; empty for ratios and counts.
        quality: What it is worth. A value that is not ``OK`` is no measurement.
        source: Register it came from.
    """

    value: float | None
    unit: str
    quality: Quality
    source: str

    def __repr__(self) -> str:
        """Return one line."""
        value = "nothing" if self.value is None else f"{self.value:.6g} {self.unit}".rstrip()
        worth = "" if self.quality is Quality.OK else f", {self.quality.value}"
        return f"<Reading {value}{worth}, from {self.source}>"


@dataclass(frozen=True)
class LinkQuantity:
    """One quantity of a link: now, and over the interval that just ended. A member is ``None`` if nothing gives it.

    Attributes:
        current: Value now.
        average: Average over the interval.
        minimum: Least value in the interval.
        maximum: Largest value in the interval.
        others: The same quantity from other places of the memory, for comparison.
    """

    current: Reading | None = None
    average: Reading | None = None
    minimum: Reading | None = None
    maximum: Reading | None = None
    others: tuple[Reading, ...] = ()

    @property
    def best(self) -> Reading | None:
        """The value now, or else the average."""
        return self.current or self.average


@dataclass(frozen=True)
class Performance:
    """Link performance of one interval.

    Attributes:
        timestamp_s: Host clock when the values were read.
        interval: Number of the interval since the module was opened, from 1.
        interval_start_s: Host clock at its start; ``None`` for the first one, which began before the module was opened.
        interval_end_s: Host clock at its end.
        quantities: By name: ``prefec_ber``, ``osnr``, ``esnr``, ``cd``, ``dgd``, ``pdl``, ``q`` and so on.
        remarks: What did not fit together, in words.
    """

    timestamp_s: float
    interval: int
    interval_start_s: float | None
    interval_end_s: float
    quantities: Mapping[str, LinkQuantity]
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class StickyFlag:
    """A flag that has been seen; only the user clears it.

    Attributes:
        name: Name of the flag, such as ``rx_los``.
        lane: Lane, or ``None`` for a flag of the whole module.
        first_seen_s: Host clock when it was first seen.
        last_seen_s: Host clock when it was last seen.
        count: How often it was found set.
    """

    name: str
    lane: int | None
    first_seen_s: float
    last_seen_s: float
    count: int


class LockStage(enum.Enum):
    """What a link is waiting for, in the order of docs/transponders.md, "Why is there no link?"."""

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
    """Whether a link is up, and if not, what holds it up.

    Attributes:
        stage: Where it stands.
        detail: The same in words.
        lane: Lane that holds it up, if one does.
        code: The register's code that says so.
        code_name: That code in words.
        flag: Name of the flag that says so.
        values: Values and limits that were compared, by name with unit.
        elapsed_s: How long the wait took.
        stages: How long each stage was seen, in the order in which they were first seen.
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
    """A module with applications, a tunable laser and a coherent receiver.

    A refused request raises and names lane and code; a stage that takes longer than the module advertised raises
    ``DeviceTimeoutError`` and names the stage.
    """

    def capabilities(self) -> TransponderCapabilities:
        """Return what the module says of itself."""

    def power_up(self) -> None:
        """Bring the module out of low power, and wait until it is ready; a transmitter that was dark stays dark."""

    def power_down(self) -> None:
        """Put the module in low power, and wait until it is."""

    def select_application(self, number: int, first_lane: int | None = None) -> None:
        """Run an application from a host lane on, by default the first one that it may begin on.

        The transmitter is off afterwards; data paths on other lanes are left alone.

        Raises:
            ConfigError: The module does not offer it there.
            ConfigRejectedError: The module refused it.
        """

    def tune(self, frequency_thz: float, grid_ghz: float | None = None) -> TuningResult:
        """Tune the laser, and verify the frequency. A transmitter that was on comes on again.

        Raises:
            LimitError: The module cannot make this frequency; nothing was changed.
            DeviceError: The module refused it.
        """

    def set_tx_power_dbm(self, power_dbm: float) -> None:
        """Set the output power. Raises ``LimitError`` outside the module's range; nothing was changed then."""

    def settings(self) -> TransponderSettings:
        """Read what the module has been told."""

    def wait_for_lock(self, timeout_s: float) -> LockReport:
        """Wait until the link is up, at most ``timeout_s`` from now, and report what held it up.

        Raises nothing that a report can say: a module that is gone is a stage as well.
        """

    def performance(self) -> Performance:
        """End an interval of the module's statistics and return what it measured."""

    def flags(self) -> Collection[StickyFlag]:
        """Read the flags, and return all seen since the last :meth:`clear_flags`."""

    def clear_flags(self) -> None:
        """Forget the flags seen so far; one whose cause lasts comes back at the next read."""


@runtime_checkable
class BreakoutTransponder(CoherentTransponder, Protocol):
    """A module that runs several data paths side by side, such as 4x100G from one 400G-DR4.

    A data path is one instance of an application: host lanes that go with media lanes, named by its first host lane.
    The calls of the module itself are about all its data paths: ``enable`` switches all of them on, its status is that
    of a dark module only if all are dark, and its link is up when all are.
    """

    def path(self, first_lane: int) -> CoherentTransponder:
        """Return one data path, whose calls leave the light of all others alone. Its ``close`` does nothing.

        Args:
            first_lane: First host lane, from 1.

        Raises:
            ConfigError: No application begins on this host lane.
        """
