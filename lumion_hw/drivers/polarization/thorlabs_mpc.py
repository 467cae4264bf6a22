"""Thorlabs MPC220 and MPC320: two or three motorised paddles of fixed retardance, over APT messages.

Positions are counts, 1370 for 170°. Channel ids are bits: 1, 2 and 4. The device sends its state whenever it likes, so
a move is over when it says that the paddle stands where it was sent, not when some message came.
"""

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
"""Time until the fibre has stopped swinging; a project default, the maker states none."""
# A quarter of a degree; a project default.
_TOLERANCE_COUNTS = 2
_SLACK_DEG = 1e-6
_POLL_S = 0.02
# A project default for the way from a command to a paddle that moves.
_START_S = 3.0
_HOMING_S = 30.0
_ENABLE = 1
_PADDLE = ActuatorInfo(
    kind="angle", unit="°", minimum=0.0, maximum=TRAVEL_DEG, step=STEP_DEG, period=180.0, endless=False
)


class ThorlabsMpc(Driver):
    """Driver of one controller; implements ``PolarizationController``. Thread-safe; every set is read back.

    Opening moves nothing. Paddles that have not found their home since they were switched on do so before their first
    move, since their positions mean nothing until then.

    Args:
        link: The serial link, 115 200 baud.
        clock: The link's clock.
        device: Device name, for messages.
        model: Model that must be found; if omitted, there are as many paddles as answer.
        velocity_percent: Velocity to set, 10 to 100 % of 400°/s; stays as it is if omitted.
        settle_s: Time after a move until the light is still.
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
        self._session = AptSession(link, clock, device=device, on_frame=self._note)
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
        """Open the link, check that such a controller answers, and enable all paddles. Nothing moves.

        Raises:
            ConnectError: The link cannot be opened.
            IdentityError: Something else answers, or another model.
            LimitError: The velocity asked for is outside 10 to 100 %.
            LinkTimeout: Nothing answers.
        """
        with self._session.transaction(), close_on_error(self.close):
            try:
                self._session.open()
                self._speed_deg_per_s = FULL_SPEED_DEG_PER_S / 100.0 * self._agree_on_velocity()
                self._channels = self._find_paddles()
                self._targets.clear()
                self._enable()
            except LinkTimeout as error:
                talked = self._session.counters.foreign_bytes
                if talked:
                    raise self._stranger(f"{talked} bytes that are no APT message") from error
                raise
            self._is_open = True

    def close(self) -> None:
        """Release the link; idempotent, never raises. The paddles stay."""
        self._is_open = False
        self._session.close()

    # -- the interface

    @property
    def actuators(self) -> tuple[ActuatorInfo, ...]:
        """One angle per paddle, 0 to 170° in steps of a count."""
        return (_PADDLE,) * len(self._channels)

    @property
    def settle_s(self) -> float:
        """Time after a set until the light is still. That the paddles have arrived, ``set`` has waited for."""
        return self._settle_s

    def set(self, settings: NDArray[np.float64]) -> None:
        """Turn the paddles, and return once every one says that it has arrived.

        Args:
            settings: Angles in degrees, shape ``(N,)``; set to the nearest count.

        Raises:
            LimitError: An angle is outside 0 to 170°; nothing moved.
            VerifyError: A paddle stands elsewhere.
            DeviceTimeoutError: A paddle does not arrive.
            DeviceError: A paddle reports an error.
        """
        wanted = self._checked(settings)
        with self._session.transaction():
            self._check_open()
            present = self._statuses(self._channels)
            if not all(status.bits & StatusBit.ENABLED for status in present.values()):
                self._enable()
            lost = [channel for channel, status in present.items() if not status.bits & StatusBit.HOMED]
            if lost:
                self._home(lost)
                present = self._statuses(self._channels)
            self._move(wanted, present)
            self._targets.update(wanted)

    def read(self) -> NDArray[np.float64]:
        """Return the angles in degrees, shape ``(N,)``.

        A paddle that stands within two counts of where it was sent is at that setting.
        """
        with self._session.transaction():
            self._check_open()
            found = self._statuses(self._channels)
            return np.array([STEP_DEG * self._setting_counts(status) for status in found.values()])

    def home(self) -> None:
        """Let all paddles find their home. Raises as :meth:`set`."""
        with self._session.transaction():
            self._check_open()
            self._home(self._channels)

    # -- what it takes

    def _move(self, wanted: Mapping[int, int], present: Mapping[int, AptStatus]) -> None:
        """Send the paddles that are not there yet to their positions in counts, and wait until they are."""
        wanted = {channel: counts for channel, counts in wanted.items() if not self._is_at(present[channel], counts)}
        travel_deg = STEP_DEG * sum(abs(counts - present[channel].counts) for channel, counts in wanted.items())
        self._completed.clear()
        for channel, counts in wanted.items():
            self._targets.pop(channel, None)
            self._session.send_message(move_absolute(channel, counts), f"move paddle {_number(channel)}")

        def arrived(status: AptStatus) -> bool:
            said = bool(status.bits & StatusBit.SETTLED) or status.channel in self._completed
            return said and not status.moving and abs(status.counts - wanted[status.channel]) <= _TOLERANCE_COUNTS

        # The device may move them one after the other.
        last = self._await(wanted, arrived, _START_S + 2.0 * travel_deg / self._speed_deg_per_s)
        for channel, status in last.items():
            self._check_arrived(status, wanted[channel], arrived(status))

    def _check_arrived(self, status: AptStatus, wanted: int, arrived: bool) -> None:
        if arrived:
            return
        name = f"paddle {_number(status.channel)}"
        if status.moving or abs(status.counts - wanted) <= _TOLERANCE_COUNTS:
            raise self._session.error(
                DeviceTimeoutError,
                f"{name} does not come to rest at {STEP_DEG * wanted:.1f}°: it is at {STEP_DEG * status.counts:.1f}°",
                command=f"move {name}",
                hint="Look whether its fibre or somebody's hand holds it.",
            )
        raise self._session.error(
            VerifyError,
            f"position of {name} in counts" + ("" if status.bits & StatusBit.ENABLED else ", which is not enabled"),
            wrote=wanted,
            read=status.counts,
            hint="Look whether the paddle is blocked, or whether another program drives this controller.",
        )

    def _home(self, channels: Iterable[int]) -> None:
        for channel in channels:
            self._targets.pop(channel, None)
            self._session.send_message(command(DecodedAptMessage.MOVE_HOME, channel), f"home paddle {_number(channel)}")
        last = self._await(
            channels, lambda status: bool(status.bits & StatusBit.HOMED) and not status.moving, _HOMING_S
        )
        for channel, status in last.items():
            if not status.bits & StatusBit.HOMED or status.moving:
                raise self._session.error(
                    DeviceTimeoutError,
                    f"paddle {_number(channel)} has not found its home within {_HOMING_S:g} s",
                    command=f"home paddle {_number(channel)}",
                    hint="Look whether its fibre or somebody's hand holds it.",
                )

    def _await(
        self, channels: Iterable[int], arrived: Callable[[AptStatus], bool], within_s: float
    ) -> dict[int, AptStatus]:
        """Poll paddles until all have arrived or the time is over; return the last state of each."""
        deadline = self._clock.now() + within_s
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
                        hint="Switch the controller off and on; if it stays, the paddle's motor or fibre is stuck.",
                    )
            waiting = [channel for channel in waiting if not arrived(last[channel])]
            if self._clock.now() >= deadline:
                break
        return last

    # -- what it says

    def _statuses(self, channels: Iterable[int]) -> dict[int, AptStatus]:
        return {channel: self._status(channel) for channel in channels}

    def _status(self, channel: int) -> AptStatus:
        request = command(DecodedAptMessage.REQUEST_STATUS, channel)
        label = f"state of paddle {_number(channel)}"
        return decode_status(self._session.request(request, label, DecodedAptMessage.STATUS, channel))

    def _parameters(self) -> Parameters:
        request = command(DecodedAptMessage.REQUEST_PARAMETERS)
        return decode_parameters(self._session.request(request, "parameters", DecodedAptMessage.PARAMETERS))

    def _note(self, frame: AptFrame) -> None:
        if frame.message == DecodedAptMessage.MOVE_COMPLETED:
            self._completed.add(frame.channel)

    def _setting_counts(self, status: AptStatus) -> int:
        """Return the setting a paddle is at: where it was sent if it stands there, and never just off its range."""
        target = self._targets.get(status.channel)
        if target is not None and abs(status.counts - target) <= _TOLERANCE_COUNTS:
            return target
        # A paddle at its stop may read a count beyond its range, which set() would refuse to take back.
        nearest = min(max(status.counts, 0), TRAVEL_COUNTS)
        return nearest if abs(status.counts - nearest) <= _TOLERANCE_COUNTS else status.counts

    def _is_at(self, status: AptStatus, counts: int) -> bool:
        return not status.moving and self._setting_counts(status) == counts

    # -- opening

    def _agree_on_velocity(self) -> int:
        """Return the velocity in percent, after setting the one asked for."""
        found = self._parameters()
        wanted = self._velocity_percent
        if wanted is not None:
            if not SLOWEST_PERCENT <= wanted <= FASTEST_PERCENT:
                raise self._beyond("velocity", wanted, SLOWEST_PERCENT, FASTEST_PERCENT, "%")
            self._session.send_message(set_parameters(replace(found, velocity_percent=wanted)), f"velocity {wanted} %")
            found = self._parameters()
            if found.velocity_percent != wanted:
                raise self._session.error(
                    VerifyError,
                    "velocity in %",
                    wrote=wanted,
                    read=found.velocity_percent,
                    hint="Leave velocity_percent out of the bench file.",
                )
        if not SLOWEST_PERCENT <= found.velocity_percent <= FASTEST_PERCENT:
            raise self._stranger(f"a velocity of {found.velocity_percent} %")
        return found.velocity_percent

    def _find_paddles(self) -> tuple[int, ...]:
        """Return the channel ids that answer."""
        wanted = CHANNELS[: N_PADDLES[self._model or "MPC320"]]
        for index, channel in enumerate(wanted):
            try:
                self._status(channel)
            except LinkTimeout as error:
                # Nothing says how many paddles there are: the third one is there if it answers.
                if index == 2 and self._model is None:
                    _log.info("%s: no third paddle: an MPC220", self._device)
                    return CHANNELS[:2]
                raise self._stranger(f"no paddle {index + 1}") from error
        return wanted

    def _enable(self) -> None:
        """Enable all paddles at once: enabling one disables the others."""
        self._session.send_message(
            command(DecodedAptMessage.SET_CHANNEL_ENABLE, sum(self._channels), _ENABLE), "enable all paddles"
        )

    def _stranger(self, found: str) -> IdentityError:
        return self._session.error(
            IdentityError,
            f"expected an {self._model or 'MPC220 or MPC320'}; found {found}",
            hint="Check the address and the model in the bench file, or what is plugged in there.",
        )

    # -- checks

    def _checked(self, settings: NDArray[np.float64]) -> dict[int, int]:
        """Return the position in counts by channel id."""
        values = np.asarray(settings, dtype=np.float64)
        if values.shape != (len(self._channels),):
            raise self._session.error(
                ConfigError, f"settings have the shape {values.shape}, not ({len(self._channels)},)"
            )
        for number, value in enumerate(values.tolist(), start=1):
            if not -_SLACK_DEG <= value <= TRAVEL_DEG + _SLACK_DEG:
                raise self._beyond(f"angle of paddle {number}", value, 0.0, TRAVEL_DEG, "°")
        return {
            channel: round(value / STEP_DEG) for channel, value in zip(self._channels, values.tolist(), strict=True)
        }

    def _beyond(self, label: str, asked: float, low: float, high: float, unit: str) -> LimitError:
        return self._session.error(
            LimitError, label, asked=asked, limit=low if asked < low else high, unit=unit, hint="Nothing was changed."
        )

    def _check_open(self) -> None:
        if not self._is_open:
            raise not_open("the controller", self._device, self._session.address)


def _number(channel: int) -> int:
    return CHANNELS.index(channel) + 1
