"""What the I2C adapters of this computer share: one bus transaction per call to any device address, and spare pins.

An adapter is a way to every pluggable module: ``BridgedI2c`` lends one of its addresses to a CMIS module, and
:class:`AdapterRegisters` makes the registers of an SFP+ out of it.
"""

from __future__ import annotations

import abc
import importlib
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, TypeVar

from lumion_hw.clock import Clock
from lumion_hw.errors import ConnectError, LinkLost, LumionError, NotSupportedError
from lumion_hw.links.owner import OwnerProcess, fork_safe
from lumion_hw.sessions.module.registers import (
    IDENTITY_DEVICE,
    ModuleAbsentError,
    NotRespondingError,
    repeated,
    row_pieces,
)

_RETRY_PERIOD_S = 0.002
_T = TypeVar("_T")


@dataclass(frozen=True)
class Signal:
    """A low-speed signal of a module's socket: who drives it, and the level at which it says what it is named for."""

    by_host: bool
    asserted_high: bool


SIGNALS: Mapping[str, Signal] = {
    "reset_l": Signal(by_host=True, asserted_high=False),
    "lp_mode": Signal(by_host=True, asserted_high=True),
    "int_l": Signal(by_host=False, asserted_high=False),
    "mod_prs_l": Signal(by_host=False, asserted_high=False),
}
"""ResetL, LPMode, IntL and ModPrsL of a QSFP-DD, QSFP or OSFP-style socket (QSFP-DD hardware specification 4.1)."""


class I2cAdapter(abc.ABC):
    """An adapter with one I2C bus. Thread-safe.

    Args:
        address: The adapter's address in a bench file.
        device: Device name, for messages.
        largest_read: Longest read in one transaction; the class knows the adapter's own.
        library: Stands in for the adapter's library.
    """

    module: ClassVar[str]
    """Name of the library's module."""
    extra: ClassVar[str]
    """Optional dependency that brings the library."""
    label: ClassVar[str]
    """The adapter in words."""
    own_largest_read: ClassVar[int] = 128

    def __init__(
        self,
        address: str,
        *,
        device: str = "transponder",
        largest_read: int | None = None,
        library: Any = None,
    ) -> None:
        self._address = address
        self._device = device
        self._largest_read = largest_read or self.own_largest_read
        self._library = library
        self._handle: Any = None
        self._owner = OwnerProcess()
        self._lock = fork_safe(threading.RLock())

    @property
    def name(self) -> str:
        """The adapter's address."""
        return self._address

    def open(self) -> None:
        """Open the adapter. Raises ``ConnectError`` if its library or the adapter is missing."""
        with self._lock:
            self._owner.claim(self.name, self._device)
            if self._handle is not None:
                return
            if self._library is None:
                self._library = self._imported()
            try:
                self._handle = self._opened_handle()
                self._prepare()
            except Exception as error:
                self.close()
                if isinstance(error, LumionError):
                    raise
                raise self._error(
                    ConnectError, f"cannot open {self.label}: {_reason(error)}", self._open_hint
                ) from error

    def close(self) -> None:
        """Release the adapter; idempotent, never raises. In a child it stays the parent's."""
        # A child of fork has the parent's handle; releasing it would reset the adapter under the parent.
        if self._owner.belongs_to_other_process:
            return
        with self._lock:
            handle, self._handle = self._handle, None
            if handle is not None:
                try:
                    self._release(handle)
                except Exception:  # noqa: BLE001 - what is gone cannot be released, and nobody can act on it
                    return

    def read(self, device: int, offset: int, length: int) -> bytes:
        """Return ``length`` bytes, in as few transactions as the adapter can.

        Raises:
            NotRespondingError: The device does not acknowledge now; it may in a moment.
            LinkLost: The adapter is closed or gone.
        """
        data = b""
        with self._lock:
            for start in range(offset, offset + length, self._largest_read):
                size = min(self._largest_read, offset + length - start)
                # Every piece names its own offset: where a module goes on reading after a stop need not be relied on.
                data += self._transfer(f"reading {size} bytes at {start}", device, bytes([start]), size)
        return data

    def write(self, device: int, offset: int, data: bytes) -> None:
        """Write ``data`` in one transaction; raises as :meth:`read`."""
        with self._lock:
            # Offset and data in one transaction: after a stop between them the data would be taken for an offset.
            self._transfer(f"writing {len(data)} bytes at {offset}", device, bytes([offset]) + data, 0)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Hold the adapter for several accesses."""
        with self._lock:
            yield

    # -- what an adapter brings

    _open_hint = "Check its address, its cable, and that this user may use it."

    @abc.abstractmethod
    def _opened_handle(self) -> Any:
        """Open the library's object."""

    @abc.abstractmethod
    def _release(self, handle: Any) -> None:
        """Close it."""

    @abc.abstractmethod
    def _exchange(self, handle: Any, device: int, out: bytes, n_read: int) -> bytes:
        """Write ``out``, then read after a repeated start if ``n_read`` is not 0."""

    @abc.abstractmethod
    def _is_silence(self, error: Exception) -> bool:
        """Tell whether an error of the library is a device that does not acknowledge."""

    def _prepare(self) -> None:  # noqa: B027 - only adapters with pins have something to prepare
        """Make an open adapter ready."""

    # -- inside

    def _transfer(self, label: str, device: int, out: bytes, n_read: int) -> bytes:
        return self._tried(label, lambda handle: self._exchange(handle, device, out, n_read))

    def _tried(self, label: str, access: Callable[[Any], _T]) -> _T:
        self._owner.check(self.name, self._device)
        if self._handle is None:
            raise self._error(LinkLost, f"{self.label} is closed", "Open it first.")
        try:
            return access(self._handle)
        except Exception as error:
            if self._is_silence(error):
                raise self._error(
                    NotRespondingError, f"{label}: {_reason(error)}", "Is a module plugged in?"
                ) from error
            raise self._error(LinkLost, f"{label}: {_reason(error)}", self._lost_hint(error)) from error

    def _lost_hint(self, error: Exception) -> str:
        """Say what to do about an error that is no silence."""
        del error
        return "Check the adapter and its cable."

    def _error(self, kind: type[LumionError], message: str, hint: str) -> LumionError:
        return kind(message, device=self._device, address=self._address, hint=hint)

    def _imported(self) -> Any:
        try:
            return importlib.import_module(self.module)
        except ImportError as error:
            raise self._error(
                ConnectError,
                f"reading modules through {self.label} needs {self.module.partition('.')[0]}.",
                f"Install it: pip install 'lumion-hw[{self.extra}]'.",
            ) from error


class PinnedAdapter(I2cAdapter):
    """An adapter with pins for the signals of a socket. Thread-safe.

    Opening it changes no level of a pin, and closing leaves them as they are.

    Args:
        address: The adapter's address in a bench file.
        pins: Number of the pin that each signal is wired to.
        **others: As for ``I2cAdapter``.
    """

    pin_numbers: ClassVar[range]
    """Pins that can carry a signal."""

    def __init__(self, address: str, *, pins: Mapping[str, int] | None = None, **others: Any) -> None:
        super().__init__(address, **others)
        self._pins = dict(pins or {})
        for signal, pin in self._pins.items():
            if signal not in SIGNALS or pin not in self.pin_numbers:
                raise self._error(
                    NotSupportedError,
                    f"{signal} on pin {pin}",
                    f"{self.label} has pins {self.pin_numbers[0]} to {self.pin_numbers[-1]}; "
                    f"signals are {', '.join(SIGNALS)}.",
                )

    @property
    def wired(self) -> Collection[str]:
        """The signals that are wired."""
        return self._pins.keys()

    def assert_signal(self, signal: str, asserted: bool) -> None:
        """Set a signal of the host's; raises ``NotSupportedError`` if it is not wired, and ``LinkLost``."""
        pin = self._pin(signal)
        level = asserted == SIGNALS[signal].asserted_high
        with self._lock:
            self._tried(f"driving {signal}", lambda handle: self._drive(handle, pin, level))

    def is_asserted(self, signal: str) -> bool:
        """Look at a signal; raises ``NotSupportedError`` if it is not wired, and ``LinkLost``."""
        pin = self._pin(signal)
        with self._lock:
            level = self._tried(f"looking at {signal}", lambda handle: self._level(handle, pin))
        return level == SIGNALS[signal].asserted_high

    def _prepare(self) -> None:
        if self._pins:
            self._prepare_pins()

    @abc.abstractmethod
    def _prepare_pins(self) -> None:
        """Make inputs and outputs of the wired pins; outputs keep the level they have."""

    @abc.abstractmethod
    def _drive(self, handle: Any, pin: int, level: bool) -> None:
        """Set the level of an output."""

    @abc.abstractmethod
    def _level(self, handle: Any, pin: int) -> bool:
        """Return the level of a pin."""

    def _outputs(self) -> tuple[int, ...]:
        return tuple(pin for signal, pin in self._pins.items() if SIGNALS[signal].by_host)

    def _pin(self, signal: str) -> int:
        if signal in self._pins:
            return self._pins[signal]
        wired = ", ".join(self._pins) or "none"
        raise self._error(
            NotSupportedError, f"{signal} is not wired to a pin", f"Name it under 'pins'; wired: {wired}."
        )


class AdapterRegisters:
    """The registers of a module behind an adapter; implements ``RegisterAccess``. Thread-safe.

    Args:
        adapter: The adapter.
        clock: Measures the retries.
        device: Device name, for messages.
        retry_s: How long an access that is not acknowledged is repeated.
    """

    def __init__(self, adapter: I2cAdapter, clock: Clock, *, device: str, retry_s: float = 0.5) -> None:
        self._adapter = adapter
        self._clock = clock
        self._device = device
        self._retry_s = retry_s

    @property
    def name(self) -> str:
        """The adapter's address."""
        return self._adapter.name

    def open(self) -> None:
        """Open the adapter. Raises ``ConnectError``."""
        self._adapter.open()

    def close(self) -> None:
        """Release the adapter; idempotent, never raises."""
        self._adapter.close()

    def read(self, device: int, offset: int, length: int) -> bytes:
        """Return exactly ``length`` bytes; raises as ``RegisterAccess.read``."""
        return self._repeated(device, lambda: self._adapter.read(device, offset, length))

    def write(self, device: int, offset: int, data: bytes) -> None:
        """Write ``data`` in row pieces; raises as ``RegisterAccess.read``."""
        with self.transaction():
            for start, piece in row_pieces(offset, data):
                self._repeated(device, partial(self._adapter.write, device, start, piece))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Hold the module for several accesses."""
        with self._adapter.transaction():
            yield

    def _repeated(self, device: int, access: Callable[[], _T]) -> _T:
        """Make an access, again and again while it is not acknowledged, until the deadline."""
        try:
            return repeated(access, self._clock, self._retry_s, _RETRY_PERIOD_S, (NotRespondingError,))
        except NotRespondingError as error:
            kind = ModuleAbsentError if device == IDENTITY_DEVICE else NotRespondingError
            raise kind(
                f"{error.message} for {self._retry_s:g} s",
                device=self._device,
                address=self.name,
                hint="Check that a module is plugged in and powered, and has this device address.",
            ) from error


def _reason(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).rstrip(".")
