"""Whether the chip is held at its temperature while it is measured: waited for before, asked after.

The phases of a mesh follow its temperature: what was read while the lock was lost is not used, it is read again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from lumion_hw.bench.bench import Bench
from lumion_hw.errors import CalibrationError, ConfigError

_MOST_TRIES = 4

Read = TypeVar("Read")


class TemperatureLock:
    """The temperature controller of a bench's mesh, as a measurement needs it. Without one, everything passes.

    Args:
        bench: The bench.

    Raises:
        ConfigError: The mesh has a controller, and it was not opened.
    """

    def __init__(self, bench: Bench) -> None:
        self._events, self._clock = bench.events, bench.clock
        self._name, self._wait_s = bench.model.mesh_section.temperature, bench.model.mesh_section.temperature_wait_s
        if self._name is not None and self._name not in bench.temperature_controllers:
            raise ConfigError(
                "the temperature controller of the mesh was not opened",
                device=self._name,
                hint="Leave out 'only', or name it.",
            )
        self._controller = bench.temperature_controllers[self._name] if self._name is not None else None
        self._counted: int | None = None
        self._lost: list[str] = []
        self._keep: Callable[[str], object] = lambda lost: None

    def keep_temperature_lock_losses(self, before: Sequence[str], keep: Callable[[str], object]) -> None:
        """Go on from the losses of earlier sittings; those of this one, so far and from now on, are given away."""
        for lost in self._lost:
            keep(lost)
        self._lost, self._keep = [*before, *self._lost], keep

    def wait(self) -> None:
        """Wait until the temperature is held.

        Raises:
            DeviceError: The output is off, or the controller reports a fault.
            DeviceTimeoutError: It is not held in time.
        """
        if self._controller is None:
            return
        began_s, state = self._clock.now(), self._controller.state()
        if not state.locked:
            state = self._controller.wait_locked(self._wait_s)
        self._counted = state.losses
        self._events.add(
            "temperature locked",
            controller=self._name,
            temperature_c=state.temperature_c,
            waited_s=round(self._clock.now() - began_s, 1),
        )

    def held(self, read: Callable[[], Read]) -> Read:
        """Return what is read while the temperature is held; read again where the lock was lost meanwhile.

        Raises:
            CalibrationError: It is lost time and again.
            DeviceError, DeviceTimeoutError: As of :meth:`wait`; and what reading raises.
        """
        if self._controller is None:
            return read()
        if self._counted is None:
            self.wait()
        for _ in range(_MOST_TRIES):
            found = read()
            # One question covers the time since the one before, so that none is needed ahead of the readings.
            if not self._is_lost():
                return found
            self.wait()
        raise CalibrationError(
            f"the temperature of the chip is not held: the lock of {self._name} was lost during each of {_MOST_TRIES} "
            "attempts at the same readings",
            hint="Look at its gain and its current limit, or widen its tolerance in the bench file.",
        )

    def measurement_warnings(self) -> tuple[str, ...]:
        """Return what a record has to say about the temperature, a sentence; nothing where the lock held."""
        if not self._lost:
            return ()
        often = "once" if len(self._lost) == 1 else f"{len(self._lost)} times"
        return (
            f"temperature of the chip: the lock of {self._name} was lost {often}, first {self._lost[0]}; readings made "
            "meanwhile were made again",
        )

    def _is_lost(self) -> bool:
        """Ask whether the lock was lost since it was last asked, and take it down."""
        if self._controller is None or self._counted is None:
            return False
        state = self._controller.state()
        lost = state.losses > self._counted or not state.locked
        if state.losses > self._counted:
            now = "no temperature" if state.temperature_c is None else f"{state.temperature_c:.3f} °C"
            why = f", {', '.join(state.faults)}" if state.faults else ""
            self._lost.append(f"with {now} of {state.setpoint_c:g} °C{why}")
            self._events.add(
                "temperature lock lost",
                controller=self._name,
                temperature_c=state.temperature_c,
                setpoint_c=state.setpoint_c,
                faults=list(state.faults),
            )
            self._counted = state.losses
            self._keep(self._lost[-1])
        return lost
