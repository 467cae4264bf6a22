"""What all drivers share of their life: opened, closed, and used in a ``with`` block."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

from lumion_hw.errors import ConnectError


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
def closed_if_failed(close: Callable[[], None]) -> Iterator[None]:
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
