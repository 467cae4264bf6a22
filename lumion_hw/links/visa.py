"""VISA link, through pyvisa with its pure-Python backend, for VXI-11, HiSLIP and USBTMC.

For TCP or serial ports, :class:`~lumion_hw.links.tcp.TcpLink` and :class:`~lumion_hw.links.serial.SerialLink` are
faster.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import Any

from lumion_hw.clock import Clock, Deadline
from lumion_hw.errors import ConnectError, LinkLost
from lumion_hw.links.draining import DrainedByReading
from lumion_hw.links.owner import OwnerProcess, forget_in_child, fork_safe

_log = logging.getLogger(__name__)

_SLICE_S = 0.05
_CHUNK_BYTES = 1 << 20  # smaller chunks make long blocks slow
_LINE_FEED = 0x0A

_manager_lock = fork_safe(threading.Lock())
_managers: dict[str, Any] = {}
_HINT = "Check the resource name, the power and the network, and that the backend is installed."
_USB_HINT = "VISA over USB without a vendor's backend needs PyUSB and libusb: pip install 'lumion-hw[usb]'."


def _resource_manager(backend: str) -> Any:
    """Return the resource manager that all links of this process share. It is never closed."""
    import pyvisa

    with _manager_lock:
        if backend not in _managers or not _is_open(_managers[backend]):
            _managers[backend] = pyvisa.ResourceManager(backend)
        return _managers[backend]


def _is_open(manager: Any) -> bool:
    from pyvisa.errors import InvalidSession

    try:
        return manager.session is not None
    except InvalidSession:
        return False


class VisaLink(DrainedByReading):
    """A link to an instrument through a VISA resource.

    Args:
        resource: Resource name, such as ``TCPIP0::192.0.2.7::hislip0::INSTR``.
        clock: Wall clock (not a virtual clock) for the deadlines.
        backend: The pyvisa backend; ``@py`` needs no vendor library.
    """

    def __init__(self, resource: str, clock: Clock, backend: str = "@py") -> None:
        self._resource_name = resource
        self._clock = clock
        self._backend = backend
        self._owner = OwnerProcess()
        self._resource: Any = None
        # Stream resources are polled in slices. Message resources lose a partly read message at a time-out, so a single
        # call waits until the deadline.
        self._is_stream = resource.upper().endswith("SOCKET") or resource.upper().startswith("ASRL")

    @property
    def name(self) -> str:
        """Address, as ``visa://resource``."""
        return f"visa://{self._resource_name}"

    def open(self, deadline: Deadline) -> None:
        """Open the resource. Raises ``ConnectError`` if this fails or takes until ``deadline``."""
        self._owner.claim(self.name)
        if self._resource is not None:
            return
        timeout_ms = max(int(1e3 * (deadline - self._clock.now())), 1)
        try:
            manager = _resource_manager(self._backend)
            resource = manager.open_resource(self._resource_name, open_timeout=timeout_ms)
        except Exception as error:  # pyvisa-py raises bare Exception for a refused connection
            raise ConnectError(
                f"cannot open the VISA resource: {error}",
                address=self.name,
                hint=_USB_HINT if "pyusb" in str(error).lower() else _HINT,
            ) from error
        try:
            self._configure(resource)
        except Exception as error:  # attributes and exceptions differ between kinds of resources
            with contextlib.suppress(Exception):
                resource.close()
            raise ConnectError(f"cannot configure the VISA resource: {error}", address=self.name) from error
        self._resource = resource
        forget_in_child(self)

    def _configure(self, resource: Any) -> None:
        from pyvisa.constants import ResourceAttribute

        resource.timeout = 1e3 * _SLICE_S
        resource.chunk_size = _CHUNK_BYTES
        if self._is_stream:
            # A read ends at a line feed, or with the data received so far if no more arrives.
            resource.set_visa_attribute(ResourceAttribute.termchar, _LINE_FEED)
            resource.set_visa_attribute(ResourceAttribute.termchar_enabled, True)
            resource.set_visa_attribute(ResourceAttribute.suppress_end_enabled, False)

    def write(self, data: bytes, deadline: Deadline) -> None:
        """Write all of ``data``. Raises ``LinkLost`` if this fails."""
        del deadline  # the time-out of the resource limits the call
        resource = self._opened()
        try:
            # Raw, without the terminators of the library: the session adds the same terminator on every link.
            written = resource.write_raw(data)
        except Exception as error:  # VisaIOError, BrokenPipeError, SerialException: many types for one event
            raise self._close_lost_link(f"writing failed: {error}") from error
        if written != len(data):
            raise self._close_lost_link(f"only {written} of {len(data)} bytes were written")

    def read(self, deadline: Deadline) -> bytes:
        """Return at least one byte, or ``b""`` at the deadline. Raises ``LinkLost`` if the connection is lost."""
        from pyvisa import VisaIOError
        from pyvisa.constants import StatusCode

        resource = self._opened()
        while (remaining_s := deadline - self._clock.now()) > 0:
            try:
                timeout_ms = 1e3 * (min(remaining_s, _SLICE_S) if self._is_stream else remaining_s)
                # VISA time-outs are in whole milliseconds, and 0 does not wait: pyvisa-py then raises the same error
                # as for a lost peer.
                resource.timeout = max(timeout_ms, 1.0)
                data = bytes(resource.read_raw())
            except VisaIOError as error:
                if error.error_code != StatusCode.error_timeout:
                    raise self._close_lost_link(f"reading failed: {error}") from error
                continue
            except Exception as error:  # as in write
                raise self._close_lost_link(f"reading failed: {error}") from error
            if data:
                return data
        return b""

    def close(self) -> None:
        """Close the resource; idempotent, never raises."""
        resource, self._resource = self._resource, None
        if resource is not None:
            try:
                resource.close()
            except Exception as error:  # noqa: BLE001 - closing a dead resource fails in many ways
                _log.debug("%s: the lost VISA resource could not be closed cleanly: %s", self.name, error)

    def forget(self) -> None:
        """Drop the resource without closing it, in a forked child process."""
        resource, self._resource = self._resource, None
        if resource is not None:
            resource.session = None

    def _opened(self) -> Any:
        self._owner.check(self.name)
        if self._resource is None:
            raise LinkLost(
                "the link is closed",
                address=self.name,
                hint="Open the device: close(), then open().",
            )
        return self._resource

    def _close_lost_link(self, label: str) -> LinkLost:
        self.close()
        return LinkLost(label, address=self.name, hint="The instrument is off, unplugged, or serves another client.")
