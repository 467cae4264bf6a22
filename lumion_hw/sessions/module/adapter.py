"""Base of the I2C adapters of this computer."""

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
    largest_read_of,
    repeat_access,
    split_into_rows,
    split_read,
)

_RETRY_PERIOD_S = 0.002
_T = TypeVar("_T")


@dataclass(frozen=True)
class Signal:
    """Properties of a low-speed signal of a module socket."""

    driven_by_host: bool
    asserted_high: bool


SIGNALS: Mapping[str, Signal] = {
    "reset_l": Signal(driven_by_host=True, asserted_high=False),
    "lp_mode": Signal(driven_by_host=True, asserted_high=True),
    "int_l": Signal(driven_by_host=False, asserted_high=False),
    "mod_prs_l": Signal(driven_by_host=False, asserted_high=False),
}
"""ResetL, LPMode, IntL and ModPrsL of a QSFP-DD, QSFP or OSFP-style socket (QSFP-DD hardware specification 4.1)."""


class I2cAdapter(abc.ABC):
    """An adapter with one I2C bus. Thread-safe.

    Args:
        address: Address of the adapter in the bench file.
        largest_read: Longest read in one transaction, in bytes; by default that of the adapter class.
        library: Replacement for the adapter's library, for tests.
    """

    module: ClassVar[str]
    """Module name of the adapter's library."""
    extra: ClassVar[str]
    """Optional dependency that installs the library."""
    label: ClassVar[str]
    """Name of the adapter, for messages."""
    default_largest_read: ClassVar[int] = 128

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
        self._largest_read = largest_read or self.default_largest_read
        self._library = library
        self._handle: Any = None
        self._owner = OwnerProcess()
        self._lock = fork_safe(threading.RLock())

    @property
    def name(self) -> str:
        """Address of the adapter in the bench file."""
        return self._address

    @property
    def largest_read(self) -> int:
        """Longest read in one bus transaction, in bytes."""
        return self._largest_read

    def open(self) -> None:
        """Open the adapter. Raises ``ConnectError`` if the library or the adapter is missing."""
        with self._lock:
            self._owner.claim(self.name, self._device)
            if self._handle is not None:
                return
            if self._library is None:
                self._library = self._import_library()
            try:
                self._handle = self._open_handle()
                self._prepare()
            except Exception as error:
                self.close()
                if isinstance(error, LumionError):
                    raise
                raise self._error(
                    ConnectError, f"cannot open {self.label}: {_reason(error)}", self._open_hint
                ) from error

    def close(self) -> None:
        """Release the adapter; idempotent, never raises. A forked child process leaves it open."""
        # A forked child has the parent's handle; releasing it would reset the adapter while the parent uses it.
        if self._owner.belongs_to_other_process:
            return
        with self._lock:
            handle, self._handle = self._handle, None
            if handle is not None:
                try:
                    self._release(handle)
                except Exception:  # noqa: BLE001 - a lost adapter cannot be released
                    return

    def read(self, device: int, offset: int, length: int) -> bytes:
        """Return ``length`` bytes from ``offset`` of an I2C device.

        Raises:
            NotRespondingError: The device does not acknowledge at present, but may do so soon.
            LinkLost: The adapter is closed or lost.
        """
        data = b""
        with self._lock:
            for start, size in split_read(offset, length, self._largest_read):
                # Every transaction sends its own offset, because a module may not continue at the next byte after a
                # stop.
                data += self._transfer(f"reading {size} bytes at {start}", device, bytes([start]), size)
        return data

    def write(self, device: int, offset: int, data: bytes) -> None:
        """Write ``data`` in one transaction; raises the errors of :meth:`read`."""
        with self._lock:
            # Offset and data in one transaction: after a stop in between, the data would be taken as an offset.
            self._transfer(f"writing {len(data)} bytes at {offset}", device, bytes([offset]) + data, 0)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Lock the adapter for several accesses."""
        with self._lock:
            yield

    # -- implemented by each adapter

    _open_hint = "Check its address, its cable, and that this user may use it."

    @abc.abstractmethod
    def _open_handle(self) -> Any: ...

    @abc.abstractmethod
    def _release(self, handle: Any) -> None: ...

    @abc.abstractmethod
    def _exchange(self, handle: Any, device: int, written: bytes, n_read: int) -> bytes:
        """Write ``written``, then read ``n_read`` bytes after a repeated start unless ``n_read`` is 0."""

    @abc.abstractmethod
    def _is_no_acknowledge(self, error: Exception) -> bool: ...

    def _prepare(self) -> None:  # noqa: B027 - only adapters with pins override it
        ...

    # -- inside

    def _transfer(self, label: str, device: int, written: bytes, n_read: int) -> bytes:
        return self._access(label, lambda handle: self._exchange(handle, device, written, n_read))

    def _access(self, label: str, access: Callable[[Any], _T]) -> _T:
        self._owner.check(self.name, self._device)
        if self._handle is None:
            raise self._error(LinkLost, f"{self.label} is closed", "Open it first.")
        try:
            return access(self._handle)
        except Exception as error:
            if self._is_no_acknowledge(error):
                raise self._error(
                    NotRespondingError, f"{label}: {_reason(error)}", "Is a module plugged in?"
                ) from error
            raise self._error(LinkLost, f"{label}: {_reason(error)}", self._hint_for_loss(error)) from error

    def _hint_for_loss(self, error: Exception) -> str:
        del error
        return "Check the adapter and its cable."

    def _error(self, kind: type[LumionError], message: str, hint: str) -> LumionError:
        return kind(message, device=self._device, address=self._address, hint=hint)

    def _import_library(self) -> Any:
        try:
            return importlib.import_module(self.module)
        except ImportError as error:
            raise self._error(
                ConnectError,
                f"reading modules through {self.label} needs the package {self.module.partition('.')[0]}.",
                f"Install it: pip install 'lumion-hw[{self.extra}]'.",
            ) from error


class PinnedAdapter(I2cAdapter):
    """An adapter with pins for the signals of a module socket. Thread-safe.

    Opening and closing do not change the level of any pin.

    Args:
        address: Address of the adapter in the bench file.
        pins: Pin number of each wired signal.
        **options: As for ``I2cAdapter``.
    """

    pin_numbers: ClassVar[range]
    """Pins that can be used for a signal."""

    def __init__(self, address: str, *, pins: Mapping[str, int] | None = None, **options: Any) -> None:
        super().__init__(address, **options)
        self._pins = dict(pins or {})
        for signal, pin in self._pins.items():
            if signal not in SIGNALS or pin not in self.pin_numbers:
                raise self._error(
                    NotSupportedError,
                    f"cannot use pin {pin} for {signal}",
                    f"Pins of {self.label}: {self.pin_numbers[0]} to {self.pin_numbers[-1]}; "
                    f"signals are {', '.join(SIGNALS)}.",
                )

    @property
    def wired(self) -> Collection[str]:
        """Names of the wired signals."""
        return self._pins.keys()

    def assert_signal(self, signal: str, asserted: bool) -> None:
        """Assert or release a signal. Raises ``NotSupportedError`` if the host cannot drive it, and ``LinkLost``."""
        pin = self._pin(signal)
        level = asserted == SIGNALS[signal].asserted_high
        with self._lock:
            self._access(f"driving {signal}", lambda handle: self._drive(handle, pin, level))

    def is_asserted(self, signal: str) -> bool:
        """Return whether a signal is asserted. Raises ``NotSupportedError`` for an unwired signal, and ``LinkLost``."""
        pin = self._pin(signal)
        with self._lock:
            level = self._access(f"reading {signal}", lambda handle: self._level(handle, pin))
        return level == SIGNALS[signal].asserted_high

    def _prepare(self) -> None:
        if self._pins:
            self._prepare_pins()

    @abc.abstractmethod
    def _prepare_pins(self) -> None: ...

    @abc.abstractmethod
    def _drive(self, handle: Any, pin: int, level: bool) -> None: ...

    @abc.abstractmethod
    def _level(self, handle: Any, pin: int) -> bool: ...

    def _outputs(self) -> tuple[int, ...]:
        return tuple(pin for signal, pin in self._pins.items() if SIGNALS[signal].driven_by_host)

    def _pin(self, signal: str) -> int:
        if signal in self._pins:
            return self._pins[signal]
        wired = ", ".join(self._pins) or "none"
        raise self._error(
            NotSupportedError, f"{signal} is not wired to a pin", f"Add it under 'pins'. Wired signals: {wired}."
        )


class AdapterRegisters:
    """Registers of a module behind an adapter; implements ``RegisterAccess``. Thread-safe.

    Args:
        adapter: Adapter to use.
        clock: Clock for the retries.
        retry_s: Time in seconds for which an access that is not acknowledged is repeated.
    """

    def __init__(self, adapter: I2cAdapter, clock: Clock, *, device: str, retry_s: float = 0.5) -> None:
        self._adapter = adapter
        self._clock = clock
        self._device = device
        self._retry_s = retry_s

    @property
    def name(self) -> str:
        """Address of the adapter in the bench file."""
        return self._adapter.name

    @property
    def largest_read(self) -> int:
        """Longest read in one bus transaction, in bytes."""
        return largest_read_of(self._adapter)

    def open(self) -> None:
        """Open the adapter. Raises ``ConnectError``."""
        self._adapter.open()

    def close(self) -> None:
        """Release the adapter; idempotent, never raises."""
        self._adapter.close()

    def read(self, device: int, offset: int, length: int) -> bytes:
        """Return exactly ``length`` bytes; raises the errors of ``RegisterAccess.read``."""
        with self.transaction():
            # Each part is repeated on its own: a flag that was read is cleared, and another reading would lose it.
            return b"".join(
                self._repeat(device, partial(self._adapter.read, device, start, size))
                for start, size in split_read(offset, length, self.largest_read)
            )

    def write(self, device: int, offset: int, data: bytes) -> None:
        """Write ``data``; raises the errors of ``RegisterAccess.read``."""
        with self.transaction():
            for start, chunk in split_into_rows(offset, data):
                self._repeat(device, partial(self._adapter.write, device, start, chunk))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Lock the module for several accesses."""
        with self._adapter.transaction():
            yield

    def _repeat(self, device: int, access: Callable[[], _T]) -> _T:
        try:
            return repeat_access(access, self._clock, self._retry_s, _RETRY_PERIOD_S, (NotRespondingError,))
        except NotRespondingError as error:
            kind = ModuleAbsentError if device == IDENTITY_DEVICE else NotRespondingError
            raise kind(
                f"{error.message}, repeated for {self._retry_s:g} s",
                device=self._device,
                address=self.name,
                hint="Check that a module is plugged in and powered, and has this device address.",
            ) from error


def _reason(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).rstrip(".")
