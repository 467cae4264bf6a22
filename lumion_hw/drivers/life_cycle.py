"""Base classes of all drivers: opening, closing and the identity of the device."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import ClassVar, Generic, Protocol, Self, TypeVar

from lumion_hw.errors import ConnectError
from lumion_hw.sessions.conversation import Conversation


class Driver(abc.ABC):
    """Base of all drivers. A ``with`` block opens the device and always closes it."""

    @abc.abstractmethod
    def open(self) -> object:
        """Open the connection and check the identity of the device. After an error the driver is closed.

        Returns:
            ``None``, or a description of the state in which the device was found.

        Raises:
            ConnectError: The connection cannot be opened.
            IdentityError: A different device replies.
            LinkTimeout: There is no reply.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Release the connection; idempotent, never raises."""

    def __repr__(self) -> str:
        """Return the class name and the device name."""
        name = getattr(self, "_device", "") or getattr(getattr(self, "_session", None), "device", "")
        return f"<{type(self).__name__}{f' {name}' if name else ''}>"

    def __enter__(self) -> Self:
        """Open the device."""
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the device."""
        self.close()


@contextlib.contextmanager
def close_on_error(close: Callable[[], None]) -> Iterator[None]:
    """Call ``close`` if the ``with`` block ends with any exception, including Ctrl-C."""
    try:
        yield
    except BaseException:
        close()
        raise


def not_open(label: str, device: str, address: str) -> ConnectError:
    """Return the error for a call on a device that is not open.

    ``label`` is the kind of device, such as "the meter".
    """
    return ConnectError(f"{label} is not open", device=device, address=address, hint="Call open() first.")


class SelfIdentifying(Protocol):
    """Identity with at least a model and a serial number."""

    @property
    def model(self) -> str:
        """Model name."""

    @property
    def serial(self) -> str:
        """Serial number."""


IdentityT = TypeVar("IdentityT", bound=SelfIdentifying)
SessionT = TypeVar("SessionT", bound=Conversation)


class IdentifiedDriver(Driver, Generic[IdentityT, SessionT]):
    """Base of drivers whose device reports its identity on opening; a subclass sets ``_session`` and ``_identity``."""

    kind: ClassVar[str] = "instrument"
    _session: SessionT
    _identity: IdentityT | None = None

    @property
    def identity(self) -> IdentityT:
        """Identity that the device reported. Raises ``ConnectError`` if the driver is not open."""
        if self._identity is None:
            raise not_open(f"the {self.kind}", self._session.device, self._session.address)
        return self._identity

    @property
    def model(self) -> str:
        """Model, such as ``N7745C``. Raises ``ConnectError`` if the driver is not open."""
        return self.identity.model

    @property
    def serial(self) -> str:
        """Serial number. Raises ``ConnectError`` if the driver is not open."""
        return self.identity.serial

    @property
    def session(self) -> SessionT:
        """The session, for its counters and for commands that this driver does not cover."""
        return self._session

    def _check_open(self) -> None:
        _ = self.identity
