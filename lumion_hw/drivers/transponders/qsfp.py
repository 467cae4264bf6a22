"""Driver of QSFP+ and QSFP28 modules (SFF-8636, SFF-8679)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from lumion_hw.clock import Clock
from lumion_hw.drivers.life_cycle import Driver, close_on_error, not_open
from lumion_hw.drivers.transponders import qsfp_user
from lumion_hw.drivers.transponders.qsfp_identity import QsfpCapabilities, capabilities_of, identity_of
from lumion_hw.drivers.transponders.qsfp_lane import QsfpLane
from lumion_hw.drivers.transponders.qsfp_memory import TOLERATED, QsfpFlags, QsfpMemory
from lumion_hw.drivers.transponders.qsfp_monitors import (
    POLL_S,
    QsfpMonitors,
    is_dark,
    is_within,
    total_dbm,
)
from lumion_hw.drivers.transponders.qsfp_squelch import QsfpSquelch
from lumion_hw.drivers.transponders.sfp_diagnostics import Thresholds
from lumion_hw.drivers.transponders.squelch import Side, SquelchMode
from lumion_hw.drivers.transponders.switching import dark_after_failure
from lumion_hw.errors import (
    ConfigError,
    DeviceAddress,
    DeviceError,
    IdentityError,
    LimitError,
    NotSupportedError,
    VerifyError,
)
from lumion_hw.interfaces import LaneMonitors, Monitors, SignalStatus, StickyFlag, TransponderIdentity
from lumion_hw.sessions.module.adapter import PinnedAdapter
from lumion_hw.sessions.module.paged_i2c import SFF_8636_PAGES, PagedI2c
from lumion_hw.sessions.module.pages import ModulePages
from lumion_hw.sessions.module.registers import I2cDevice, ModuleAbsentError, NotRespondingError, ShortReadError
from lumion_hw.standards.cmis.fields import HALF_BYTES
from lumion_hw.standards.cmis.image import LOWER, Half, MemoryImage
from lumion_hw.standards.registers import raw
from lumion_hw.standards.sff8636.registers import (
    CHECKSUMS,
    FLAG_BYTES,
    FLAGS as _FLAG_FIELDS,
    IDENTITY_PAGE,
    LANES,
    THRESHOLD_PAGE,
    USER_PAGE,
    FieldKey,
    QsfpField,
    find,
    mask_of_flag,
)

START_UP_S = 2.0
"""Time until a newly inserted or reset module can be read, in s (SFF-8679, t_serial and t_reset)."""
LASER_START_S = 2.0
"""Time until an uncooled transmitter reports its power, in s."""
COOLED_LASER_START_S = 90.0
"""Time until a cooled transmitter reports its power, in s (assumed as for SFP, SFF-8431)."""
SWITCH_OFF_S = 0.5
"""Time in s until the monitors show that a transmitter is off."""
RESET_PULSE_S = 1e-3
"""Length of the ResetL pulse, in s; the minimum is 2 µs (SFF-8679, t_reset_init)."""
RELATCH_S = 0.2
"""Time in s until a flag whose cause persists is set again after a reading (SFF-8679, ton_flag)."""
DEFAULT_POWER_CLASS = 4
"""Highest power class that any QSFP cage supports (3.5 W)."""
_PAM4_PAGES = (0x20, 0x21)


@dataclass(frozen=True)
class LaneStatus:
    """Status of one lane; ``None`` if the module does not report it.

    Attributes:
        lane: Lane, 1 to 4.
        rx_los: Whether the receiver has lost its optical signal.
        tx_los: Whether the transmitter has lost its electrical signal.
        tx_fault: Whether the transmitter has a fault.
        rx_lol: Whether the receiver's clock recovery has lost lock.
        tx_lol: Whether the transmitter's clock recovery has lost lock.
        tx_disabled: Whether software has switched the transmitter off.
    """

    lane: int
    rx_los: bool | None
    tx_los: bool | None
    tx_fault: bool | None
    rx_lol: bool | None
    tx_lol: bool | None
    tx_disabled: bool | None


@dataclass(frozen=True)
class PowerControl:
    """Power settings of byte 93.

    Attributes:
        by_software: Whether ``low_power`` counts instead of the pin LPMode (93.0).
        low_power: Whether software selects low-power mode (93.1).
        class_5_to_7: Whether the module may use the power of class 5 to 7 (93.2).
        class_8: Whether the module may use the power of class 8 (93.3).
    """

    by_software: bool
    low_power: bool
    class_5_to_7: bool
    class_8: bool


class QsfpTransponder(Driver):
    """Driver of one QSFP module; implements ``Transponder``. Thread-safe.

    A call that writes first checks that the module was not replaced.

    Args:
        link: Access to the module: an ``I2cDevice`` at 0x50, or access by page, such as a memory file or a dump.
        clock: Clock for waiting times.
        expected_vendor: Required vendor name; any if omitted.
        expected_part_number: Required part number; any if omitted.
        expected_serial: Required serial number; any if omitted.
        accept_wrong_checksums: Whether a wrong checksum CC_EXT is only a warning.
        max_power_class: Highest power class that the cage can supply and cool, 1 to 8.
        hold_off_s: Pause after writes and page changes, for slow boards (raw I2C only).
        pins: Adapter with the low-speed signals of the socket, if there is one.
    """

    def __init__(
        self,
        link: I2cDevice | ModulePages,
        clock: Clock,
        *,
        device: str = "transponder",
        expected_vendor: str | None = None,
        expected_part_number: str | None = None,
        expected_serial: str | None = None,
        accept_wrong_checksums: bool = False,
        max_power_class: int = DEFAULT_POWER_CLASS,
        hold_off_s: float = 0.0,
        pins: PinnedAdapter | None = None,
    ) -> None:
        if not isinstance(link, ModulePages):
            link = PagedI2c(link, clock, device=device, hold_off_s=hold_off_s, scheme=SFF_8636_PAGES)
        accepted = tuple(CHECKSUMS) if accept_wrong_checksums else TOLERATED
        self._pages = link
        self._memory = QsfpMemory(link, clock, device, accepted)
        self._clock = clock
        self._device = device
        self._target = DeviceAddress(device, link.name)
        self._expected = {
            "vendor": expected_vendor,
            "part_number": expected_part_number,
            "serial": expected_serial,
        }
        self._max_power_class = max_power_class
        self._pins = pins
        self._identity: TransponderIdentity | None = None
        self._capabilities: QsfpCapabilities | None = None
        self._flags = QsfpFlags(self._memory, clock, lambda _: False)
        self._monitors: QsfpMonitors | None = None
        self._replaced: str | None = None

    # -- opening and closing

    def open(self) -> None:
        """Open the link, wait for the module and read its identity.

        Raises:
            ConnectError: The link cannot be opened.
            ModuleAbsentError: There is no module.
            NotRespondingError: The module does not respond within its start-up time.
            IdentityError: A different module is inserted, or it does not follow SFF-8636.
            DeviceError: A checksum is wrong and not accepted.
        """
        with close_on_error(self.close):
            self._pages.open()
            # Checked first, because an empty socket cannot be distinguished from a starting module on the bus.
            pins = self._pins
            if pins is not None and "mod_prs_l" in pins.wired and not pins.is_asserted("mod_prs_l"):
                raise self._target.error(
                    ModuleAbsentError,
                    "no module in the socket (ModPrsL is high)",
                    hint="Insert the module. If it is inserted, check the pin of ModPrsL.",
                )
            with self._pages.transaction(), self._pages.retry_for(START_UP_S):
                self._replaced = None
                self.identify()

    def close(self) -> None:
        """Close the link; idempotent, never raises. The transmitter does not change."""
        self._identity = None
        self._capabilities = None
        self._monitors = None
        self._pages.close()

    def identify(self) -> TransponderIdentity:
        """Read the identity, check its checksums and compare it with the expected one.

        If another module was inserted since the last call, the stored flags are removed and ``warnings`` says so.

        Raises:
            IdentityError: The module is not the expected one, or it does not follow SFF-8636.
            NotRespondingError: The bus returns only FFh.
            DeviceError: A checksum is wrong and not accepted.
        """
        with self._pages.transaction():
            lower, page = self._memory.read_identity()
            identity = identity_of(page)
            mismatches = {
                name: value
                for name, value in self._expected.items()
                if value is not None and getattr(identity, name) != value
            }
            if mismatches:
                raise self._target.error(
                    IdentityError,
                    f"expected a module with {', '.join(f'{name} {value}' for name, value in mismatches.items())}; "
                    f"found {identity.vendor} {identity.part_number} with serial {identity.serial}",
                    hint="Check the bench file and which module is inserted.",
                )
            self._capabilities = capabilities_of(lower, page)
            if identity != self._identity:
                self._note_replacement(identity)
                self._monitors = QsfpMonitors(self._memory, self._clock, self._capabilities)
                self._flags = QsfpFlags(self._memory, self._clock, self._capabilities.has)
            self._identity = identity
        return identity

    # -- properties

    @property
    def capabilities(self) -> QsfpCapabilities:
        """Capabilities that the module announces. Raises ``ConnectError`` before :meth:`open`."""
        if self._capabilities is None:
            raise not_open("the module", self._device, self._pages.name)
        return self._capabilities

    def missing_monitors(self) -> frozenset[str]:
        """Return the quantities of ``Monitors`` that the module does not measure; empty before :meth:`open`."""
        return frozenset() if self._capabilities is None else self._capabilities.missing_monitors()

    @property
    def is_flat(self) -> bool:
        """Whether the module has only the lower memory and page 00h, as many cables have."""
        return self.capabilities.flat

    @property
    def warnings(self) -> tuple[str, ...]:
        """Problems since opening that did not cause an error."""
        texts = list(self._memory.warnings.values())
        if self._capabilities is not None and self._capabilities.power_class > self._max_power_class:
            own = f"{self._capabilities.power_class}{_power_text(self._capabilities)}"
            texts.append(f"the module is in power class {own}; only class {self._max_power_class} is allowed")
        return (*texts, self._replaced) if self._replaced else tuple(texts)

    def can_switch(self) -> bool:
        """Return whether software can switch the transmitters; their state can always be read back."""
        return self.capabilities.tx_disable

    # -- transmitters

    def enable(self) -> None:
        """Leave low-power mode, switch all transmitters on and wait until each reports a power within its limits.

        Without a monitor of the launched power, only the register is read back. After an error, the lanes that were
        off are switched off again.

        Raises:
            NotSupportedError: Software cannot switch the transmitters.
            LimitError: The module needs more power than ``max_power_class`` allows; nothing was changed.
            DeviceError: A transmitter reports a fault, or no valid power within its start-up time.
            VerifyError: The module ignores the register.
        """
        self._switch_on(LANES)

    def disable(self) -> None:
        """Switch all transmitters off and verify by the launched power, if it is measured, that they are dark.

        Raises:
            NotSupportedError: Software cannot switch the transmitters.
            VerifyError: A transmitter still emits, or the module ignores the register.
        """
        self._switch_off(LANES)

    def enable_lane(self, lane: int) -> None:
        """Switch the transmitter of one lane on, as :meth:`enable` does for all. Other lanes do not change."""
        self._switch_on(self._checked(lane))

    def disable_lane(self, lane: int) -> None:
        """Switch the transmitter of one lane off, as :meth:`disable` does for all. Other lanes do not change."""
        self._switch_off(self._checked(lane))

    def media_lane(self, number: int) -> QsfpLane:
        """Return the driver of one lane, for modules whose lanes have fibres of their own.

        Raises:
            ConfigError: The module does not have this lane.
        """
        return QsfpLane(self, *self._checked(number))

    # -- readings

    def monitors(self) -> Monitors:
        """Read the monitors of the module. What the module does not measure is ``None``.

        Bias and powers are the sums over the lanes: the power in the fibre of a module with wavelength multiplexing.
        Use :meth:`lane_monitors` for modules with parallel fibres.

        Raises:
            DeviceError: The values are not valid in time.
            OutOfRangeError: A power is above the measurable range of the module.
        """
        return self.readings()[0]

    def readings(self) -> tuple[Monitors, tuple[LaneMonitors, ...]]:
        """Read the monitors of the module and those of the four lanes together; see :meth:`monitors`."""
        with self._pages.transaction():
            module, lanes = self._opened_monitors().read()
            now_s = self._clock.now()
        biases = [item.tx_bias_ma for item in lanes if item.tx_bias_ma is not None]
        whole = Monitors(
            temperature_c=module["temperature"],
            supply_v=module["supply"],
            tx_bias_ma=sum(biases) if biases else None,
            tx_power_dbm=total_dbm(item.tx_power_dbm for item in lanes),
            rx_power_dbm=total_dbm(item.rx_power_dbm for item in lanes),
            timestamp_s=now_s,
        )
        return whole, lanes

    def lane_monitors(self) -> tuple[LaneMonitors, ...]:
        """Read the monitors of the four lanes. Raises the errors of :meth:`monitors`."""
        with self._pages.transaction():
            return self._opened_monitors().read()[1]

    def thresholds(self) -> dict[str, Thresholds]:
        """Return the thresholds by monitor; powers are in dBm. Empty if the module has no page 03h."""
        return self._opened_monitors().thresholds()

    def status(self) -> SignalStatus:
        """Read the status. Loss of signal and fault are those of any lane; off means that all lanes are off.

        The module has only latched flags: this reads them, remembers those that are set for :meth:`flags`, and waits
        0.2 s for those whose cause persists.

        Raises:
            NotSupportedError: The module does not report loss of signal, as passive cables.
        """
        return self.status_of(LANES)

    def status_of(self, lanes: Iterable[int]) -> SignalStatus:
        """Read the status of some lanes, as :meth:`status` does for all."""
        chosen = self._checked(*lanes)
        if not self.capabilities.rx_los:
            raise self._unsupported("reading loss of signal", "a passive copper cable has no receiver")
        with self._pages.transaction():
            own = [item for item in self.lane_status() if item.lane in chosen]
            data_ready = not self._memory.bit("data_not_ready")
        return SignalStatus(
            rx_los=any(item.rx_los for item in own),
            tx_fault=any(item.tx_fault for item in own),
            tx_disabled=all(item.tx_disabled for item in own),
            data_ready=data_ready,
            timestamp_s=self._clock.now(),
        )

    def lane_status(self) -> tuple[LaneStatus, ...]:
        """Read the status of the four lanes; see :meth:`status`."""
        has = self.capabilities.has
        names = ("rx_los", "tx_los", "tx_fault", "rx_lol", "tx_lol")
        with self._pages.transaction():
            asserted = self._flags.read()
            # A flag that was set in the past reads as set once more; only a second reading shows the present.
            if any(name in names for name, _ in asserted):
                self._clock.sleep(RELATCH_S)
                asserted = self._flags.read()
            disabled = self._memory.lanes("tx_disable") if has("tx_disable") else None
        return tuple(
            LaneStatus(
                lane=lane,
                tx_disabled=None if disabled is None else bool(disabled[lane - 1]),
                **{name: (name, lane) in asserted if has(name) else None for name in names},
            )
            for lane in LANES
        )

    # -- flags and masks

    def flags(self) -> tuple[StickyFlag, ...]:
        """Read the flags, and return all flags seen since the last :meth:`clear_flags`.

        Reading clears the flags in the module, so every reading by this driver is remembered.
        """
        with self._pages.transaction():
            _ = self.capabilities
            self._flags.read()
            return self._flags.all()

    def clear_flags(self) -> None:
        """Clear the stored flags. A flag whose cause persists returns at the next read."""
        with self._pages.transaction():
            self._flags.read()
            self._flags.clear()

    def masks(self) -> dict[FieldKey, bool]:
        """Read whether each flag is masked, by name and lane. A masked flag does not assert IntL."""
        with self._pages.transaction():
            return {_key(flag): self._memory.bit(mask.name, mask.lane) for flag, mask in self._masks().items()}

    def set_mask(self, name: str, lane: int | None, masked: bool) -> None:
        """Mask a flag, or let it assert IntL.

        Args:
            name: Name of the flag, such as ``rx_los``.
            lane: Lane; ``None`` for a flag of the whole module.
            masked: Whether to mask the flag.

        Raises:
            NotSupportedError: The module does not have this flag.
            VerifyError: The module ignores the register.
        """
        mask = {_key(flag): mask for flag, mask in self._masks().items()}.get((name, lane))
        if mask is None:
            raise self._unsupported(f"masking {name} of lane {lane}", "the module does not have this flag")
        with self._pages.transaction():
            self._guard()
            self._memory.write([(mask, int(masked))])

    # -- clock recovery and rate select

    def cdr(self, side: Side) -> tuple[bool, ...]:
        """Read whether the clock recovery of each lane is on (byte 98).

        Raises ``NotSupportedError`` if the module has none on this side, or one that cannot be switched.
        """
        self._require_cdr(side)
        return tuple(bool(value) for value in self._memory.lanes(f"{side}_cdr_on"))

    def set_cdr(self, side: Side, on: bool, lanes: Iterable[int] = LANES) -> None:
        """Switch the clock recovery of lanes on or off.

        Raises:
            NotSupportedError: The module has no clock recovery on this side, or it cannot be switched.
            VerifyError: The module ignores the register.
        """
        self._require_cdr(side)
        with self._pages.transaction():
            self._guard()
            self._memory.write_lanes(f"{side}_cdr_on", self._checked(*lanes), int(on))

    def rate_select(self, side: Side) -> tuple[int, ...]:
        """Read the rate code of each lane, 0 to 3 (bytes 87 and 88). Raises ``NotSupportedError`` if not announced."""
        self._require("rate_select", "rate select", "195.5")
        return self._memory.lanes(f"{side}_rate_select")

    def set_rate_select(self, side: Side, code: int, lanes: Iterable[int] = LANES) -> None:
        """Select the rate of lanes.

        Args:
            side: Transmitter or receiver.
            code: Rate code, 0 to 3; its meaning depends on byte 141 (SFF-8636 clause 6.2.7).
            lanes: Lanes to change.

        Raises:
            ConfigError: The code is not 0 to 3.
            NotSupportedError: The module does not announce rate select.
            VerifyError: The module ignores the register.
        """
        self._require("rate_select", "rate select", "195.5")
        if code not in range(4):
            raise self._target.error(ConfigError, f"rate code {code} is not 0 to 3", hint="Give a code of 0 to 3.")
        with self._pages.transaction():
            self._guard()
            self._memory.write_lanes(f"{side}_rate_select", self._checked(*lanes), code)

    def squelch(self, side: Side) -> dict[int, SquelchMode]:
        """Read the squelch mode of each lane. A disabled Rx output reads as ``forced``.

        Raises ``NotSupportedError`` if the module announces no control of this squelch.
        """
        with self._pages.transaction():
            return QsfpSquelch(self._memory, self.capabilities).read(side)

    def check_squelch(self, side: Side, mode: SquelchMode) -> None:
        """Raise ``NotSupportedError`` if the module does not announce what :meth:`set_squelch` needs."""
        QsfpSquelch(self._memory, self.capabilities).check(side, mode)

    def set_squelch(self, side: Side, mode: SquelchMode, lanes: Iterable[int] = LANES) -> None:
        """Set the squelch mode of lanes. A forced Rx squelch is a disabled electrical output.

        Raises:
            NotSupportedError: The module does not announce this mode.
            VerifyError: The module ignores the register.
        """
        self.check_squelch(side, mode)
        chosen = self._checked(*lanes)
        with self._pages.transaction():
            self._guard()
            QsfpSquelch(self._memory, self.capabilities).write(side, mode, chosen)

    # -- power

    def power_control(self) -> PowerControl:
        """Read the power settings (byte 93)."""
        with self._pages.transaction():
            byte = self._pages.read_page(None, find("power_override").byte, 1)
        return PowerControl(*(bool(raw(find(name), byte)) for name in _POWER_BITS))

    def power_up(self) -> None:
        """Leave low-power mode by software and wait until the monitors are valid.

        Enables the power of class 5 to 7 or 8 for a module of such a class. The pin LPMode has no effect afterwards.

        Raises:
            LimitError: The module needs more power than ``max_power_class`` allows; nothing was changed.
            NotSupportedError: The module is a passive cable.
            VerifyError: The module ignores the register.
            DeviceError: The monitors are not valid in time.
        """
        own = self.capabilities.power_class
        if self.capabilities.passive:
            raise self._unsupported("a power mode", "a passive copper cable has none")
        if own > self._max_power_class:
            raise self._target.error(
                LimitError,
                f"power class of the module{_power_text(self.capabilities)}",
                requested=own,
                limit=self._max_power_class,
                unit="",
                hint="Set max_power_class to the highest class that the cage can supply and cool.",
            )
        with self._pages.transaction():
            self._guard()
            before = self.power_control()
            # Class 1 has no low-power mode of its own, and such modules may ignore byte 93.
            if own == 1 and not (before.by_software and before.low_power):
                return
            self._write_power(low_power=False, class_5_to_7=5 <= own <= 7, class_8=own == 8)
            self._opened_monitors().await_data()

    def power_down(self) -> None:
        """Enter low-power mode by software (at most 1.5 W). The transmitters of most modules are then dark.

        Raises ``NotSupportedError`` for a passive cable and ``VerifyError`` if the module ignores the register.
        """
        if self.capabilities.passive:
            raise self._unsupported("a power mode", "a passive copper cable has none")
        with self._pages.transaction():
            self._guard()
            self._write_power(low_power=True, class_5_to_7=False, class_8=False)

    def reset(self) -> None:
        """Reset the module, by ResetL if wired, otherwise by software (93.7). All settings are lost.

        Waits until the module responds, and reads its identity.

        Raises:
            NotSupportedError: ResetL is not wired, and the module does not announce a software reset.
            LinkError: The module does not respond after the reset.
        """
        by_pin = self._pins is not None and "reset_l" in self._pins.wired
        if not by_pin:
            self._require("software_reset", "a software reset", "221.0")
        with self._pages.transaction():
            if by_pin:
                self._pulse_reset()
            else:
                self._guard()
                field = find("software_reset")
                byte = self._pages.read_page(None, field.byte, 1)[0]
                # Not read back, because the bit clears itself with the reset.
                self._pages.write_page(None, field.byte, bytes([byte | field.mask]))
            self._pages.forget()
            self._clock.sleep(POLL_S)
            with self._pages.retry_for(START_UP_S):
                self.identify()
                self._opened_monitors().await_data()

    # -- memory

    def user_memory(self) -> bytes:
        """Return the 128 bytes of user memory (page 02h). Raises ``NotSupportedError`` if the module has none."""
        self._require("page_02", "user memory", "195.7")
        return qsfp_user.read(self._memory)

    def write_user_memory(self, offset: int, data: bytes) -> None:
        """Write a part of the user memory. After ``VerifyError``, call :meth:`enter_password` and try again."""
        self._require("page_02", "user memory", "195.7")
        with self._pages.transaction():
            self._guard()
            qsfp_user.write(self._memory, offset, data)

    def enter_password(self, password: int) -> None:
        """Unlock the user memory until the next reset. Raises ``LimitError`` if the password is above 7FFFFFFFh."""
        with self._pages.transaction():
            self._guard()
            qsfp_user.enter_password(self._memory, password)

    def dump(self) -> MemoryImage:
        """Read the complete memory, except the flags, which reading would clear.

        The image lists the pages that cannot be read.
        """
        halves: dict[Half, bytes] = {}
        unreadable: dict[Half, str] = {}
        with self._pages.transaction():
            capabilities = self.capabilities
            halves[LOWER] = self._memory.lower()
            announced = {
                IDENTITY_PAGE: True,
                0x01: capabilities.page_01,
                USER_PAGE: capabilities.page_02,
                THRESHOLD_PAGE: not capabilities.flat,
                **dict.fromkeys(_PAM4_PAGES, capabilities.pages_20_21),
            }
            for page, is_announced in announced.items():
                if not is_announced or (capabilities.flat and page):
                    continue
                try:
                    if self._pages.has_page(page):
                        halves[0, page] = self._pages.read_page(page, HALF_BYTES, HALF_BYTES)
                    else:
                        unreadable[0, page] = "the module announces this page, but does not have it"
                except (NotRespondingError, ModuleAbsentError, ShortReadError) as error:
                    self._pages.read_page(None, 0, 1)  # raises if the module was removed
                    unreadable[0, page] = error.message
        identity = identity_of(halves.get((0, IDENTITY_PAGE), bytes(HALF_BYTES)))
        source = f"{identity.vendor} {identity.part_number} {identity.serial}"
        return MemoryImage(halves, {LOWER: frozenset(FLAG_BYTES)}, source, unreadable=unreadable)

    # -- parts of the operations

    def _pulse_reset(self) -> None:
        if self._pins is not None:
            self._pins.assert_signal("reset_l", True)
            try:
                self._clock.sleep(RESET_PULSE_S)
            finally:
                self._pins.assert_signal("reset_l", False)

    def _switch_on(self, lanes: Iterable[int]) -> None:
        lanes = tuple(lanes)
        self._require("tx_disable", "switching the transmitter", "195.4")
        with self._pages.transaction():
            self._guard()
            power = self.power_control()
            is_asleep = power.by_software and power.low_power
            disabled = self._memory.lanes("tx_disable")
            dark = [lane for lane in lanes if is_asleep or disabled[lane - 1]]
            others = [lane for lane in LANES if lane not in lanes]
            with dark_after_failure(self._clock, lambda: self._disable(dark)):
                if is_asleep:  # all lanes would emit when the module leaves low power
                    self._disable(others)
                self.power_up()
                self._flags.read()  # so that only new faults count
                self._memory.write_lanes("tx_disable", lanes, 0)
                if self.capabilities.tx_power:
                    self._await_power(lanes)

    def _disable(self, lanes: Collection[int]) -> None:
        if lanes:
            self._memory.write_lanes("tx_disable", lanes, 1)

    def _switch_off(self, lanes: Iterable[int]) -> None:
        lanes = tuple(lanes)
        self._require("tx_disable", "switching the transmitter", "195.4")
        with self._pages.transaction():
            self._guard()
            self._memory.write_lanes("tx_disable", lanes, 1)
            if not self.capabilities.tx_power:
                return
            deadline = self._clock.now() + SWITCH_OFF_S
            while bright := [item for item in self._lanes(lanes) if not is_dark(item)]:
                if self._clock.now() >= deadline:
                    raise self._target.error(
                        VerifyError,
                        f"the transmitter of lane {_lane_text(bright)} still emits light {SWITCH_OFF_S:g} s after it "
                        "was switched off",
                        wrote="Tx_Disable",
                        read=", ".join(f"{item.tx_power_dbm:.1f} dBm" for item in bright),
                        hint="Assume that the fibre carries light. Remove the module if it must be dark.",
                    )
                self._clock.sleep(POLL_S)

    def _await_power(self, lanes: tuple[int, ...]) -> None:
        started = self._clock.now()
        timeout_s = COOLED_LASER_START_S if self.capabilities.cooled else LASER_START_S
        window = self.thresholds().get("tx_power")
        n_faulty = 0
        while True:
            self._clock.sleep(POLL_S)
            asserted = self._flags.read()
            faulty = [lane for lane in lanes if ("tx_fault", lane) in asserted]
            n_faulty = n_faulty + 1 if faulty else 0
            outside = [item for item in self._lanes(lanes) if not is_within(item.tx_power_dbm, window)]
            if not faulty and not outside and not self._memory.bit("data_not_ready"):
                return
            elapsed_s = self._clock.now() - started
            if elapsed_s >= timeout_s or n_faulty * POLL_S > RELATCH_S:
                powers = ", ".join(f"lane {item.lane} {_dbm_text(item.tx_power_dbm)}" for item in outside)
                fault = f"fault of lane {', '.join(map(str, faulty))}" if faulty else ""
                raise self._target.error(
                    DeviceError,
                    f"the transmitter did not start within {elapsed_s:.3g} s: "
                    f"{'; '.join(filter(None, (fault, powers))) or 'data not ready'}",
                    hint="Read flags() and the host signal (tx_los), or replace the module.",
                )

    def _lanes(self, lanes: Iterable[int]) -> list[LaneMonitors]:
        return [item for item in self._opened_monitors().read(strict=False)[1] if item.lane in lanes]

    def _opened_monitors(self) -> QsfpMonitors:
        if self._monitors is None:
            raise not_open("the module", self._device, self._pages.name)
        return self._monitors

    def _masks(self) -> dict[QsfpField, QsfpField]:
        masks = {flag: mask_of_flag(flag) for flag in _FLAG_FIELDS if self.capabilities.has(flag.support)}
        # The masks of the lane monitors are on page 03h.
        has_page = not self.capabilities.flat and self._pages.has_page(THRESHOLD_PAGE)
        return {flag: mask for flag, mask in masks.items() if mask is not None and (mask.space is None or has_page)}

    def _write_power(self, *, low_power: bool, class_5_to_7: bool, class_8: bool) -> None:
        values = (True, low_power, class_5_to_7, class_8)
        self._memory.write((find(name), int(value)) for name, value in zip(_POWER_BITS, values, strict=True))

    def _note_replacement(self, identity: TransponderIdentity) -> None:
        if self._identity is not None:
            self._replaced = (
                f"the module with serial {self._identity.serial} was replaced by {identity.part_number} with serial "
                f"{identity.serial}"
            )

    def _guard(self) -> None:
        _ = self.capabilities
        if self._identity is not None:
            self._memory.guard(self._identity.serial, self._identity.part_number)

    def _checked(self, *lanes: int) -> tuple[int, ...]:
        if not lanes or not set(lanes) <= set(LANES):
            raise self._target.error(
                ConfigError, f"there is no lane {', '.join(map(str, lanes))}", hint="The lanes are 1 to 4."
            )
        return lanes

    def _require(self, capability: str, label: str, location: str) -> None:
        if not self.capabilities.has(capability):
            raise self._unsupported(label, f"the module does not announce it (bit {location})")

    def _require_cdr(self, side: Side) -> None:
        present, control = {"tx": ("129.3", "194.7"), "rx": ("129.2", "194.6")}[side]
        label = f"switching the {side.capitalize()} clock recovery"
        if not self.capabilities.has(f"{side}_cdr"):
            raise self._unsupported(label, f"the module has none (bit {present})")
        if not self.capabilities.has(f"{side}_cdr_control"):
            raise self._unsupported(label, f"the module does not announce the control (bit {control})")

    def _unsupported(self, label: str, reason: str) -> NotSupportedError:
        return self._target.error(
            NotSupportedError,
            f"{label} is not supported: {reason}",
            hint="See the options of this module: lumion transponder decode.",
        )


_POWER_BITS = ("power_override", "low_power_set", "high_power_class_5_7_enable", "high_power_class_8_enable")


def _key(flag: QsfpField) -> FieldKey:
    return flag.name.removesuffix("_flag"), flag.lane


def _dbm_text(power_dbm: float | None) -> str:
    return "dark" if power_dbm is None else f"{power_dbm:.1f} dBm"


def _lane_text(lanes: Iterable[LaneMonitors]) -> str:
    return ", ".join(str(item.lane) for item in lanes)


def _power_text(capabilities: QsfpCapabilities) -> str:
    return "" if capabilities.max_power_w is None else f" ({capabilities.max_power_w:g} W)"
