"""Driver for Amonics AEDFA erbium-doped fibre amplifiers: SCPI-like text at 19200 baud, no ``*IDN?``, no error queue.

Sources: the programming manual as quoted by three public clients (``amonics_edfa``, the KeckLFC client of the same
name, and a class ``AmonicsEDFA``). AGC mode (constant gain) is unverified.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar, Unpack

from lumion_hw.clock import Clock, deadline_after
from lumion_hw.drivers.life_cycle import IdentifiedDriver, close_on_error
from lumion_hw.drivers.ranges import check_range
from lumion_hw.drivers.scpi import DeviceNames, ExpectedIdentity, Identity, StrictScpi
from lumion_hw.errors import (
    DeviceError,
    DeviceTimeoutError,
    IdentityError,
    LinkTimeout,
    NotSupportedError,
    VerifyError,
)
from lumion_hw.interfaces import AmplifierLimits, AmplifierMode, AmplifierSettings, AmplifierState
from lumion_hw.links.base import Link
from lumion_hw.quantities import dbm_from_w, w_from_dbm
from lumion_hw.sessions.scpi import ScpiSession

ValueT = TypeVar("ValueT")

_log = logging.getLogger(__name__)

GAP_S = 0.05
"""Minimum time between two commands, in s (manual, "Important Notes" 4, as quoted by ``amonics_edfa``)."""
MODE_BY_NAME = {"ACC": AmplifierMode.CURRENT, "APC": AmplifierMode.POWER, "AGC": AmplifierMode.GAIN}
"""Names of the modes in commands."""
_MILLI = {"MA": 1.0, "A": 1e3, "MW": 1.0, "W": 1e3}
"""Factors from the units of set points to mA or mW."""
_ON, _BUSY, _LOCKED = 1, 2, 4
MONITORS = {
    "input power": (":READ:CH:POW:IN?", ":SENS:POW:IN:CH1?"),
    "output power": (":READ:CH:POW:OUT?", ":SENS:POW:OUT:CH1?"),
    "pump current": (":READ:CH:CUR?", ":SENS:CUR:CH1?"),
    "temperature": (":READ:CH:TEMP:BOX?", ":SENS:TEMP:BOX?"),
}
"""Queries for each monitor: the number of monitors, and the reading of the first (in mA, mW or °C)."""
_SWITCH_S = 5.0
_REPEAT_S = 1.0
_POLL_S = 0.1


@dataclass(frozen=True)
class _HeldQuantity:
    """Unit, limits and step of one quantity that the amplifier can keep constant."""

    unit: str
    low: float
    high: float
    step: float

    def from_wire(self, value: float) -> float:
        """Convert a value in the unit of the amplifier to dBm, dB or mA."""
        if self.unit in ("DBM", "DB"):
            return value
        milli = value * _MILLI[self.unit]
        return dbm_from_w(1e-3 * milli) if self.unit.endswith("W") else milli

    def to_wire(self, value: float) -> float:
        """Convert a value in dBm, dB or mA to the unit of the amplifier."""
        if self.unit in ("DBM", "DB"):
            return value
        return (1e3 * w_from_dbm(value) if self.unit.endswith("W") else value) / _MILLI[self.unit]

    @property
    def limits(self) -> tuple[float, float]:
        """Limits in mA, dBm or dB. A lower limit of 0 mW, which has no value in dBm, is replaced by one step."""
        low = max(self.low, self.step) if self.unit.endswith("W") else self.low
        return self.from_wire(low), self.from_wire(self.high)


class AmonicsAedfa(IdentifiedDriver[Identity, ScpiSession]):
    """Driver of one amplifier; implements ``OpticalAmplifier``. Thread-safe; every setting is read back.

    Set points apply to the first pump only. All pumps are switched together.

    Args:
        link: Serial link, 19200 baud.
        clock: Clock of the link.
        **names: Device name, required model and required serial number; an omitted requirement accepts any.
    """

    kind = "amplifier"

    def __init__(self, link: Link, clock: Clock, **names: Unpack[DeviceNames]) -> None:
        self._device = names["device"]
        self._session = ScpiSession(
            link,
            clock,
            device=self._device,
            terminator=b"\r\n",
            identity_query=":CAL:SYS:MODEL?",
            gap_s=GAP_S,
        )
        self._scpi = StrictScpi(self._session)
        self._clock = clock
        self._expected = ExpectedIdentity(("AMONICS",), (), names.get("expected_model"), names.get("expected_serial"))
        self._quantities: dict[AmplifierMode, _HeldQuantity] = {}
        self._n_pumps = 1
        self._monitors: set[str] = set()
        self._has_interlock = True

    def open(self) -> None:
        """Open the link, check the identity, and read the modes and monitors of the amplifier.

        A feature whose query gets no reply counts as missing. Raises the errors of :meth:`Driver.open`, and
        ``DeviceError`` if the amplifier reports no limits for any mode.
        """
        with self._session.transaction(), close_on_error(self.close):
            self._identity = self._checked_identity(self._session.open())
            mode_names = self._read_mode_names()
            count = self._reply_or_none(partial(self._scpi.setting, f":READ:CH:DRIV:{mode_names[0]}?"))
            self._n_pumps = 1 if count is None else round(count)
            actual = {
                mode_name: self._reply_or_none(partial(self._read_quantity, mode_name)) for mode_name in mode_names
            }
            self._quantities = {
                MODE_BY_NAME[mode_name]: quantity for mode_name, quantity in actual.items() if quantity is not None
            }
            if not self._quantities:
                raise self._device_error(
                    "open",
                    "the amplifier reports no limits for any mode",
                    "Check that the amplifier is an AEDFA with a serial port.",
                )
            counts = {
                name: self._reply_or_none(partial(self._scpi.setting, quantity))
                for name, (quantity, _) in MONITORS.items()
            }
            self._monitors = {name for name, count in counts.items() if count}
            self._has_interlock = self._reply_or_none(partial(self._scpi.setting, ":DRIV:INTERLOCK?")) is not None

    def close(self) -> None:
        """Release the link; idempotent, never raises. The output stays as it is."""
        self._identity = None
        self._session.close()

    def hold_current_ma(self, current_ma: float) -> None:
        """Hold the current of the first pump constant. Errors: see :meth:`OpticalAmplifier.hold_current_ma`."""
        self._hold(AmplifierMode.CURRENT, "pump current", current_ma, "mA")

    def hold_power_dbm(self, power_dbm: float) -> None:
        """Hold the output power constant. Raises the errors of :meth:`OpticalAmplifier.hold_current_ma`."""
        self._hold(AmplifierMode.POWER, "output power", power_dbm, "dBm")

    def hold_gain_db(self, gain_db: float) -> None:
        """Hold the gain constant. Raises the errors of :meth:`OpticalAmplifier.hold_current_ma`."""
        self._hold(AmplifierMode.GAIN, "gain", gain_db, "dB")

    def enable(self) -> None:
        """Switch pumps and output on. Raises the errors of :meth:`OpticalAmplifier.enable`."""
        self._check_open()
        if self._is_interlock_open():
            raise self._device_error(
                "enable", "the interlock is open", "Close the interlock and unlock the amplifier at its panel."
            )
        mode_name = self._mode_name()
        for pump in range(1, self._n_pumps + 1):
            self._switch(f":DRIV:{mode_name}:STAT:CH{pump}", on=True)
        self._switch(":DRIV:MCTRL", on=True)

    def disable(self) -> None:
        """Switch the output off and verify that it is off."""
        self._check_open()
        self._switch(":DRIV:MCTRL", on=False)

    def wait_ready(self, timeout_s: float) -> AmplifierState:
        """Wait until the amplifier emits and is not busy. Raises the errors of :meth:`OpticalAmplifier.wait_ready`."""
        deadline = deadline_after(self._clock, timeout_s)
        while not (state := self.state()).ready:
            if state.flags or not state.emitting:
                raise self._device_error(
                    "wait_ready", ", ".join(state.flags) or "the pump is off", "Check the panel, then call enable()."
                )
            if self._clock.now() >= deadline:
                raise self._session.error(
                    DeviceTimeoutError,
                    f"wait_ready: the amplifier responds, but is still busy after {timeout_s:g} s",
                    command="wait_ready",
                    hint="Check the panel of the amplifier.",
                )
            self._clock.sleep(min(_POLL_S, max(deadline - self._clock.now(), 1e-3)))
        return state

    def state(self) -> AmplifierState:
        """Read the present state of the amplifier."""
        self._check_open()
        with self._session.transaction():
            mode_name = self._mode_name()
            master = self._read_state(":DRIV:MCTRL")
            pumps = [self._read_state(f":DRIV:{mode_name}:STAT:CH{pump}") for pump in range(1, self._n_pumps + 1)]
            flags = ["the interlock is open"] if self._is_interlock_open() else []
            flags += [f"pump {number} is locked" for number, pump in enumerate(pumps, 1) if pump & _LOCKED]
            return AmplifierState(
                emitting=master != 0 and any(pumps),
                ready=not flags and master == _ON and all(pump == _ON for pump in pumps),
                input_power_dbm=_level_dbm(self._monitor("input power")),
                output_power_dbm=_level_dbm(self._monitor("output power")),
                pump_current_ma=self._monitor("pump current"),
                temperature_c=self._monitor("temperature"),
                flags=tuple(flags),
                timestamp_s=self._clock.now(),
            )

    def settings(self) -> AmplifierSettings:
        """Return the present settings."""
        self._check_open()
        with self._session.transaction():
            mode_name = self._mode_name()
            mode = MODE_BY_NAME[mode_name]
            value = self._quantity(mode_name).from_wire(self._scpi.setting(f":DRIV:{mode_name}:CUR:CH1?"))
            return AmplifierSettings(
                mode=mode,
                current_ma=value if mode is AmplifierMode.CURRENT else None,
                power_dbm=value if mode is AmplifierMode.POWER else None,
                gain_db=value if mode is AmplifierMode.GAIN else None,
                enabled=self._read_state(":DRIV:MCTRL") != 0,
            )

    def limits(self) -> AmplifierLimits:
        """Return the limits that the amplifier reported at opening."""
        self._check_open()
        quantity = {mode: quantity.limits for mode, quantity in self._quantities.items()}
        return AmplifierLimits(*(quantity.get(mode) for mode in AmplifierMode))

    # -- shared helpers

    def _read_mode_names(self) -> list[str]:
        """Return the modes that the amplifier reports, or all modes if it reports none."""
        query = ":READ:MODE:NAMES?"
        names = self._reply_or_none(partial(self._session.query, query))
        if names is None:
            return list(MODE_BY_NAME)
        mode_names = [mode_name for mode_name in names.replace(",", " ").upper().split() if mode_name in MODE_BY_NAME]
        if not mode_names:
            raise self._scpi.wrong_shape(query, names, f"some of {', '.join(MODE_BY_NAME)}")
        return mode_names

    def _reply_or_none(self, query: Callable[[], ValueT]) -> ValueT | None:
        try:
            return query()
        except LinkTimeout as error:
            _log.info("a query had no reply, so this feature counts as missing: %s", error)
            return None

    def _hold(self, mode: AmplifierMode, label: str, value: float, unit: str) -> None:
        self._check_open()
        if mode not in self._quantities:
            available = " and ".join(quantity.value for quantity in self._quantities)
            raise self._session.error(
                NotSupportedError, f"this amplifier cannot hold the {mode.value}", hint=f"Its modes are: {available}."
            )
        mode_name = next(mode_name for mode_name, mode_of_name in MODE_BY_NAME.items() if mode_of_name is mode)
        with self._session.transaction():
            quantity = self._quantity(mode_name)
            check_range(label, value, quantity.limits, unit, self._session)
            before = self._mode_name()
            if before != mode_name:
                if self._read_state(":DRIV:MCTRL"):
                    reason = f"it emits while holding the {MODE_BY_NAME[before].value}"
                    raise self._device_error(f"hold {mode.value}", reason, "Call disable() before you change the mode.")
                self._session.write(f":MODE:SW:CH1 {mode_name}")
                self._check_equal("mode", mode_name, self._mode_name)
            # Rounded to the amplifier's step; otherwise its own rounding would look like a refused setting.
            step = quantity.step
            requested = min(max(round(quantity.to_wire(value) / step) * step, quantity.low), quantity.high)
            self._session.write(f":DRIV:{mode_name}:CUR:CH1 {requested:.6g}")
            actual = self._scpi.setting(f":DRIV:{mode_name}:CUR:CH1?")
            self._scpi.verify(f"{label} as {quantity.unit}", requested, actual, 0.51 * step + 1e-5 * abs(requested))
            if (reported_unit := self._unit(mode_name)) != quantity.unit:
                raise self._session.error(
                    VerifyError,
                    f"the unit of the {label} has changed",
                    wrote=quantity.unit,
                    read=reported_unit,
                    hint="Another program or the panel changed the unit at the same time. Set the value again.",
                )

    def _switch(self, header: str, *, on: bool) -> None:
        deadline = repeat_at_s = self._clock.now()
        deadline += _SWITCH_S
        while (actual := self._read_state(header)) != int(on):
            if self._clock.now() >= deadline:
                raise self._session.error(
                    VerifyError,
                    header,
                    wrote=int(on),
                    read=actual,
                    hint="Check the amplifier's panel for an alarm and the interlock.",
                )
            if self._clock.now() >= repeat_at_s and not actual & _BUSY:
                self._session.write(f"{header} {int(on)}")
                repeat_at_s = self._clock.now() + _REPEAT_S
            self._clock.sleep(_POLL_S)

    def _check_equal(self, label: str, wrote: str, read: Callable[[], str]) -> None:
        actual = read()
        if actual != wrote:
            raise self._session.error(VerifyError, label, wrote=wrote, read=actual)

    def _mode_name(self) -> str:
        if len(self._quantities) == 1:
            (only,) = self._quantities
            return next(mode_name for mode_name, mode in MODE_BY_NAME.items() if mode is only)
        return self._scpi.read_keyword(
            ":MODE:SW:CH1?", [mode_name for mode_name, mode in MODE_BY_NAME.items() if mode in self._quantities]
        )

    def _quantity(self, mode_name: str) -> _HeldQuantity:
        mode = MODE_BY_NAME[mode_name]
        if self._quantities[mode].unit != self._unit(mode_name):
            self._quantities[mode] = self._read_quantity(mode_name)
        return self._quantities[mode]

    def _unit(self, mode_name: str) -> str:
        return self._scpi.read_keyword(f":READ:DRIV:UNIT:{mode_name}:CH1?", (*_MILLI, "DBM", "DB"))

    def _read_quantity(self, mode_name: str) -> _HeldQuantity:
        unit = self._unit(mode_name)
        limits = (self._scpi.setting(f":READ:DRIV:{label}:{mode_name}:CH1?") for label in ("MIN", "MAX", "STEP"))
        return _HeldQuantity(unit, *limits)

    def _read_state(self, header: str) -> int:
        value = self._scpi.setting(f"{header}?")
        if value not in (0, _ON, _BUSY, _LOCKED):
            raise self._scpi.wrong_shape(f"{header}?", f"{value:g}", "0, 1, 2 or 4")
        return int(value)

    def _is_interlock_open(self) -> bool:
        return self._has_interlock and self._scpi.setting(":DRIV:INTERLOCK?") != 0

    def _monitor(self, name: str) -> float | None:
        return self._scpi.setting(MONITORS[name][1]) if name in self._monitors else None

    def _checked_identity(self, model: str) -> Identity:
        serial = self._session.query(":CAL:SYS:SERIAL?")
        actual = Identity("Amonics", model.strip(), serial.strip(), "")
        requested = self._expected
        if model.upper().startswith("AEDFA") and requested.matches(actual):
            return actual
        self._session.forget_identity()
        raise self._session.error(
            IdentityError,
            f"expected {requested.model or 'an Amonics AEDFA'}, serial {requested.serial or 'any'}; "
            f"found {model!r}, serial {serial!r}",
            hint="Check the address in the bench file, and which instrument is connected there.",
        )

    def _device_error(self, command: str, reason: str, hint: str) -> DeviceError:
        return self._session.error(DeviceError, f"{command}: {reason}", command=command, hint=hint)


def _level_dbm(power_mw: float | None) -> float | None:
    return dbm_from_w(1e-3 * power_mw) if power_mw is not None and power_mw > 0.0 else None
