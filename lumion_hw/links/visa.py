"""The VISA link: any message-based VISA resource as a stream of bytes, through pyvisa (pure-Python backend).

An own :class:`~lumion_hw.links.tcp.TcpLink` or :class:`~lumion_hw.links.serial.SerialLink` is faster and simpler where
the instrument offers one; this link is for VXI-11, HiSLIP and USBTMC.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import Any

from lumion_hw.clock import Clock, Deadline
from lumion_hw.errors import ConnectError, LinkLost
from lumion_hw.links.draining import drain_by_reading
from lumion_hw.links.owner import OwnerProcess, forget_in_child, fork_safe

_log = logging.getLogger(__name__)

_SLICE_S = 0.05
_CHUNK_BYTES = 1 << 20  # small chunks make long blocks slow
_LINE_FEED = 0x0A

_manager_lock = fork_safe(threading.Lock())
_managers: dict[str, Any] = {}
_HINT = "Check the resource name, the power and the network, and that the backend is installed."
_USB_HINT = "VISA over USB without a maker's backend needs PyUSB and libusb: pip install 'lumion-hw[usb]'."


def _resource_manager(backend: str) -> Any:
    """Return the one resource manager of this process; it is never closed, for that would end all its sessions.

    pyvisa gives the same manager to everybody in a process: where somebody else has closed it, a new one is made.
    """
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


class VisaLink:
    """A VISA resource.

    Args:
        resource: Resource name, such as ``TCPIP0::192.0.2.7::hislip0::INSTR``.
        clock: A wall clock; deadlines are its times.
        backend: The pyvisa backend; ``@py`` needs no vendor library.
    """

    def __init__(self, resource: str, clock: Clock, backend: str = "@py") -> None:
        self._resource_name = resource
        self._clock = clock
        self._backend = backend
        self._owner = OwnerProcess()
        self._resource: Any = None
        # Stream resources are polled in slices. Those with an END mark lose a partly read message at a time-out,
        # so one call waits until the deadline.
        self._is_stream = resource.upper().endswith("SOCKET") or resource.upper().startswith("ASRL")

    @property
    def name(self) -> str:
        """The address as ``visa://resource``."""
        return f"visa://{self._resource_name}"

    def open(self, deadline: Deadline) -> None:
        """Open the resource. Raises ``ConnectError`` when it is missing, refused or not answered by ``deadline``."""
        self._owner.claim(self.name)
        if self._resource is not None:
            return
        patience_ms = max(int(1e3 * (deadline - self._clock.now())), 1)
        try:
            manager = _resource_manager(self._backend)
            resource = manager.open_resource(self._resource_name, open_timeout=patience_ms)
        except Exception as error:  # pyvisa-py raises bare Exception for a refused connection
            raise ConnectError(
                f"cannot open the VISA resource: {error}",
                address=self.name,
                hint=_USB_HINT if "pyusb" in str(error).lower() else _HINT,
            ) from error
        try:
            self._configure(resource)
        except Exception as error:  # the attributes differ per resource kind, and so do the exceptions
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
            # A read ends at a line feed, or with what is there when nothing more comes.
            resource.set_visa_attribute(ResourceAttribute.termchar, _LINE_FEED)
            resource.set_visa_attribute(ResourceAttribute.termchar_enabled, True)
            resource.set_visa_attribute(ResourceAttribute.suppress_end_enabled, False)

    def write(self, data: bytes, deadline: Deadline) -> None:
        """Write all of ``data``; raises ``LinkLost`` when that fails."""
        del deadline  # the resource's own time-out bounds the call
        resource = self._opened()
        try:
            # Raw, without the library's terminators: the session above adds its own, the same on every link.
            written = resource.write_raw(data)
        except Exception as error:  # VisaIOError, BrokenPipeError, SerialException: one event, many types
            raise self._lost(f"writing failed: {error}") from error
        if written != len(data):
            raise self._lost(f"only {written} of {len(data)} bytes were written")

    def read(self, deadline: Deadline) -> bytes:
        """Return at least one byte, or ``b""`` at the deadline; raises ``LinkLost`` when the peer is gone."""
        from pyvisa import VisaIOError
        from pyvisa.constants import StatusCode

        resource = self._opened()
        while (remaining_s := deadline - self._clock.now()) > 0:
            try:
                patience_ms = 1e3 * (min(remaining_s, _SLICE_S) if self._is_stream else remaining_s)
                # VISA counts whole milliseconds, and 0 does not wait: pyvisa-py then raises what a lost peer raises.
                resource.timeout = max(patience_ms, 1.0)
                data = bytes(resource.read_raw())
            except VisaIOError as error:
                if error.error_code != StatusCode.error_timeout:
                    raise self._lost(f"reading failed: {error}") from error
                continue
            except Exception as error:  # as in write
                raise self._lost(f"reading failed: {error}") from error
            if data:
                return data
        return b""

    def drain(self, quiet_s: float, deadline: Deadline) -> int:
        """Throw away input until nothing arrived for ``quiet_s``; return the number of bytes thrown away."""
        return drain_by_reading(self, self._clock, quiet_s, deadline)

    def close(self) -> None:
        """Close the resource, not the resource manager; idempotent, never raises."""
        resource, self._resource = self._resource, None
        if resource is not None:
            try:
                resource.close()
            except Exception as error:  # noqa: BLE001 - closing a dead resource fails in many ways
                _log.debug("%s: closing a dead resource: %s", self.name, error)

    def forget(self) -> None:
        """In a child: leave the resource to the parent; its library would end the parent's session at exit."""
        resource, self._resource = self._resource, None
        if resource is not None:
            resource.session = None

    def _opened(self) -> Any:
        self._owner.check(self.name)
        if self._resource is None:
            raise LinkLost("the link is closed", address=self.name, hint="Open it first.")
        return self._resource

    def _lost(self, what: str) -> LinkLost:
        self.close()
        return LinkLost(what, address=self.name, hint="The instrument is off, unplugged, or serves another client.")
