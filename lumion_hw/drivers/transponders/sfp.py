"""Driver of SFP and SFP+ modules (SFF-8472, SFF-8431)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from lumion_hw.clock import Clock
from lumion_hw.drivers.life_cycle import Driver, close_on_error, not_open
from lumion_hw.drivers.transponders.sfp_diagnostics import (
    DIAGNOSTIC_BYTES,
    MONITORS,
    CalibrationKind,
    DiagnosticCalibration,
    OpticalPower,
    Thresholds,
    implausibility_text,
    raw_count,
)
from lumion_hw.drivers.transponders.sfp_identity import (
    IDENTITY_BYTES,
    SFP_IDENTIFIER,
    Capabilities,
    capabilities_of,
    identity_of,
)
from lumion_hw.drivers.transponders.sfp_memory import MONITOR_START, SOFT_CONTROL_S, TOLERATED, SfpMemory
from lumion_hw.drivers.transponders.switching import dark_after_failure
from lumion_hw.errors import (
    DeviceAddress,
    DeviceError,
    IdentityError,
    NotSupportedError,
    OutOfRangeError,
    VerifyError,
)
from lumion_hw.interfaces import Monitors, RangeState, SignalStatus, TransponderIdentity
from lumion_hw.sessions.module.registers import (
    ModuleAbsentError,
    NotRespondingError,
    RegisterAccess,
    ShortReadError,
)
from lumion_hw.standards.cmis.interface_ids import CMIS_IDENTIFIERS
from lumion_hw.standards.sff8472.image import SfpImage
from lumion_hw.standards.sff8472.registers import A0H, A2H, CHECKSUMS, MEMORY_SIZE
from lumion_hw.standards.sff8636.codes import SFF8636_IDENTIFIERS

BUS_READY_S = 2.0
"""Time until the identity of a newly inserted module can be read, in s; SFF-8431 specifies 0.3 s."""
DATA_READY_S = 1.0
"""Time until the first monitor values are valid, in s."""
START_UP_S = 2.0
"""Time until an uncooled transmitter reports its power, in s."""
COOLED_START_UP_S = 90.0
"""Time until a cooled transmitter reports its power, in s (SFF-8431)."""
SWITCH_OFF_S = 0.5
"""Time in s until the monitors show that the transmitter is off."""
DARK_DBM = -30.0
"""Power below which a transmitter is off, in dBm (IEEE 802.3 Table 52-16)."""
_POLL_S = 0.1  # modules refresh monitors at about 10 Hz
_RE_INITIALISE_S = 0.3  # after clearing a latched fault (SFF-8431)
_FLAG_CONFIRM_S = 0.1
_DUMP_BYTES = 128  # the lower and upper halves are separate units (SFF-8472 clause 4)


@dataclass(frozen=True)
class Flag:
    """Alarm or warning flag that was raised.

    Attributes:
        name: Quantity and side, such as ``rx_power_low``.
        is_alarm: Whether the flag is an alarm rather than a warning.
        first_seen_s: Host time of the first reading with this flag.
        last_seen_s: Host time of the last reading with this flag.
    """

    name: str
    is_alarm: bool
    first_seen_s: float
    last_seen_s: float


class SfpTransponder(Driver):
    """Driver of one SFP module; implements ``Transponder``. Thread-safe.

    Args:
        registers: Access to the module's registers.
        clock: Clock for waiting times.
        expected_serial: Required serial number; any if omitted.
        assume_diagnostics: Whether to use the diagnostic memory even if the module does not announce it.
        accept_wrong_checksums: Whether a wrong checksum CC_EXT or CC_DMI is only a warning.
    """

    def __init__(
        self,
        registers: RegisterAccess,
        clock: Clock,
        *,
        device: str,
        expected_serial: str | None = None,
        assume_diagnostics: bool = False,
        accept_wrong_checksums: bool = False,
    ) -> None:
        accepted = tuple(CHECKSUMS) if accept_wrong_checksums else TOLERATED
        self._memory = SfpMemory(registers, clock, device, accepted)
        self._registers = registers
        self._clock = clock
        self._device = device
        self._target = DeviceAddress(device, registers.name)
        self._expected_serial = expected_serial
        self._assume_diagnostics = assume_diagnostics
        self._identity: TransponderIdentity | None = None
        self._capabilities: Capabilities | None = None
        self._calibration: DiagnosticCalibration | None = None
        self._thresholds: dict[str, Thresholds] = {}
        self._latched_flags: dict[tuple[str, bool], Flag] = {}

    def open(self) -> None:
        """Open the registers, wait for the module, and read identity, thresholds and calibration constants.

        Raises:
            ConnectError: The registers cannot be opened.
            ModuleAbsentError: No module responds within its start-up time.
            IdentityError: A different module is inserted, or it is not an SFP.
            DeviceError: A checksum is wrong and not accepted.
            NotSupportedError: The diagnostic memory requires an address change.
        """
        with self._registers.transaction(), close_on_error(self.close):
            self._registers.open()
            self._memory.await_bus(BUS_READY_S)
            try:
                self.identify()
            except (DeviceError, IdentityError):
                self._check_form_factor()
                raise
            self._check_address_mode()
            if self.capabilities.diagnostics or self._assume_diagnostics:
                self._diagnostics()

    def close(self) -> None:
        """Release the registers; idempotent, never raises. The transmitter does not change."""
        self._identity = None
        self._capabilities = None
        self._calibration = None
        self._registers.close()

    def identify(self) -> TransponderIdentity:
        """Read the identity, check its checksums and compare the serial number."""
        memory = self._memory.read_with_checksums(A0H, IDENTITY_BYTES, ("CC_BASE", "CC_EXT"))
        identity = identity_of(memory)
        # Checked together with the serial number: CMIS modules have different fields at its place.
        kind = raw_count("identifier", memory)
        if kind != SFP_IDENTIFIER or self._expected_serial not in (None, identity.serial):
            raise self._target.error(
                IdentityError,
                f"expected an SFP with serial {self._expected_serial or 'any'}; found identifier 0x{kind:02X}, "
                f"{identity.vendor} {identity.part_number} with serial {identity.serial}",
                hint="Check the bench file and which module is inserted.",
            )
        if identity != self._identity:  # a new module was inserted
            self._calibration = None
            self._latched_flags.clear()
        self._identity = identity
        self._capabilities = capabilities_of(memory)
        return identity

    @property
    def warnings(self) -> tuple[str, ...]:
        """Problems since opening that did not cause an error."""
        return tuple(self._memory.warnings.values())

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities that the module announces. Raises ``ConnectError`` before :meth:`open`."""
        if self._capabilities is None:
            raise not_open("the module", self._device, self._registers.name)
        return self._capabilities

    @property
    def calibration_kind(self) -> CalibrationKind:
        """Kind of calibration of the monitors."""
        return self.capabilities.calibration

    def thresholds(self) -> dict[str, Thresholds]:
        """Return the thresholds by monitor; powers are in dBm."""
        self._diagnostics()
        return dict(self._thresholds)

    def can_switch(self) -> bool:
        """Return whether software can switch the transmitter and read its state."""
        return self.capabilities.soft_tx_disable and self.capabilities.soft_tx_fault and self.capabilities.soft_rx_los

    def enable(self) -> None:
        """Switch the transmitter on and wait until its power is within the alarm thresholds of the module.

        After an error, a transmitter that was off is switched off again.

        Raises ``NotSupportedError`` if software cannot switch the transmitter, and ``DeviceError`` if the module
        reports a fault, or no valid power within its start-up time.
        """
        self._require("soft_tx_disable", "switching the transmitter")
        self._guard()
        self._diagnostics()
        was_off = self._memory.status_bit("soft_tx_disable")
        with dark_after_failure(self._clock, lambda: self._memory.select_tx_disable(True) if was_off else None):
            with self._registers.transaction():
                # Only TX_DISABLE clears a latched fault (SFF-8431).
                if self.capabilities.soft_tx_fault and self._memory.status_bit("tx_fault"):
                    self._memory.select_tx_disable(True)
                    self._clock.sleep(SOFT_CONTROL_S)
                self._memory.select_tx_disable(False)
            self._await_power()

    def disable(self) -> None:
        """Switch the transmitter off and check that it emits no light.

        Raises ``NotSupportedError`` if software cannot switch the transmitter, and ``VerifyError`` if it still emits.
        """
        self._require("soft_tx_disable", "switching the transmitter")
        self._guard()
        self._diagnostics()
        self._memory.select_tx_disable(True)
        deadline = self._clock.now() + SWITCH_OFF_S
        # The power is checked rather than bit 110.7, which shows only the pin on many modules.
        while not _is_dark(power := self._power("tx_power", self._memory.monitors())):
            if self._clock.now() >= deadline:
                raise self._target.error(
                    VerifyError,
                    f"the transmitter still emits light {SWITCH_OFF_S:g} s after it was switched off",
                    wrote="TX_DISABLE",
                    read=_power_text(power),
                    hint="Assume that the fibre carries light. Remove the module if it must be dark.",
                )
            self._clock.sleep(_POLL_S)

    def monitors(self) -> Monitors:
        """Read temperature, supply, bias and powers.

        Raises:
            DeviceError: The values are not valid in time, or the calibration constants are damaged.
            OutOfRangeError: A power is above the measurable range of the module.
        """
        calibration = self._diagnostics()
        memory = self._valid_monitors()
        powers = {name: self._power(name, memory) for name in ("tx_power", "rx_power")}
        for name, power in powers.items():
            if power.state is RangeState.OVER:
                raise self._target.error(
                    OutOfRangeError,
                    f"{name} is above the module's range of +8.16 dBm",
                    hint="Insert an attenuator. More than +4 dBm damages receivers.",
                )
        counts = {monitor: raw_count(monitor, memory, MONITOR_START) for monitor in MONITORS}
        values = {monitor: calibration.value(monitor, count) for monitor, count in counts.items()}
        for monitor, count in counts.items():
            if not calibration.is_plausible(monitor, count):
                raise self._target.error(
                    DeviceError,
                    f"{monitor} is {implausibility_text(monitor, values[monitor])}",
                    hint="The module's memory is damaged. Use a different module.",
                )
        return Monitors(
            temperature_c=values["temperature"],
            supply_v=values["supply"],
            tx_bias_ma=values["tx_bias"],
            tx_power_dbm=powers["tx_power"].power_dbm,
            rx_power_dbm=powers["rx_power"].power_dbm,
            timestamp_s=self._clock.now(),
        )

    def status(self) -> SignalStatus:
        """Read the live status bits. Raises ``NotSupportedError`` if the module does not have these bits."""
        self._require("soft_rx_los", "reading loss of signal")
        self._require("soft_tx_fault", "reading the transmitter fault")
        memory = self._memory.monitors()
        bit = self._memory.status_bit
        return SignalStatus(
            # With A0h:65.2 but not 65.1, the module signals detection instead of loss.
            rx_los=bit("rx_los", memory) is not self.capabilities.los_inverted,
            tx_fault=bit("tx_fault", memory),
            tx_disabled=bit("tx_disable_state", memory) or bit("soft_tx_disable", memory),
            data_ready=not bit("data_not_ready", memory),
            timestamp_s=self._clock.now(),
        )

    def dump(self) -> SfpImage:
        """Read the complete memory: A0h, and A2h if present. The image lists the bytes that cannot be read."""
        unreadable: dict[str, str] = {}
        with self._registers.transaction():
            has_diagnostics = self.capabilities.diagnostics or self._assume_diagnostics
            memories = {"a0": self._dumped(A0H, "a0", unreadable)}
            memories["a2"] = self._dumped(A2H, "a2", unreadable) if has_diagnostics else b""
        identity = identity_of(memories["a0"])
        source = f"{identity.vendor} {identity.part_number} {identity.serial}"
        return SfpImage(memories["a0"], memories["a2"], source, unreadable=unreadable)

    def _dumped(self, device: int, key: str, unreadable: dict[str, str]) -> bytes:
        memory = b""
        for start in range(0, MEMORY_SIZE, _DUMP_BYTES):
            try:
                memory += self._registers.read(device, start, _DUMP_BYTES)
            except (NotRespondingError, ModuleAbsentError, ShortReadError) as error:
                self._registers.read(A0H, 0, IDENTITY_BYTES)  # raises if the module was removed
                unreadable[key] = f"from byte {start}: {error.message}"
                break
        return memory

    def flags(self) -> tuple[Flag, ...]:
        """Read the alarm and warning flags, and return all seen since the last :meth:`clear_flags`.

        Only a flag that is set in two readings counts.
        """
        self._require("flags", "reading alarm and warning flags")
        with self._registers.transaction():
            asserted = self._memory.asserted_flags()
            # The confirming reading with its pause is needed only for new flags.
            if asserted - self._latched_flags.keys():
                self._clock.sleep(_FLAG_CONFIRM_S)
                asserted &= self._memory.asserted_flags() | self._latched_flags.keys()
            now_s = self._clock.now()
            for name, is_alarm in asserted:
                first = (
                    self._latched_flags[name, is_alarm].first_seen_s
                    if (name, is_alarm) in self._latched_flags
                    else now_s
                )
                self._latched_flags[name, is_alarm] = Flag(name, is_alarm, first, now_s)
            return tuple(
                sorted(self._latched_flags.values(), key=lambda flag: (flag.first_seen_s, flag.name, flag.is_alarm))
            )

    def clear_flags(self) -> None:
        """Clear the stored flags. Flags that are still set return with the next reading."""
        with self._registers.transaction():
            self._latched_flags.clear()

    def tune(self, frequency_thz: float) -> NoReturn:
        """Raise ``NotSupportedError``: SFP modules have a fixed wavelength."""
        raise self._target.error(
            NotSupportedError,
            f"cannot tune to {frequency_thz:g} THz: the wavelength of an SFP module is fixed",
            hint="Use a tunable coherent module.",
        )

    def _check_form_factor(self) -> None:
        # Modules of other standards have their checksums elsewhere, so these look wrong first.
        kind = self._registers.read(A0H, 0, 1)[0]
        if kind in SFF8636_IDENTIFIERS or kind in CMIS_IDENTIFIERS:
            right = "qsfp-8636" if kind in SFF8636_IDENTIFIERS else "cmis"
            raise self._target.error(
                IdentityError, f"expected an SFP; found identifier 0x{kind:02X}", hint=f"Use kind {right}."
            )

    def _check_address_mode(self) -> None:
        if self.capabilities.address_change:
            raise self._target.error(
                NotSupportedError,
                "the diagnostic memory requires an address change (A0h:92.2)",
                hint="This mode is obsolete. Use a different module.",
            )

    def _diagnostics(self) -> DiagnosticCalibration:
        if self._calibration is None:
            if not self._assume_diagnostics:
                self._require("diagnostics", "reading monitors")
            kind = self.capabilities.calibration
            memory = self._memory.read_with_checksums(A2H, DIAGNOSTIC_BYTES, ("CC_DMI",))
            calibration = DiagnosticCalibration.from_memory(kind, memory)
            self._thresholds = {monitor: calibration.thresholds(monitor, memory) for monitor in MONITORS}
            self._calibration = calibration
        return self._calibration

    def _guard(self) -> None:
        """Check that the module was not replaced. Raises ``IdentityError``."""
        if self._identity is not None:
            self._memory.guard(self._identity.serial, self._identity.part_number)

    def _require(self, capability: str, label: str) -> None:
        if not getattr(self.capabilities, capability):
            raise self._target.error(
                NotSupportedError,
                f"{label} is not supported: the module does not announce {capability.replace('_', ' ')}",
                hint="See A0h:92 and A0h:93 of this module.",
            )

    def _power(self, monitor: str, memory: bytes) -> OpticalPower:
        return self._diagnostics().power(monitor, raw_count(monitor, memory, MONITOR_START))

    def _valid_monitors(self) -> bytes:
        deadline = self._clock.now() + DATA_READY_S
        while self._memory.status_bit("data_not_ready", memory := self._memory.monitors()):
            if self._clock.now() >= deadline:
                raise self._target.error(
                    DeviceError,
                    f"the monitor values are not valid after {DATA_READY_S:g} s",
                    hint="Data_Ready_Bar (A2h:110.0) is still set. Wait for the module to start, or replace it.",
                )
            self._clock.sleep(_POLL_S)
        return memory

    def _await_power(self) -> None:
        started = self._clock.now()
        timeout_s = COOLED_START_UP_S if self.capabilities.cooled else START_UP_S
        while True:
            memory = self._memory.monitors()
            elapsed_s = self._clock.now() - started
            power = self._power("tx_power", memory)
            faulty = self.capabilities.soft_tx_fault and self._memory.status_bit("tx_fault", memory)
            ready = not self._memory.status_bit("data_not_ready", memory)
            if ready and not faulty and self._in_window(power):
                return
            if elapsed_s >= timeout_s or (faulty and elapsed_s > SOFT_CONTROL_S + _RE_INITIALISE_S):
                pin = self._memory.status_bit("tx_disable_state", memory)
                raise self._target.error(
                    DeviceError,
                    f"the transmitter did not start within {elapsed_s:.3g} s: "
                    f"{'TX_FAULT, ' if faulty else ''}{'' if ready else 'data not ready, '}power {_power_text(power)}",
                    hint="The TX_DISABLE pin is high: release it." if pin else "Read the flags, or replace the module.",
                )
            self._clock.sleep(_POLL_S)

    def _in_window(self, power: OpticalPower) -> bool:
        if power.power_dbm is None:
            return False
        window = self._thresholds["tx_power"]
        lowest = DARK_DBM if window.low_alarm is None else window.low_alarm
        return lowest <= power.power_dbm and (window.high_alarm is None or power.power_dbm <= window.high_alarm)


def _is_dark(power: OpticalPower) -> bool:
    return power.state is RangeState.UNDER or (power.power_dbm is not None and power.power_dbm < DARK_DBM)


def _power_text(power: OpticalPower) -> str:
    return power.state.value if power.power_dbm is None else f"{power.power_dbm:.1f} dBm"
