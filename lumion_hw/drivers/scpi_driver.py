"""What drivers of SCPI instruments have in common: the session, and who answered on it."""

from __future__ import annotations

from typing import ClassVar

from lumion_hw.drivers.life_cycle import Driver, not_open
from lumion_hw.drivers.scpi_identity import Identity
from lumion_hw.sessions.scpi import ScpiSession


class ScpiDriver(Driver):
    """A driver whose device said who it is when it was opened; a class of its own fills ``_session``.

    Attributes:
        kind: What the device is, for messages.
    """

    kind: ClassVar[str] = "instrument"
    _session: ScpiSession
    _identity: Identity | None = None

    @property
    def identity(self) -> Identity:
        """Who the instrument says it is. Raises ``ConnectError`` while it is not open."""
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
    def firmware(self) -> str:
        """Firmware version. Raises ``ConnectError`` while it is not open."""
        return self.identity.firmware

    @property
    def session(self) -> ScpiSession:
        """The session, for its counters and for commands this driver does not have."""
        return self._session

    def _check_open(self) -> None:
        """Raise ``ConnectError`` while it is not open."""
        _ = self.identity
