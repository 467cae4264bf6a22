"""Driver for OZ Optics EPC-400 / EPC04: four fibre squeezers driven by voltages, over a serial line at 9600 baud.

The maker publishes no manual. Sources: the public clients QMI and pyLabLib.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lumion_hw.clock import Clock
from lumion_hw.drivers.life_cycle import Driver, close_on_error, not_open
from lumion_hw.errors import ConfigError, FrameError, IdentityError, LimitError, VerifyError
from lumion_hw.interfaces import ActuatorInfo
from lumion_hw.links.base import Link
from lumion_hw.sessions.lines import LineSession

N_CHANNELS = 4
LARGEST_MV = 5000
READBACK_MV = 40
"""Largest accepted difference between a voltage set and read back, in mV (two authors report up to 40 mV)."""
DEFAULT_SETTLE_S = 0.01
"""Default settling time of the light, in s (a guess)."""
_CONSTANT = re.compile(r"\bM?DC\b")
_CHANNEL = re.compile(r"CH\s*(\d+)\s*[:=]?\s*([+-]?\d+)")
_ACTUATOR = ActuatorInfo(
    kind="drive voltage", unit="mV", minimum=-LARGEST_MV, maximum=LARGEST_MV, step=1.0, period=None, endless=False
)


class OzEpc04(Driver):
    """Driver of one controller; implements ``PolarizationController``. Thread-safe; every setting is read back.

    Args:
        link: Serial link, 9600 baud.
        clock: Clock of the link.
        settle_s: Settling time of the light after a change.
    """

    def __init__(self, link: Link, clock: Clock, *, device: str, settle_s: float = DEFAULT_SETTLE_S) -> None:
        self._session = LineSession(
            link,
            clock,
            device=device,
            done="Done",
            failed="Error!",
            marker="V?",
            is_marker_reply=lambda lines: _voltages(lines) is not None,
        )
        self._device = device
        self._settle_s = settle_s
        self._confirmed_mv: tuple[int, ...] | None = None
        self._is_open = False

    def open(self) -> None:
        """Open the link, check that a four-channel controller replies, and switch scrambling off.

        Raises the errors of :meth:`Driver.open`.
        """
        with self._session.transaction(), close_on_error(self.close):
            lines = self._session.open()
            self._confirmed_mv = _voltages(lines)
            if self._confirmed_mv is None:
                raise self._session.error(
                    IdentityError,
                    f"expected an EPC04 with {N_CHANNELS} channels; the reply to V? is {' / '.join(lines)!r}",
                    hint="Check the address in the bench file and what is connected there.",
                )
            self._hold_voltages()
            self._is_open = True

    def close(self) -> None:
        """Release the link; idempotent, never raises. The voltages stay."""
        self._is_open = False
        self._session.close()

    @property
    def actuators(self) -> tuple[ActuatorInfo, ...]:
        """Limits of the four drive voltages in mV. The voltage for a full turn of the polarization is unknown."""
        return (_ACTUATOR,) * N_CHANNELS

    @property
    def settle_s(self) -> float:
        """Settling time of the light after a change."""
        return self._settle_s

    @property
    def session(self) -> LineSession:
        """The session, for its counters and for commands that this driver does not cover."""
        return self._session

    def set(self, settings: NDArray[np.float64]) -> None:
        """Set the four voltages and verify them.

        Args:
            settings: Voltages in mV, shape ``(4,)``; set to the nearest mV.

        Raises:
            LimitError: A voltage is outside -5000 to 5000 mV; nothing was sent.
            VerifyError: A voltage read back differs by more than the accuracy of the reading (40 mV).
            DeviceError: The controller refuses the command.
        """
        requested_mv = self._checked_settings(settings)
        with self._session.transaction():
            self._check_open()
            self._send(requested_mv, self._confirmed_mv)
            if not _agree(self._read_mv(), requested_mv):
                self._send(requested_mv, None)  # a voltage that was not sent may have changed
                actual_mv = self._read_mv()
                if not _agree(actual_mv, requested_mv):
                    raise self._session.error(
                        VerifyError,
                        "the drive voltages differ from the set voltages (mV)",
                        wrote=list(requested_mv),
                        read=list(actual_mv),
                        hint="Another program may use this controller, or its scrambling mode is on.",
                    )
            self._confirmed_mv = requested_mv

    def read(self) -> NDArray[np.float64]:
        """Return the four voltages in mV, shape ``(4,)``."""
        with self._session.transaction():
            self._check_open()
            return np.array(self._read_mv(), dtype=np.float64)

    def _hold_voltages(self) -> None:
        self._session.command("MDC")
        lines = self._session.command("M?")
        if not any(_CONSTANT.search(line) for line in lines):
            raise self._session.error(
                VerifyError,
                "mode",
                wrote="MDC",
                read=" / ".join(lines),
                hint="The controller is still scrambling. Select DC at its panel.",
            )

    def _checked_settings(self, settings: NDArray[np.float64]) -> tuple[int, ...]:
        values = np.asarray(settings, dtype=np.float64)
        if values.shape != (N_CHANNELS,):
            raise self._session.error(ConfigError, f"settings have the shape {values.shape}, not ({N_CHANNELS},)")
        for channel, value in enumerate(values.tolist(), start=1):
            if not abs(value) <= LARGEST_MV:
                raise self._session.error(
                    LimitError,
                    f"the voltage of channel {channel} is out of range",
                    requested=value,
                    limit=-LARGEST_MV if value < 0 else LARGEST_MV,
                    unit="mV",
                    hint="Nothing was changed.",
                )
        return tuple(round(value) for value in values.tolist())

    def _send(self, requested_mv: Sequence[int], confirmed_mv: Sequence[int] | None) -> None:
        self._confirmed_mv = None  # unknown until they have been read back
        for index, value in enumerate(requested_mv):
            # Every command takes a line and a reply at 9600 baud, and a
            # squeezer that does not change does not move the light.
            if confirmed_mv is None or confirmed_mv[index] != value:
                self._session.command(f"V{index + 1},{value}")

    def _read_mv(self) -> tuple[int, ...]:
        lines = self._session.command("V?")
        actual = _voltages(lines)
        if actual is None:
            self._session.mark_out_of_sync(f"V? answered with {lines!r}")
            raise self._session.error(
                FrameError,
                f"V?: expected the voltages of {N_CHANNELS} channels, found {' / '.join(lines)!r}",
                hint="Check that no other program uses this serial line.",
            )
        if self._confirmed_mv is None or not _agree(actual, self._confirmed_mv):
            self._confirmed_mv = actual
        return actual

    def _check_open(self) -> None:
        if not self._is_open:
            raise not_open("the controller", self._device, self._session.address)


def _agree(actual_mv: Sequence[int], requested_mv: Sequence[int]) -> bool:
    return all(
        abs(actual - requested) <= READBACK_MV for actual, requested in zip(actual_mv, requested_mv, strict=True)
    )


def _voltages(lines: Sequence[str]) -> tuple[int, ...] | None:
    actual = [(int(channel), int(value)) for channel, value in _CHANNEL.findall(" ".join(lines))]
    # Each channel once and in order: a lost line would shift all later voltages.
    if [channel for channel, _ in actual] != list(range(1, N_CHANNELS + 1)):
        return None
    return tuple(value for _, value in actual)
