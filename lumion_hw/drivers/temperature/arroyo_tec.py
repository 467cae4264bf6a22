"""Driver for Arroyo TECSource temperature controllers: one channel, SCPI-like text over USB, serial line or TCP.

Source: Arroyo's Computer Interfacing Manual (Rev 2021-01) as quoted by public clients. Serial lines have 38400 baud.
"""

from __future__ import annotations

from typing import Unpack

from lumion_hw.clock import Clock, deadline_after
from lumion_hw.drivers.life_cycle import close_on_error
from lumion_hw.drivers.ranges import check_range
from lumion_hw.drivers.scpi import DeviceNames, ScpiDriver, StrictScpi, checked_identity
from lumion_hw.errors import DeviceError, DeviceTimeoutError
from lumion_hw.interfaces import TemperatureLimits, TemperatureSettings, TemperatureState
from lumion_hw.links.base import Link

TOLERANCES_C = (0.01, 10.0)
WINDOWS_S = (0.1, 50.0)
FAULTS = {
    0: "current limit",
    1: "voltage limit",
    2: "sensor limit",
    3: "high temperature limit",
    4: "low temperature limit",
    5: "sensor shorted",
    6: "sensor open",
    7: "cooler open, or its interlock",
    12: "thermal run-away",
}
"""Fault bits of the condition and event registers."""
_OUT_OF_TOLERANCE = 1 << 9
_OUTPUT_ON = 1 << 10
_NO_SENSOR = 1 << 5 | 1 << 6
_ONLY_SLOW = 1 << 0 | 1 << 1
"""Faults at which the controller continues to work: current limit and voltage limit."""
_MODE_AND_SENSOR = "TEC:MODE?;TEC:SEN?;TEC:CONST?"
"""Queries for the settings on which temperature readings depend."""
_SETPOINT_TOLERANCE_C = 0.0051
_POLL_S = 0.2


class ArroyoTec(ScpiDriver):
    """Driver of one controller; implements ``TemperatureController``. Thread-safe; every setting is read back.

    Args:
        link: Link to the controller.
        clock: Clock of the link.
        **names: As for :class:`~lumion_hw.drivers.scpi.ScpiDriver`; a model is, for example, ``5305``.
    """

    kind = "temperature controller"
    makers = ("ARROYO",)
    terminator = b"\r\n"

    def __init__(self, link: Link, clock: Clock, **names: Unpack[DeviceNames]) -> None:
        super().__init__(link, clock, **names)
        self._scpi = StrictScpi(self._session, self.ignorable_errors, "ERRSTR?")
        self._was_locked = False
        self._losses = 0
        self._sensor = ""

    def open(self) -> None:
        """Open the link, check identity and temperature mode. Output and setpoint do not change.

        If the sensor settings change later, readings raise an error. Raises the errors of :meth:`Driver.open`, and
        ``DeviceError`` unless the controller is in temperature mode.
        """
        with self._session.transaction(), close_on_error(self.close):
            reply = self._session.open()
            fields = reply.replace(",", " ").replace("Instruments", " ").split(None, 3)
            self._identity = checked_identity(
                self._session, ",".join(field.strip() for field in fields), self._expected
            )
            self._scpi.errors()  # discard errors of earlier users
            self._sensor = self._read_sensor()
            self._scpi.number("TEC:EVENT?")  # clears events from before opening
            self._was_locked = _is_locked(self._condition())

    def set_temperature_c(self, temperature_c: float) -> None:
        """Set the target temperature. Raises the errors of :meth:`TemperatureController.set_temperature_c`."""
        with self._session.transaction():
            check_range("temperature", temperature_c, self.limits().setpoint_c, "°C", self._session)
            self._scpi.set(f"TEC:T {temperature_c:.3f}")
            actual_c = self._scpi.setting("TEC:SET:T?")
            self._scpi.verify("temperature in °C", temperature_c, actual_c, _SETPOINT_TOLERANCE_C)

    def set_tolerance(self, tolerance_c: float, window_s: float) -> None:
        """Set the tolerance of the temperature and the time within it that counts as locked.

        Raises the errors of :meth:`TemperatureController.set_tolerance`.
        """
        self._check_open()
        check_range("tolerance", tolerance_c, TOLERANCES_C, "K", self._session)
        check_range("time within the tolerance", window_s, WINDOWS_S, "s", self._session)
        with self._session.transaction():
            self._scpi.set(f"TEC:TOL {tolerance_c:.3f},{window_s:.1f}")
            actual_c, actual_s = self._tolerance()
            self._scpi.verify("tolerance in K", tolerance_c, actual_c, 0.0051)
            self._scpi.verify("time within the tolerance in s", window_s, actual_s, 0.051)
            self._was_locked = False  # the controller restarts the window, which is not a loss of lock

    def enable(self) -> None:
        """Switch the output on. Raises ``DeviceError`` if the output does not stay on."""
        self._check_open()
        with self._session.transaction():
            self._scpi.set("TEC:OUT 1")
            if round(self._scpi.setting("TEC:OUT?")):
                return
            condition = self._condition()
        raise self._session.error(
            DeviceError,
            f"the output did not stay on: {', '.join(_faults(condition)) or 'no fault is reported'}",
            code=condition,
            command="TEC:OUT 1",
            hint="Check sensor, cooler, interlock, and that the temperature is within the controller's limits.",
        )

    def disable(self) -> None:
        """Switch the output off and verify that it is off."""
        self._check_open()
        self._scpi.set_number("TEC:OUT", "0", 0.0, 1.0, 0.0, "output")

    def wait_locked(self, timeout_s: float) -> TemperatureState:
        """Wait until the temperature is locked. Raises the errors of :meth:`TemperatureController.wait_locked`."""
        deadline = deadline_after(self._clock, timeout_s)
        while not (state := self.state()).locked:
            blocking_faults = [fault for fault in state.faults if fault not in _faults(_ONLY_SLOW)]
            if blocking_faults or not state.enabled:
                raise self._session.error(
                    DeviceError,
                    f"wait_locked: {', '.join(blocking_faults) or 'the output is off'}",
                    command="wait_locked",
                    hint="Check sensor, cooler and interlock, then call enable()."
                    if blocking_faults
                    else "Call enable() first.",
                )
            if self._clock.now() >= deadline:
                reading = "unknown" if state.temperature_c is None else f"{state.temperature_c:.3f} °C"
                raise self._session.error(
                    DeviceTimeoutError,
                    f"wait_locked: not locked at {state.setpoint_c:g} °C after {timeout_s:g} s: "
                    f"the plate is at {reading}",
                    command="wait_locked",
                    hint=f"Limit reached: {', '.join(state.faults)}."
                    if state.faults
                    else "Check the gain or PID settings.",
                )
            self._clock.sleep(min(_POLL_S, max(deadline - self._clock.now(), 1e-3)))
        return state

    def state(self) -> TemperatureState:
        """Read the present state."""
        self._check_open()
        with self._session.transaction():
            self._check_sensor()
            events, condition = round(self._scpi.setting("TEC:EVENT?")), self._condition()
            enabled, locked = bool(condition & _OUTPUT_ON), _is_locked(condition)
            # The event register also keeps short events, and is cleared by reading.
            if self._was_locked and (not locked or events & _OUT_OF_TOLERANCE):
                self._losses += 1
            self._was_locked = locked
            return TemperatureState(
                temperature_c=None if condition & _NO_SENSOR else self._scpi.setting("TEC:T?"),
                setpoint_c=self._scpi.setting("TEC:SET:T?"),
                current_a=self._scpi.setting("TEC:ITE?"),
                enabled=enabled,
                locked=locked,
                losses=self._losses,
                faults=_faults(condition),
                timestamp_s=self._clock.now(),
            )

    def settings(self) -> TemperatureSettings:
        """Return the present settings."""
        self._check_open()
        with self._session.transaction():
            tolerance_c, window_s = self._tolerance()
            enabled = bool(round(self._scpi.setting("TEC:OUT?")))
            return TemperatureSettings(self._scpi.setting("TEC:SET:T?"), tolerance_c, window_s, enabled)

    def limits(self) -> TemperatureLimits:
        """Return the limits, including the temperatures at which the controller switches itself off."""
        self._check_open()
        with self._session.transaction():
            low_high_c = self._scpi.setting("TEC:LIM:TLO?"), self._scpi.setting("TEC:LIM:THI?")
        return TemperatureLimits(low_high_c, TOLERANCES_C, WINDOWS_S)

    def _read_sensor(self) -> str:
        mode, _, sensor = self._session.query(_MODE_AND_SENSOR).upper().partition(",")
        if mode.strip() != "T":
            raise self._session.error(
                DeviceError,
                f"the controller is in mode {mode!r}, not in temperature mode",
                command="TEC:MODE?",
                hint="Select temperature mode at the panel while the output is off.",
            )
        return sensor

    def _check_sensor(self) -> None:
        sensor = self._read_sensor()
        if sensor != self._sensor:
            raise self._session.error(
                DeviceError,
                f"the sensor settings changed from {self._sensor} to {sensor}, so temperatures are not comparable",
                command=_MODE_AND_SENSOR,
                hint="Restore the settings at the panel. If the new ones are right, close and reopen the controller.",
            )

    def _tolerance(self) -> tuple[float, float]:
        values = self._scpi.numbers("TEC:TOL?")
        if len(values) != 2:
            raise self._scpi.wrong_shape("TEC:TOL?", str(values), "a tolerance and a time")
        return values[0], values[1]

    def _condition(self) -> int:
        return round(self._scpi.setting("TEC:COND?"))


def _is_locked(condition: int) -> bool:
    return bool(condition & _OUTPUT_ON) and not condition & _OUT_OF_TOLERANCE


def _faults(condition: int) -> tuple[str, ...]:
    return tuple(name for bit, name in FAULTS.items() if condition & 1 << bit)
