"""The errors of the package.

Messages say what was requested, what happened, where, and what to do. The command line prints an error as one paragraph
and ends with its exit code (:func:`exit_code`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ParamSpec, Protocol, TypeVar


class LumionError(Exception):
    """Base class of all errors of this package.

    Args:
        message: What happened.
        device: Name of the device in the bench file, if any.
        hint: What the user can do next.
    """

    exit_code = 1

    def __init__(
        self, message: str, *, device: str | None = None, address: str | None = None, hint: str | None = None
    ) -> None:
        self.message = message
        self.device = device
        self.address = address
        self.hint = hint
        super().__init__(message)

    def __str__(self) -> str:
        where = " @ ".join(part for part in (self.device, self.address) if part)
        text = f"{where}: {self.message}" if where else self.message
        if not self.hint:
            return text
        return f"{text} {self.hint}" if text.endswith((".", "!", "?", ":")) else f"{text}. {self.hint}"


class ConfigError(LumionError, ValueError):
    """A file, option or argument is wrong; for a file the message names line, column and key."""

    exit_code = 2


class UnknownNameError(ConfigError, KeyError):
    """No object has this name; the message lists the names that exist."""


class IdentityError(ConfigError):
    """Another device than expected answered at this address."""


class LinkError(LumionError, ConnectionError):
    """The connection to a device failed."""

    exit_code = 4


class ConnectError(LinkError):
    """The connection could not be opened: the address does not exist or refuses connections."""


class InUseError(ConnectError):
    """The connection could not be opened because another program uses it."""

    exit_code = 6


class LinkLost(LinkError):  # noqa: N818 - the name says the event, as in the design
    """An open connection was lost: unplugged, closed by the other side, or not writable."""


class LinkTimeout(LinkError, TimeoutError):  # noqa: N818 - as above
    """No reply before the deadline; the connection may still work.

    Attributes:
        took_effect: ``False`` if the command certainly has no effect, now or later; ``None`` if unknown.
    """

    took_effect: bool | None = None


class ForkError(LumionError, RuntimeError):
    """A child process used a device that its parent has opened; nothing was sent."""


class FrameError(LinkError):
    """The received bytes are not a valid reply."""


class DeviceError(LumionError):
    """The device answered with an error.

    Args:
        message: Text of the error.
        code: Error code of the device.
        command: The command that caused it.
        **where: ``device``, ``address`` and ``hint`` as in :class:`LumionError`.
    """

    def __init__(
        self, message: str, *, code: int | None = None, command: str | None = None, **where: str | None
    ) -> None:
        super().__init__(message, **where)
        self.code = code
        self.command = command


class BusyError(DeviceError):
    """Another host or program is using the device."""

    exit_code = 6


class BadValueError(DeviceError, ValueError):
    """The device rejected a value, or a channel that it does not have."""


class DeviceTimeoutError(DeviceError, TimeoutError):
    """An operation of the device took too long; the device itself still answers."""


class ConfigRejectedError(DeviceError):
    """A module rejected a lane configuration; its active configuration is unchanged.

    Args:
        message: The rejected operation.
        code: Configuration status code of the lane (CMIS 11h:202-205).
        name: Name of the status code.
        **where: ``device``, ``address`` and ``hint`` as in :class:`LumionError`.
    """

    def __init__(self, message: str, *, lane: int, code: int, name: str, **where: str | None) -> None:
        super().__init__(f"{message}: host lane {lane} reports {code:X}h, {name}", code=code, **where)
        self.lane = lane
        self.name = name


class NotSupportedError(DeviceError, NotImplementedError):
    """This device model or transport does not support the requested operation."""


class LimitError(LumionError, ValueError):
    """A value outside its limit was rejected; nothing was changed.

    Args:
        message: The rejected operation.
        unit: Unit of ``requested`` and ``limit``.
        **where: ``device``, ``address`` and ``hint`` as in :class:`LumionError`.
    """

    exit_code = 2

    def __init__(self, message: str, *, requested: float, limit: float, unit: str, **where: str | None) -> None:
        suffix = f" {unit}" if unit else ""
        super().__init__(f"{message}: requested {requested:g}{suffix}, limit {limit:g}{suffix}", **where)
        self.requested = requested
        self.limit = limit
        self.unit = unit


class VerifyError(LumionError):
    """A value read back differs from the value written.

    Args:
        message: The verified operation.
        wrote: The value written.
        read: The value read back.
        **where: ``device``, ``address`` and ``hint`` as in :class:`LumionError`.
    """

    def __init__(self, message: str, *, wrote: object, read: object, **where: str | None) -> None:
        super().__init__(f"{message}: wrote {wrote}, read back {read}", **where)
        self.wrote = wrote
        self.read = read


class OutOfRangeError(DeviceError):
    """A measurement gave no number: over range, under range or saturated."""


class CalibrationError(LumionError):
    """A calibration failed, is incomplete, or belongs to another device."""

    exit_code = 3


class RoutingError(LumionError):
    """Circuits could not be routed through the mesh."""

    exit_code = 3


class NoPathError(RoutingError):
    """No set of routes can satisfy the request; the message names the limiting ports or waveguides.

    Args:
        message: Text of the error.
        ports: Ports of circuits that exclude each other, or the port that cannot be reached.
        cut: Waveguides that form the bottleneck, each as ``(puc, puc)``; empty without a bottleneck.
        **where: ``device``, ``address`` and ``hint`` as in :class:`LumionError`.
    """

    def __init__(
        self,
        message: str,
        *,
        ports: tuple[int, ...] = (),
        cut: tuple[tuple[int, int], ...] = (),
        **where: str | None,
    ) -> None:
        super().__init__(message, **where)
        self.ports = ports
        self.cut = cut


class UndecidedError(RoutingError):
    """The search reached its work limit without finding routes; routes may exist."""


class CircuitError(LumionError):
    """A circuit was not verified with light; the message gives the result and the changes rolled back."""

    exit_code = 3


class SafetyError(LumionError):
    """A latched fault or interlock keeps the outputs off until a user clears it."""

    exit_code = 5


ErrorT = TypeVar("ErrorT", bound=LumionError)
ErrorArgs = ParamSpec("ErrorArgs")


class HasAddress(Protocol):
    """An object that knows the name and address of a device."""

    @property
    def device(self) -> str:
        """Name of the device in the bench file."""

    @property
    def address(self) -> str:
        """Address of the device."""


class DeviceErrors:
    """Mixin that adds the name and address of a device to errors."""

    def error(
        self: HasAddress, kind: Callable[ErrorArgs, ErrorT], *args: ErrorArgs.args, **named: ErrorArgs.kwargs
    ) -> ErrorT:
        """Return an error that names this device and its address.

        Args:
            kind: Class of the error.
            *args: Arguments of the class.
            **named: Named arguments of the class, without ``device`` and ``address``.
        """
        error = kind(*args, **named)
        error.device, error.address = self.device, self.address
        return error


@dataclass(frozen=True)
class DeviceAddress(DeviceErrors):
    """Name of a device in the bench file, and its address."""

    device: str
    address: str


LIST_FAULTS = "`lumion faults BENCH` lists the faults; in a script, faults() does"
"""Hint for messages: how to list the faults of a mesh controller."""
CLEAR_FAULTS = (
    "Remove the cause, then clear each fault: `lumion faults BENCH --clear NAME`, or clear_fault(id) in a script"
)
"""Hint for messages: how to clear a latched fault."""


def exit_code(error: BaseException) -> int:
    """Return the process exit code for an error.

    0 ok, 1 failed, 2 usage or configuration, 3 out of tolerance, 4 unreachable, 5 interlock, 6 busy, 130 interrupted.
    An ``ExceptionGroup`` has the common exit code of its errors, or 1 if they differ.
    """
    if isinstance(error, LumionError):
        return error.exit_code
    if isinstance(error, BaseExceptionGroup):
        codes = {exit_code(member) for member in error.exceptions}
        return codes.pop() if len(codes) == 1 else 1
    if isinstance(error, KeyboardInterrupt):
        return 130
    return 1


_MAX_NAMED = 16
"""Largest number of names in a hint without a close name."""


def name_hint(name: str, choices: Iterable[str], intro: str = "There are") -> str:
    """Return a hint for an unknown name: the closest names, otherwise the first of them, and how many others exist.

    Args:
        name: The name that was given.
        choices: The names that exist.
        intro: Beginning of the sentence that lists all names, such as ``The modules are``.
    """
    from difflib import get_close_matches  # here, for commands that fail are few

    names = list(choices)
    close = get_close_matches(name, names, n=3, cutoff=0.6)
    if close:
        return f"Did you mean {' or '.join(close)}?"
    n_others = max(len(names) - _MAX_NAMED, 0)
    others = f" and {n_others} others" if n_others > 1 else ""
    return f"{intro} {', '.join(names[:_MAX_NAMED] if others else names) or 'none'}{others}."
