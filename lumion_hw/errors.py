"""The error tree of the package.

Every error says what was asked, what was found, where, and what to do. The command line turns each class into one
paragraph and one exit code (:func:`exit_code`). Several devices failing together are raised as an ``ExceptionGroup``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ParamSpec, Protocol, TypeVar


class LumionError(Exception):
    """Base of every error this package raises.

    Args:
        message: What happened, with the operation and what was seen.
        device: Name of the device in the bench file, if one is involved.
        address: Where that device was reached.
        hint: What the reader can do next.
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
    """A file, option or argument is wrong; the message names file, line, column and key where there is one."""

    exit_code = 2


class UnknownNameError(ConfigError, KeyError):
    """Nothing of this name is there; the message lists what is."""


class IdentityError(ConfigError):
    """Another device than the expected one answered at this address."""


class LinkError(LumionError, ConnectionError):
    """The way to a device does not work."""

    exit_code = 4


class ConnectError(LinkError):
    """The link could not be opened: missing or refused."""


class InUseError(ConnectError):
    """The link could not be opened because another program holds it."""

    exit_code = 6


class LinkLost(LinkError):  # noqa: N818 - the name says the event, as in the design
    """The link was open and is gone: unplugged, closed by the peer, or a write that did not go through."""


class LinkTimeout(LinkError, TimeoutError):  # noqa: N818 - as above
    """No answer before the deadline; the link itself may be alive.

    Attributes:
        took_effect: Whether the command changed something: ``False`` if it did not and will not, also for a question;
            ``None`` if that is not known.
    """

    took_effect: bool | None = None


class ForkError(LumionError, RuntimeError):
    """Something that another process has opened was used in its child; nothing was sent."""


class FrameError(LinkError):
    """Bytes arrived that are not a reply of the expected shape."""


class DeviceError(LumionError):
    """The device answered with an error.

    Args:
        message: The error in words.
        code: The device's own code.
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
    """Another host or run holds the device."""

    exit_code = 6


class BadValueError(DeviceError, ValueError):
    """The device refused a value or a channel as one that does not exist."""


class DeviceTimeoutError(DeviceError, TimeoutError):
    """Something inside the device took too long; the device itself answers."""


class ConfigRejectedError(DeviceError):
    """A module refused a configuration of its lanes; the one in force did not change.

    Args:
        message: What was refused.
        lane: Host lane.
        code: The module's code, CMIS 11h:202-205.
        name: That code in words.
        **where: ``device``, ``address`` and ``hint`` as in :class:`LumionError`.
    """

    def __init__(self, message: str, *, lane: int, code: int, name: str, **where: str | None) -> None:
        super().__init__(f"{message}: host lane {lane} answers {code:X}h, {name}", code=code, **where)
        self.lane = lane
        self.name = name


class NotSupportedError(DeviceError, NotImplementedError):
    """This model or this transport cannot do what was asked."""


class LimitError(LumionError, ValueError):
    """A value outside a limit was refused; nothing was changed.

    Args:
        message: What was refused.
        asked: The value asked for.
        limit: The limit it broke.
        unit: Unit of both.
        **where: ``device``, ``address`` and ``hint`` as in :class:`LumionError`.
    """

    exit_code = 2

    def __init__(self, message: str, *, asked: float, limit: float, unit: str, **where: str | None) -> None:
        super().__init__(f"{message}: asked {asked:g} {unit}, limit {limit:g} {unit}", **where)
        self.asked = asked
        self.limit = limit
        self.unit = unit


class VerifyError(LumionError):
    """A value read back differs from the value written.

    Args:
        message: What was verified.
        wrote: What was sent.
        read: What came back.
        **where: ``device``, ``address`` and ``hint`` as in :class:`LumionError`.
    """

    def __init__(self, message: str, *, wrote: object, read: object, **where: str | None) -> None:
        super().__init__(f"{message}: wrote {wrote}, read back {read}", **where)
        self.wrote = wrote
        self.read = read


class OutOfRangeError(DeviceError):
    """A measurement is not a number: over-range, under-range or saturated."""


class CalibrationError(LumionError):
    """A calibration could not be made, is incomplete, or does not belong to this device."""

    exit_code = 3


class RoutingError(LumionError):
    """Circuits could not be routed through the mesh."""


class NoPathError(RoutingError):
    """No set of routes satisfies the request, and that is proven; the message says what binds and what would free it.

    Args:
        message: Which ports and which cut.
        ports: Ports of the circuits that cannot be had together, or the port at fault.
        cut: ``(puc, puc)`` of the joints that are too few, where a cut is the proof.
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
    """No routes were found in the effort allowed, and none were proven impossible either."""


class CircuitError(LumionError):
    """A circuit could not be proven by light; the message says what was proven and what was rolled back."""

    exit_code = 3


class SafetyError(LumionError):
    """A latched fault or interlock keeps the outputs off until it is cleared by name."""

    exit_code = 5


ErrorT = TypeVar("ErrorT", bound=LumionError)
ErrorArgs = ParamSpec("ErrorArgs")


class HasAddress(Protocol):
    """An object that knows a device's name and address."""

    @property
    def device(self) -> str:
        """Name of the device in the bench file."""

    @property
    def address(self) -> str:
        """Address of the device."""


class DeviceErrors:
    """Mixin for objects with a device name and an address: their errors carry both."""

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
    """Name and address of a device.

    Attributes:
        device: Name in the bench file.
        address: Address at which it is reached.
    """

    device: str
    address: str


LIST_FAULTS = "`lumion faults BENCH` lists the faults; in a script, faults() does"
"""How to see the faults of a mesh controller, for messages."""
CLEAR_FAULTS = (
    "Remove the cause, then clear each fault: `lumion faults BENCH --clear NAME`, or clear_fault(id) in a script"
)
"""What to do about a latched fault, for messages."""


def exit_code(error: BaseException) -> int:
    """Return the process exit code for an error.

    0 ok, 1 failed, 2 usage or configuration, 3 out of tolerance, 4 unreachable, 5 interlock, 6 busy, 130 interrupted.
    An ``ExceptionGroup`` takes the code its members agree on, or 1.
    """
    if isinstance(error, LumionError):
        return error.exit_code
    if isinstance(error, BaseExceptionGroup):
        codes = {exit_code(member) for member in error.exceptions}
        return codes.pop() if len(codes) == 1 else 1
    if isinstance(error, KeyboardInterrupt):
        return 130
    return 1


def name_hint(name: str, choices: Iterable[str], intro: str = "There are") -> str:
    """Return a hint for a name that does not exist: the closest names, or all names if none is close.

    Args:
        name: The name that was given.
        choices: The names that exist.
        intro: Beginning of the sentence that lists all names, such as ``The modules are``.
    """
    from difflib import get_close_matches  # here, for commands that fail are few

    names = list(choices)
    close = get_close_matches(name, names, n=3, cutoff=0.6)
    return f"Did you mean {' or '.join(close)}?" if close else f"{intro} {', '.join(names) or 'none'}."
