"""Temperature lock (stable chip temperature) during a measurement.

Readings made without the lock are discarded and repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from lumion_hw.bench.bench import Bench
from lumion_hw.errors import CalibrationError, ConfigError

_MAX_TRIES = 4

Read = TypeVar("Read")


class TemperatureLock:
    """Checks that the chip temperature is stable; without a temperature controller all checks pass.

    Raises:
        ConfigError: The mesh has a temperature controller, but it is not open.
    """

    def __init__(self, bench: Bench) -> None:
        self._events, self._clock = bench.events, bench.clock
        self._name, self._wait_s = bench.model.mesh_section.temperature, bench.model.mesh_section.temperature_wait_s
        if self._name is not None and self._name not in bench.temperature_controllers:
            raise ConfigError(
                "the temperature controller of the mesh is not open",
                device=self._name,
                hint="Open the bench without 'only', or add the controller to 'only'.",
            )
        self._controller = bench.temperature_controllers[self._name] if self._name is not None else None
        self._counted: int | None = None
        self._losses: list[str] = []
        self._keep: Callable[[str], object] = lambda loss: None

    def keep_losses(self, before: Sequence[str], keep: Callable[[str], object]) -> None:
        """Continue the list of lock losses from earlier sessions; ``keep`` is called with every new one."""
        for loss in self._losses:
            keep(loss)
        self._losses, self._keep = [*before, *self._losses], keep

    def wait(self) -> None:
        """Wait until the temperature of the chip is stable.

        Raises:
            DeviceError: The output is off, or the controller reports a fault.
            DeviceTimeoutError: The temperature is not stable in time.
        """
        if self._controller is None:
            return
        began_s, state = self._clock.now(), self._controller.state()
        if not state.locked:
            state = self._controller.wait_locked(self._wait_s)
        self._counted = state.losses
        waited_s, temperature_c = round(self._clock.now() - began_s, 1), state.temperature_c
        self._events.add("temperature locked", controller=self._name, temperature_c=temperature_c, waited_s=waited_s)

    def read_while_locked(self, read: Callable[[], Read]) -> Read:
        """Call a function that reads while the temperature is stable; repeat the call if the lock was lost meanwhile.

        Raises:
            CalibrationError: The lock was lost in every attempt.
            DeviceError, DeviceTimeoutError: As for :meth:`wait`, or from the function.
        """
        if self._controller is None:
            return read()
        if self._counted is None:
            self.wait()
        for _ in range(_MAX_TRIES):
            result = read()
            # Each check covers the time since the previous one, so no check is needed before the readings.
            if not self._has_lost_lock():
                return result
            self.wait()
        raise CalibrationError(
            f"the chip temperature is not stable: the lock of {self._name} was lost in each of {_MAX_TRIES} attempts "
            "at the same readings",
            hint="Check the gain and the current limit of the controller, or increase its tolerance in the bench file.",
        )

    def warnings(self) -> tuple[str, ...]:
        """Return a warning if the lock was lost, otherwise nothing."""
        if not self._losses:
            return ()
        often = "once" if len(self._losses) == 1 else f"{len(self._losses)} times"
        return (
            f"chip temperature: the lock of {self._name} was lost {often}, first {self._losses[0]}; the affected "
            "readings were repeated",
        )

    def _has_lost_lock(self) -> bool:
        if self._controller is None or self._counted is None:
            return False
        state = self._controller.state()
        has_new_losses = state.losses > self._counted
        if has_new_losses:
            reading = "no temperature" if state.temperature_c is None else f"{state.temperature_c:.3f} °C"
            causes = f", {', '.join(state.faults)}" if state.faults else ""
            self._losses.append(f"with {reading} of {state.setpoint_c:g} °C{causes}")
            self._events.add(
                "temperature lock lost",
                controller=self._name,
                temperature_c=state.temperature_c,
                setpoint_c=state.setpoint_c,
                faults=list(state.faults),
            )
            self._counted = state.losses
            self._keep(self._losses[-1])
        return has_new_losses or not state.locked
