"""Driver for Thorlabs MPC220 and MPC320: two or three motorized paddles of fixed retardance, over APT messages."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from lumion_hw.clock import Clock
from lumion_hw.drivers.life_cycle import Driver, close_on_error, not_open
from lumion_hw.errors import (
    ConfigError,
    DeviceError,
    DeviceTimeoutError,
    IdentityError,
    LimitError,
    LinkTimeout,
    VerifyError,
)
from lumion_hw.interfaces import ActuatorInfo
from lumion_hw.links.base import Link
from lumion_hw.sessions.apt import AptSession
from lumion_hw.sessions.codecs.apt import (
    AptFrame,
    AptStatus,
    DecodedAptMessage,
    Parameters,
    StatusBit,
    command,
    decode_parameters,
    decode_status,
    move_absolute,
    set_parameters,
)

_log = logging.getLogger(__name__)

Model = Literal["MPC220", "MPC320"]
CHANNELS = (1, 2, 4)
N_PADDLES: Mapping[Model, int] = {"MPC220": 2, "MPC320": 3}
TRAVEL_DEG = 170.0
TRAVEL_COUNTS = 1370
STEP_DEG = TRAVEL_DEG / TRAVEL_COUNTS
FULL_SPEED_DEG_PER_S = 400.0
SLOWEST_PERCENT, FASTEST_PERCENT = 10, 100
DEFAULT_SETTLE_S = 0.05
"""Default time until the fibre has stopped moving, in s (a guess)."""
# A quarter of a degree; chosen by this project.
_TOLERANCE_COUNTS = 2
_SLACK_DEG = 1e-6
_POLL_S = 0.02
# Time from a command until a paddle moves; chosen by this project.
_START_S = 3.0
_HOMING_S = 30.0
_ENABLE = 1
_PADDLE = ActuatorInfo(
    kind="angle", unit="°", minimum=0.0, maximum=TRAVEL_DEG, step=STEP_DEG, period=180.0, endless=False
)


class ThorlabsMpc(Driver):
    """Driver of one controller; implements ``PolarizationController``. Thread-safe; every setting is read back.

    Opening does not move anything. Paddles that were not homed since power-on are homed before their first move.

    Args:
        link: Serial link, 115 200 baud.
        clock: Clock of the link.
        model: Required model; if omitted, the number of paddles is detected.
        velocity_percent: Velocity to set, 10 to 100 % of 400°/s; not changed if omitted.
        settle_s: Settling time of the light after a move.
    """

    def __init__(
        self,
        link: Link,
        clock: Clock,
        *,
        device: str,
        model: Model | None = None,
        velocity_percent: int | None = None,
        settle_s: float = DEFAULT_SETTLE_S,
    ) -> None:
        self._session = AptSession(link, clock, device=device, on_frame=self._record_completion)
        self._clock = clock
        self._device = device
        self._model = model
        self._velocity_percent = velocity_percent
        self._settle_s = settle_s
        self._channels = CHANNELS[: N_PADDLES[model or "MPC320"]]
        self._speed_deg_per_s = FULL_SPEED_DEG_PER_S
        self._completed: set[int] = set()
        self._targets: dict[int, int] = {}
        self._is_open = False

    def open(self) -> None:
        """Open the link, check that a controller replies, and enable all paddles. Nothing moves.

        Raises the errors of :meth:`Driver.open`, and ``LimitError`` if the requested velocity is outside 10 to 100 %.
        """
        with self._session.transaction(), close_on_error(self.close):
            try:
                self._session.open()
                self._speed_deg_per_s = FULL_SPEED_DEG_PER_S / 100.0 * self._set_velocity()
                self._channels = self._detect_paddles()
                self._targets.clear()
                self._enable()
            except LinkTimeout as error:
                n_foreign = self._session.counters.foreign_bytes
                if n_foreign:
                    raise self._identity_error(f"{n_foreign} bytes that are not an APT message") from error
                raise
            self._is_open = True

    def close(self) -> None:
        """Release the link; idempotent, never raises. The paddles stay."""
        self._is_open = False
        self._session.close()

    # -- the interface

    @property
    def actuators(self) -> tuple[ActuatorInfo, ...]:
        """One angle per paddle, 0 to 170°."""
        return (_PADDLE,) * len(self._channels)

    @property
    def settle_s(self) -> float:
        """Settling time of the light after the paddles have arrived."""
        return self._settle_s

    def set(self, settings: NDArray[np.float64]) -> None:
        """Turn the paddles and wait until all have arrived.

        Args:
            settings: Angle of each paddle in degrees, rounded to 0.124°.

        Raises:
            LimitError: An angle is outside 0 to 170°; nothing moved.
            VerifyError: A paddle is at a different position.
            DeviceTimeoutError: A paddle did not arrive in time.
            DeviceError: A paddle reports an error.
        """
        targets = self._checked_targets(settings)
        with self._session.transaction():
            self._check_open()
            present = self._statuses(self._channels)
            if not all(status.bits & StatusBit.ENABLED for status in present.values()):
                self._enable()
            unhomed = [channel for channel, status in present.items() if not status.bits & StatusBit.HOMED]
            if unhomed:
                self._home(unhomed)
                present = self._statuses(self._channels)
            self._move(targets, present)
            self._targets.update(targets)

    def read(self) -> NDArray[np.float64]:
        """Return the angle of each paddle in degrees. A paddle within 0.25° of its target is reported at the target."""
        with self._session.transaction():
            self._check_open()
            reported = self._statuses(self._channels)
            return np.array([STEP_DEG * self._setting_counts(status) for status in reported.values()])

    def home(self) -> None:
        """Move all paddles to their home positions. Raises the errors of :meth:`set`."""
        with self._session.transaction():
            self._check_open()
            self._home(self._channels)

    # -- moves

    def _move(self, targets: Mapping[int, int], present: Mapping[int, AptStatus]) -> None:
        targets = {channel: counts for channel, counts in targets.items() if not self._is_at(present[channel], counts)}
        travel_deg = STEP_DEG * sum(abs(counts - present[channel].counts) for channel, counts in targets.items())
        self._completed.clear()
        for channel, counts in targets.items():
            self._targets.pop(channel, None)
            self._session.send_message(move_absolute(channel, counts), f"move paddle {_number(channel)}")

        def arrived(status: AptStatus) -> bool:
            has_settled = bool(status.bits & StatusBit.SETTLED) or status.channel in self._completed
            return (
                has_settled and not status.moving and abs(status.counts - targets[status.channel]) <= _TOLERANCE_COUNTS
            )

        # The device may move the paddles one after the other.
        last = self._wait_until(targets, arrived, _START_S + 2.0 * travel_deg / self._speed_deg_per_s)
        for channel, status in last.items():
            self._check_arrived(status, targets[channel], arrived(status))

    def _check_arrived(self, status: AptStatus, target: int, arrived: bool) -> None:
        if arrived:
            return
        name = f"paddle {_number(status.channel)}"
        if status.moving or abs(status.counts - target) <= _TOLERANCE_COUNTS:
            raise self._session.error(
                DeviceTimeoutError,
                f"{name} did not stop at {STEP_DEG * target:.1f}°: it is at {STEP_DEG * status.counts:.1f}°",
                command=f"move {name}",
                hint="Check whether the fibre or something else blocks the paddle.",
            )
        raise self._session.error(
            VerifyError,
            f"position of {name} in counts" + ("" if status.bits & StatusBit.ENABLED else " (it is not enabled)"),
            wrote=target,
            read=status.counts,
            hint="Check whether the paddle is blocked, or whether another program uses this controller.",
        )

    def _home(self, channels: Iterable[int]) -> None:
        for channel in channels:
            self._targets.pop(channel, None)
            self._session.send_message(command(DecodedAptMessage.MOVE_HOME, channel), f"home paddle {_number(channel)}")
        last = self._wait_until(
            channels, lambda status: bool(status.bits & StatusBit.HOMED) and not status.moving, _HOMING_S
        )
        for channel, status in last.items():
            if not status.bits & StatusBit.HOMED or status.moving:
                raise self._session.error(
                    DeviceTimeoutError,
                    f"paddle {_number(channel)} did not find its home position within {_HOMING_S:g} s",
                    command=f"home paddle {_number(channel)}",
                    hint="Check whether the fibre or something else blocks the paddle.",
                )

    def _wait_until(
        self, channels: Iterable[int], arrived: Callable[[AptStatus], bool], timeout_s: float
    ) -> dict[int, AptStatus]:
        deadline = self._clock.now() + timeout_s
        last: dict[int, AptStatus] = {}
        waiting = list(channels)
        while waiting:
            self._clock.sleep(_POLL_S)
            last |= self._statuses(waiting)
            for channel in waiting:
                if last[channel].bits & StatusBit.ERROR:
                    raise self._session.error(
                        DeviceError,
                        f"paddle {_number(channel)} reports an error",
                        command=f"move paddle {_number(channel)}",
                        hint="Switch the controller off and on. If this fails again, the motor or fibre is stuck.",
                    )
            waiting = [channel for channel in waiting if not arrived(last[channel])]
            if self._clock.now() >= deadline:
                break
        return last

    # -- replies

    def _statuses(self, channels: Iterable[int]) -> dict[int, AptStatus]:
        return {channel: self._status(channel) for channel in channels}

    def _status(self, channel: int) -> AptStatus:
        request = command(DecodedAptMessage.REQUEST_STATUS, channel)
        label = f"state of paddle {_number(channel)}"
        return decode_status(self._session.request(request, label, DecodedAptMessage.STATUS, channel))

    def _parameters(self) -> Parameters:
        request = command(DecodedAptMessage.REQUEST_PARAMETERS)
        return decode_parameters(self._session.request(request, "parameters", DecodedAptMessage.PARAMETERS))

    def _record_completion(self, frame: AptFrame) -> None:
        if frame.message == DecodedAptMessage.MOVE_COMPLETED:
            self._completed.add(frame.channel)

    def _setting_counts(self, status: AptStatus) -> int:
        target = self._targets.get(status.channel)
        if target is not None and abs(status.counts - target) <= _TOLERANCE_COUNTS:
            return target
        # A paddle at its stop may read one count out of range, which set() would refuse.
        nearest = min(max(status.counts, 0), TRAVEL_COUNTS)
        return nearest if abs(status.counts - nearest) <= _TOLERANCE_COUNTS else status.counts

    def _is_at(self, status: AptStatus, counts: int) -> bool:
        return not status.moving and self._setting_counts(status) == counts

    # -- opening

    def _set_velocity(self) -> int:
        reported = self._parameters()
        requested = self._velocity_percent
        if requested is not None:
            if not SLOWEST_PERCENT <= requested <= FASTEST_PERCENT:
                raise self._limit_error("velocity", requested, SLOWEST_PERCENT, FASTEST_PERCENT, "%")
            self._session.send_message(
                set_parameters(replace(reported, velocity_percent=requested)), f"velocity {requested} %"
            )
            reported = self._parameters()
            if reported.velocity_percent != requested:
                raise self._session.error(
                    VerifyError,
                    "velocity in %",
                    wrote=requested,
                    read=reported.velocity_percent,
                    hint="To keep the controller's velocity, remove velocity_percent from the bench file.",
                )
        if not SLOWEST_PERCENT <= reported.velocity_percent <= FASTEST_PERCENT:
            raise self._identity_error(f"a velocity of {reported.velocity_percent} %")
        return reported.velocity_percent

    def _detect_paddles(self) -> tuple[int, ...]:
        channels = CHANNELS[: N_PADDLES[self._model or "MPC320"]]
        for index, channel in enumerate(channels):
            try:
                self._status(channel)
            except LinkTimeout as error:
                # The controller does not report the number of paddles, so the third one is detected by its reply.
                if index == 2 and self._model is None:
                    _log.info("%s: no third paddle replied, so this is an MPC220", self._device)
                    return CHANNELS[:2]
                raise self._identity_error(f"no paddle {index + 1}") from error
        return channels

    def _enable(self) -> None:
        self._session.send_message(
            command(DecodedAptMessage.SET_CHANNEL_ENABLE, sum(self._channels), _ENABLE), "enable all paddles"
        )

    def _identity_error(self, reported: str) -> IdentityError:
        return self._session.error(
            IdentityError,
            f"expected an {self._model or 'MPC220 or MPC320'}; found {reported}",
            hint="Check address and model in the bench file, and what is connected there.",
        )

    # -- checks

    def _checked_targets(self, settings: NDArray[np.float64]) -> dict[int, int]:
        values = np.asarray(settings, dtype=np.float64)
        if values.shape != (len(self._channels),):
            raise self._session.error(
                ConfigError, f"settings have the shape {values.shape}, not ({len(self._channels)},)"
            )
        for number, value in enumerate(values.tolist(), start=1):
            if not -_SLACK_DEG <= value <= TRAVEL_DEG + _SLACK_DEG:
                raise self._limit_error(f"angle of paddle {number}", value, 0.0, TRAVEL_DEG, "°")
        return {
            channel: round(value / STEP_DEG) for channel, value in zip(self._channels, values.tolist(), strict=True)
        }

    def _limit_error(self, label: str, requested: float, low: float, high: float, unit: str) -> LimitError:
        return self._session.error(
            LimitError,
            label,
            requested=requested,
            limit=low if requested < low else high,
            unit=unit,
            hint="Nothing was changed.",
        )

    def _check_open(self) -> None:
        if not self._is_open:
            raise not_open("the controller", self._device, self._session.address)


def _number(channel: int) -> int:
    return CHANNELS.index(channel) + 1
