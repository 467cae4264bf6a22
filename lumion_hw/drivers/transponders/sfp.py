"""SFP and SFP+ modules over SFF-8472, with the user flow of SFF-8431: identify, enable, monitor, disable."""

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
    implausible_words,
    raw_count,
)
from lumion_hw.drivers.transponders.sfp_identity import (
    IDENTITY_BYTES,
    SFP_IDENTIFIER,
    Abilities,
    abilities_of,
    identity_of,
)
from lumion_hw.drivers.transponders.sfp_memory import MONITOR_START, SOFT_CONTROL_S, TOLERATED, SfpMemory
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
from lumion_hw.standards.sff8472.image import SfpImage
from lumion_hw.standards.sff8472.registers import A0H, A2H, CHECKSUMS, MEMORY_SIZE

BUS_READY_S = 2.0
"""Time given to a module just plugged in until its identity can be read; SFF-8431 asks for 0.3 s."""
DATA_READY_S = 1.0
"""Time until the first monitor values are valid."""
START_UP_S = 2.0
"""Time until an uncooled transmitter reports its power: 0.3 s of initialisation and the first valid values."""
COOLED_START_UP_S = 90.0
"""The same for a module with a cooled laser (SFF-8431)."""
SWITCH_OFF_S = 0.5
"""Time until the monitors show that the transmitter is dark: soft control, then one refresh of the monitors."""
DARK_DBM = -30.0
"""A transmitter below this power is off (IEEE 802.3 Table 52-16)."""
_POLL_S = 0.1  # modules refresh their monitors at about 10 Hz
_RE_INITIALISE_S = 0.3  # after a latched fault was cleared (SFF-8431)
_FLAG_CONFIRM_S = 0.1
_DUMP_BYTES = 128  # the lower and the upper half of a device are units of their own (SFF-8472 clause 4)


@dataclass(frozen=True)
class Flag:
    """One alarm or warning flag that has been seen.

    Attributes:
        name: Quantity and side, such as ``rx_power_low``.
        is_alarm: Alarm, not just warning.
        first_seen_s: Host clock when it was first seen.
        last_seen_s: Host clock when it was last seen.
    """

    name: str
    is_alarm: bool
    first_seen_s: float
    last_seen_s: float


class SfpTransponder(Driver):
    """Driver of one module; implements ``Transponder``. Thread-safe.

    State is read from the module, never remembered; only the identity and the constants are kept.

    Args:
        registers: The way to the module's registers.
        clock: Measures start-up times.
        device: Device name, for messages.
        expected_serial: Required serial number; any if omitted.
        assume_diagnostics: Believe in the diagnostic memory of a module that does not announce it.
        accept_wrong_checksums: Warn of wrong CC_EXT and CC_DMI as of CC_BASE, instead of refusing the module.
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
        self._abilities: Abilities | None = None
        self._calibration: DiagnosticCalibration | None = None
        self._thresholds: dict[str, Thresholds] = {}
        self._seen: dict[tuple[str, bool], Flag] = {}

    def open(self) -> None:
        """Open the way to the module, wait for its bus, and read identity, thresholds and calibration constants.

        Raises:
            ConnectError: The way cannot be opened.
            ModuleAbsentError: No module within its start-up time.
            IdentityError: Another module than expected, or not an SFP.
            DeviceError: CC_EXT or CC_DMI is wrong, and not accepted; a wrong CC_BASE is one of the :attr:`warnings`.
            NotSupportedError: The diagnostic memory needs an address change.
        """
        with self._registers.transaction(), close_on_error(self.close):
            self._registers.open()
            self._memory.await_bus(BUS_READY_S)
            self.identify()
            self._check_address_mode()
            if self.abilities.diagnostics or self._assume_diagnostics:
                self._diagnostics()

    def close(self) -> None:
        """Release the registers; idempotent, never raises. The transmitter is left as it is."""
        self._identity = None
        self._abilities = None
        self._calibration = None
        self._registers.close()

    def identify(self) -> TransponderIdentity:
        """Read the identity, check its check sums and compare the serial number with the expected one."""
        memory = self._memory.checked(A0H, IDENTITY_BYTES, ("CC_BASE", "CC_EXT"))
        found = identity_of(memory)
        # Before the serial number means anything: a CMIS module has other fields there.
        kind = raw_count("identifier", memory)
        if kind != SFP_IDENTIFIER or self._expected_serial not in (None, found.serial):
            raise self._target.error(
                IdentityError,
                f"expected an SFP with serial {self._expected_serial or 'any'}; found identifier 0x{kind:02X}, "
                f"{found.vendor} {found.part_number} with serial {found.serial}",
                hint="Check the bench file, or which module is plugged in there.",
            )
        if found != self._identity:  # plugged in since: what was read from the last module is void
            self._calibration = None
            self._seen.clear()
        self._identity = found
        self._abilities = abilities_of(memory)
        return found

    @property
    def warnings(self) -> tuple[str, ...]:
        """What went wrong without stopping anything, since the module was opened."""
        return tuple(self._memory.warnings.values())

    @property
    def abilities(self) -> Abilities:
        """What the module announces of itself. Raises ``ConnectError`` before :meth:`open`."""
        if self._abilities is None:
            raise not_open("the module", self._device, self._registers.name)
        return self._abilities

    @property
    def calibration_kind(self) -> CalibrationKind:
        """How the monitors are calibrated."""
        return self.abilities.calibration

    def thresholds(self) -> dict[str, Thresholds]:
        """Return the thresholds of the five monitors, by monitor; powers in dBm."""
        self._diagnostics()
        return dict(self._thresholds)

    def can_switch(self) -> bool:
        """Return whether the transmitter can be switched by software, and whether it is on can be read."""
        return self.abilities.soft_tx_disable and self.abilities.soft_tx_fault and self.abilities.soft_rx_los

    def enable(self) -> None:
        """Switch the transmitter on and wait until the module reports power in its window.

        A latched fault is cleared by switching off first. The window is that of the module's own alarm thresholds.

        Raises:
            NotSupportedError: The transmitter cannot be switched by software.
            DeviceError: The module reports a fault, or no power within its start-up time.
        """
        self._needs("soft_tx_disable", "switching the transmitter")
        self._diagnostics()
        with self._registers.transaction():
            # A latched fault is cleared by TX_DISABLE alone (SFF-8431).
            if self.abilities.soft_tx_fault and self._memory.status_bit("tx_fault"):
                self._memory.select_tx_disable(True)
                self._clock.sleep(SOFT_CONTROL_S)
            self._memory.select_tx_disable(False)
        self._await_power()

    def disable(self) -> None:
        """Switch the transmitter off and verify that it is dark.

        Raises:
            NotSupportedError: The transmitter cannot be switched by software.
            VerifyError: The module still reports power.
        """
        self._needs("soft_tx_disable", "switching the transmitter")
        self._diagnostics()
        self._memory.select_tx_disable(True)
        deadline = self._clock.now() + SWITCH_OFF_S
        # Not the bit: 110.7 shows the pin on many modules, and what matters is that no light comes out.
        while not _is_dark(power := self._power("tx_power", self._memory.monitors())):
            if self._clock.now() >= deadline:
                raise self._target.error(
                    VerifyError,
                    f"the transmitter is not dark {SWITCH_OFF_S:g} s after it was switched off",
                    wrote="TX_DISABLE",
                    read=_words(power),
                    hint="Treat the fibre as lit; unplug the module if it has to be dark.",
                )
            self._clock.sleep(_POLL_S)

    def monitors(self) -> Monitors:
        """Read the module's monitors, in one coherent transfer.

        Raises:
            DeviceError: The values did not become valid in time, or the module's calibration constants are damaged.
            OutOfRangeError: A power is above the module's measurable range.
        """
        calibration = self._diagnostics()
        memory = self._valid_monitors()
        powers = {name: self._power(name, memory) for name in ("tx_power", "rx_power")}
        for name, power in powers.items():
            if power.state is RangeState.OVER:
                raise self._target.error(
                    OutOfRangeError,
                    f"{name} is above the module's range of +8.16 dBm",
                    hint="Put an attenuator in; receivers are damaged above +4 dBm.",
                )
        counts = {monitor: raw_count(monitor, memory, MONITOR_START) for monitor in MONITORS}
        values = {monitor: calibration.value(monitor, count) for monitor, count in counts.items()}
        for monitor, count in counts.items():
            if not calibration.is_plausible(monitor, count):
                raise self._target.error(
                    DeviceError,
                    f"{monitor} is {implausible_words(monitor, values[monitor])}",
                    hint="The module's memory is damaged; use another module.",
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
        """Read the live status bits. Raises ``NotSupportedError`` if the module does not have them."""
        self._needs("soft_rx_los", "reading loss of signal")
        self._needs("soft_tx_fault", "reading the transmitter fault")
        memory = self._memory.monitors()
        bit = self._memory.status_bit
        return SignalStatus(
            # A0h:65.2 without 65.1 means that the module signals detection instead of loss.
            rx_los=bit("rx_los", memory) is not self.abilities.los_inverted,
            tx_fault=bit("tx_fault", memory),
            tx_disabled=bit("tx_disable_state", memory) or bit("soft_tx_disable", memory),
            data_ready=not bit("data_not_ready", memory),
            timestamp_s=self._clock.now(),
        )

    def dump(self) -> SfpImage:
        """Read the whole memory: A0h, and A2h where the module has it. What cannot be read stands in the image."""
        unreadable: dict[str, str] = {}
        with self._registers.transaction():
            has_diagnostics = self.abilities.diagnostics or self._assume_diagnostics
            memories = {"a0": self._dumped(A0H, "a0", unreadable)}
            memories["a2"] = self._dumped(A2H, "a2", unreadable) if has_diagnostics else b""
        found = identity_of(memories["a0"])
        source = f"{found.vendor} {found.part_number} {found.serial}"
        return SfpImage(memories["a0"], memories["a2"], source, unreadable=unreadable)

    def _dumped(self, device: int, key: str, unreadable: dict[str, str]) -> bytes:
        """Return a device's memory as far as it can be read, and note why it ends. The identity has to be readable."""
        memory = b""
        for start in range(0, MEMORY_SIZE, _DUMP_BYTES):
            try:
                memory += self._registers.read(device, start, _DUMP_BYTES)
            except (NotRespondingError, ModuleAbsentError, ShortReadError) as error:
                self._registers.read(A0H, 0, IDENTITY_BYTES)  # raises if the module is gone
                unreadable[key] = f"from byte {start} on: {error.message}"
                break
        return memory

    def flags(self) -> tuple[Flag, ...]:
        """Read the alarm and warning flags, and return all seen since the last :meth:`clear_flags`.

        Whether a module latches its flags is its vendor's choice, so the driver does; a flag counts once a second
        read confirms it.
        """
        self._needs("flags", "reading alarm and warning flags")
        with self._registers.transaction():
            asserted = self._memory.asserted_flags()
            # A latched flag may be of the past; the confirming read costs its pause only for new ones.
            if asserted - self._seen.keys():
                self._clock.sleep(_FLAG_CONFIRM_S)
                asserted &= self._memory.asserted_flags() | self._seen.keys()
            now = self._clock.now()
            for name, is_alarm in asserted:
                first = self._seen[name, is_alarm].first_seen_s if (name, is_alarm) in self._seen else now
                self._seen[name, is_alarm] = Flag(name, is_alarm, first, now)
            return tuple(sorted(self._seen.values(), key=lambda flag: (flag.first_seen_s, flag.name, flag.is_alarm)))

    def clear_flags(self) -> None:
        """Forget the flags seen so far; one that is still asserted comes back at the next read."""
        with self._registers.transaction():
            self._seen.clear()

    def tune(self, frequency_thz: float) -> NoReturn:
        """Raise ``NotSupportedError``: these modules have a fixed wavelength."""
        raise self._target.error(
            NotSupportedError,
            f"cannot tune to {frequency_thz:g} THz: the wavelength of an SFP module is fixed",
            hint="Use a tunable coherent module.",
        )

    def _check_address_mode(self) -> None:
        if self.abilities.address_change:
            raise self._target.error(
                NotSupportedError,
                "the diagnostic memory needs an address change (A0h:92.2)",
                hint="Use another module; this mode is obsolete.",
            )

    def _diagnostics(self) -> DiagnosticCalibration:
        """Return the calibration; reads it, and the thresholds, from a module that was not read yet."""
        if self._calibration is None:
            if not self._assume_diagnostics:
                self._needs("diagnostics", "reading monitors")
            kind = self.abilities.calibration
            memory = self._memory.checked(A2H, DIAGNOSTIC_BYTES, ("CC_DMI",))
            calibration = DiagnosticCalibration.from_memory(kind, memory)
            self._thresholds = {monitor: calibration.thresholds(monitor, memory) for monitor in MONITORS}
            self._calibration = calibration
        return self._calibration

    def _needs(self, ability: str, label: str) -> None:
        if not getattr(self.abilities, ability):
            raise self._target.error(
                NotSupportedError,
                f"{label} is not supported: the module does not announce {ability.replace('_', ' ')}",
                hint="See A0h:92 and A0h:93 of this module.",
            )

    def _power(self, monitor: str, memory: bytes) -> OpticalPower:
        return self._diagnostics().power(monitor, raw_count(monitor, memory, MONITOR_START))

    def _valid_monitors(self) -> bytes:
        """Return the monitor bytes once the module says that they are valid."""
        deadline = self._clock.now() + DATA_READY_S
        while self._memory.status_bit("data_not_ready", memory := self._memory.monitors()):
            if self._clock.now() >= deadline:
                raise self._target.error(
                    DeviceError,
                    f"the monitor values are not valid after {DATA_READY_S:g} s",
                    hint="Data_Ready_Bar (A2h:110.0) stays set; wait for the module to start, or replace it.",
                )
            self._clock.sleep(_POLL_S)
        return memory

    def _await_power(self) -> None:
        """Wait until the transmitter reports power in its window."""
        started = self._clock.now()
        patience_s = COOLED_START_UP_S if self.abilities.cooled else START_UP_S
        while True:
            memory = self._memory.monitors()
            elapsed_s = self._clock.now() - started
            power = self._power("tx_power", memory)
            faulty = self.abilities.soft_tx_fault and self._memory.status_bit("tx_fault", memory)
            ready = not self._memory.status_bit("data_not_ready", memory)
            if ready and not faulty and self._in_window(power):
                return
            if elapsed_s >= patience_s or (faulty and elapsed_s > SOFT_CONTROL_S + _RE_INITIALISE_S):
                pin = self._memory.status_bit("tx_disable_state", memory)
                raise self._target.error(
                    DeviceError,
                    f"the transmitter did not start within {elapsed_s:.3g} s: "
                    f"{'TX_FAULT, ' if faulty else ''}{'' if ready else 'data not ready, '}power {_words(power)}",
                    hint="Its TX_DISABLE pin is high: release it." if pin else "Read its flags; replace the module.",
                )
            self._clock.sleep(_POLL_S)

    def _in_window(self, power: OpticalPower) -> bool:
        """Return whether a transmitter power lies between the module's own alarm thresholds."""
        if power.power_dbm is None:
            return False
        window = self._thresholds["tx_power"]
        lowest = DARK_DBM if window.low_alarm is None else window.low_alarm
        return lowest <= power.power_dbm and (window.high_alarm is None or power.power_dbm <= window.high_alarm)


def _is_dark(power: OpticalPower) -> bool:
    return power.state is RangeState.UNDER or (power.power_dbm is not None and power.power_dbm < DARK_DBM)


def _words(power: OpticalPower) -> str:
    return power.state.value if power.power_dbm is None else f"{power.power_dbm:.1f} dBm"
