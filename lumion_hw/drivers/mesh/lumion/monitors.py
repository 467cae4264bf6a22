"""Monitors of the LUMION mesh controller: which ones, how many scans, one reading of all (protocol section 9)."""

from __future__ import annotations

import numpy as np

from firmware_protocol import ReadAdcReply, ReadAdcRequest, max_payload, monitor_from_code
from lumion_hw.clock import Clock
from lumion_hw.drivers.mesh.lumion.config import out_of_range_error
from lumion_hw.errors import ConfigError, DeviceAddress, FrameError, NotSupportedError
from lumion_hw.interfaces import MonitorReading
from lumion_hw.sessions.framed.session import FramedSession

_LONGEST_AVERAGE = 4096  # sections 9 and 10.1


def check_capability(there: bool, command: str, otherwise: str, target: DeviceAddress) -> None:
    """Raise ``NotSupportedError`` where a controller cannot do what a command asks for."""
    if not there:
        raise target.error(NotSupportedError, f"{command}: this controller {otherwise}.", command=command)


def check_average(n_avg: int, label: str, target: DeviceAddress) -> None:
    """Raise ``LimitError`` for a number of scans the controller does not average."""
    if not 1 <= n_avg <= _LONGEST_AVERAGE:
        raise out_of_range_error(label, n_avg, (1, _LONGEST_AVERAGE), "scans", target)


def checked_monitors(
    monitors: tuple[int, ...] | None, n_adc: int, label: str, target: DeviceAddress
) -> tuple[int, ...]:
    """Return the monitors asked for in ascending order; all of them for ``None``.

    Raises:
        ConfigError: None is chosen, or one that the controller does not have.
    """
    chosen = tuple(range(n_adc)) if monitors is None else tuple(sorted({int(monitor) for monitor in monitors}))
    wrong = [monitor for monitor in chosen if not 0 <= monitor < n_adc]
    if chosen and not wrong:
        return chosen
    seen = f"monitor {wrong[0]} does not exist" if wrong else "no monitor is chosen"
    raise target.error(ConfigError, f"{label}: {seen}; the controller has monitors 0 to {n_adc - 1}.")


def read_all(session: FramedSession, clock: Clock, n_avg: int, target: DeviceAddress) -> MonitorReading:
    """Read all monitors, in as many pieces as the frames need. Raises as ``read_monitors`` of the driver."""
    hello = session.hello
    check_capability(hello.n_adc > 0, "READ_ADC", "has no monitors", target)
    check_average(n_avg, "READ_ADC, scans to average", target)
    per_frame = (max_payload(hello.fw_tx_max) - ReadAdcReply.layout.fixed_size) // 2
    pieces = [
        ReadAdcRequest(start, min(per_frame, hello.n_adc - start), n_avg) for start in range(0, hello.n_adc, per_frame)
    ]
    scans = [reply for reply in session.request_all(pieces) if isinstance(reply, ReadAdcReply)]
    asked, answered = [piece.count for piece in pieces], [len(scan.adc) for scan in scans]
    if asked != answered:
        raise target.error(
            FrameError,
            f"READ_ADC: {answered} monitors were answered, {asked} were asked for.",
            hint="Compare the versions of firmware and lumion-hw.",
        )
    adc = np.concatenate([scan.adc for scan in scans])
    photocurrent_ma, saturated = monitor_from_code(adc, hello.adc_full_scale * 1e-6)
    return MonitorReading(photocurrent_ma, saturated, scans[0].generation, clock.now())
