"""Reads the monitors of the LUMION mesh controller (protocol section 9)."""

from __future__ import annotations

import numpy as np

from firmware_protocol import ReadAdcReply, ReadAdcRequest, max_payload, monitor_from_code
from lumion_hw.clock import Clock
from lumion_hw.drivers.mesh.lumion.config import out_of_range_error
from lumion_hw.errors import ConfigError, DeviceAddress, FrameError, NotSupportedError
from lumion_hw.interfaces import MonitorReading
from lumion_hw.sessions.framed.session import FramedSession

_MAX_AVERAGE = 4096  # sections 9 and 10.1


def check_capability(supported: bool, command: str, message: str, target: DeviceAddress) -> None:
    """Raise ``NotSupportedError`` with ``message`` if the controller does not support a command."""
    if not supported:
        raise target.error(NotSupportedError, f"{command} is not possible: this controller {message}.", command=command)


def check_average(n_avg: int, label: str, target: DeviceAddress) -> None:
    """Raise ``LimitError`` if the controller cannot average this number of scans."""
    if not 1 <= n_avg <= _MAX_AVERAGE:
        raise out_of_range_error(label, n_avg, (1, _MAX_AVERAGE), "scans", target)


def checked_monitors(
    monitors: tuple[int, ...] | None, n_adc: int, label: str, target: DeviceAddress
) -> tuple[int, ...]:
    """Return the selected monitors in ascending order; ``None`` selects all.

    Raises ``ConfigError`` if no monitor is selected or a monitor does not exist.
    """
    selected = tuple(range(n_adc)) if monitors is None else tuple(sorted({int(monitor) for monitor in monitors}))
    missing = [monitor for monitor in selected if not 0 <= monitor < n_adc]
    if selected and not missing:
        return selected
    problem = f"monitor {missing[0]} does not exist" if missing else "no monitor is selected"
    raise target.error(ConfigError, f"{label}: {problem}; the controller has monitors 0 to {n_adc - 1}.")


def read_all(session: FramedSession, clock: Clock, n_avg: int, target: DeviceAddress) -> MonitorReading:
    """Read all monitors. Raises the errors of :meth:`MeshController.read_monitors`."""
    hello = session.hello
    check_capability(hello.n_adc > 0, "READ_ADC", "has no monitors", target)
    check_average(n_avg, "READ_ADC, scans to average", target)
    per_frame = (max_payload(hello.fw_tx_max) - ReadAdcReply.layout.fixed_size) // 2
    requests = [
        ReadAdcRequest(start, min(per_frame, hello.n_adc - start), n_avg) for start in range(0, hello.n_adc, per_frame)
    ]
    scans = [reply for reply in session.request_all(requests) if isinstance(reply, ReadAdcReply)]
    requested, received = [request.count for request in requests], [len(scan.adc) for scan in scans]
    if requested != received:
        raise target.error(
            FrameError,
            f"READ_ADC: received the values of {received} monitors instead of {requested}.",
            hint="Compare the versions of firmware and lumion-hw.",
        )
    adc = np.concatenate([scan.adc for scan in scans])
    photocurrent_ma, saturated = monitor_from_code(adc, hello.adc_full_scale * 1e-6)
    return MonitorReading(photocurrent_ma, saturated, scans[0].generation, clock.now())
