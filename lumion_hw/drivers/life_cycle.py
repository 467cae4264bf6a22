"""What all drivers share of their life: opened, closed, and used in a ``with`` block."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import ClassVar, Generic, Protocol, Self, TypeVar

from lumion_hw.errors import ConnectError
from lumion_hw.sessions.conversation import Conversation


class Driver(abc.ABC):
    """A device that is opened and closed; ``with`` opens it and closes it whatever happens in the block."""

    @abc.abstractmethod
    def open(self) -> object:
        """Open the way to the device and check who answers; a failure leaves it closed.

        Returns:
            Nothing, or how the device was found, where there is something to tell.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Release the way to the device; idempotent, never raises."""

    def __repr__(self) -> str:
        """Return one line: what it is, and its name in the bench file where it has one."""
        name = getattr(self, "_device", "") or getattr(getattr(self, "_session", None), "device", "")
        return f"<{type(self).__name__}{f' {name}' if name else ''}>"

    def __enter__(self) -> Self:
        """Open."""
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()


@contextlib.contextmanager
def close_on_error(close: Callable[[], None]) -> Iterator[None]:
    """Call ``close`` if the block, which opens a device, ends in any exception.

    Also Ctrl-C: a port that is held on to is in use for everybody.
    """
    try:
        yield
    except BaseException:
        close()
        raise


def not_open(what: str, device: str, address: str) -> ConnectError:
    """Return the error for a call on a device that was not opened, or was closed.

    Args:
        what: The kind of device, as in "the meter".
        device: Its name.
        address: Its address.
    """
    return ConnectError(f"{what} is not open", device=device, address=address, hint="Call open() first.")


class SelfIdentifying(Protocol):
    """What every instrument that says who it is says at least."""

    @property
    def model(self) -> str:
        """Model."""

    @property
    def serial(self) -> str:
        """Serial number."""


IdentityT = TypeVar("IdentityT", bound=SelfIdentifying)
SessionT = TypeVar("SessionT", bound=Conversation)


class IdentifiedDriver(Driver, Generic[IdentityT, SessionT]):
    """A driver whose device said who it is when it was opened; a subclass fills ``_session`` and ``_identity``.

    Attributes:
        kind: What the device is, for messages.
    """

    kind: ClassVar[str] = "instrument"
    _session: SessionT
    _identity: IdentityT | None = None

    @property
    def identity(self) -> IdentityT:
        """Who the device says it is. Raises ``ConnectError`` while it is not open."""
        if self._identity is None:
            raise not_open(f"the {self.kind}", self._session.device, self._session.address)
        return self._identity

    @property
    def model(self) -> str:
        """Model, such as ``N7745C``. Raises ``ConnectError`` while it is not open."""
        return self.identity.model

    @property
    def serial(self) -> str:
        """Serial number. Raises ``ConnectError`` while it is not open."""
        return self.identity.serial

    @property
    def session(self) -> SessionT:
        """The session, for its counters and for what this driver does not have."""
        return self._session

    def _check_open(self) -> None:
        """Raise ``ConnectError`` while it is not open."""
        _ = self.identity
