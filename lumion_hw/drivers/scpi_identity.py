"""Who answers at an address: the reply to ``*IDN?``, compared with who should."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from lumion_hw.errors import IdentityError
from lumion_hw.sessions.scpi import ScpiSession


@dataclass(frozen=True)
class Identity:
    """The four fields of ``*IDN?`` (IEEE 488.2, 10.14), as the instrument says them."""

    maker: str
    model: str
    serial: str
    firmware: str


@dataclass(frozen=True)
class Expected:
    """Who should answer.

    Attributes:
        makers: Beginnings of the maker's name, in capitals.
        models: Models of the family, in capitals.
        model: The one model that must be found; any of the family if ``None``.
        serial: The serial number that must be found; any if ``None``.
    """

    makers: tuple[str, ...]
    models: Collection[str]
    model: str | None = None
    serial: str | None = None

    def matches(self, identity: Identity) -> bool:
        """Tell whether this is who should answer; maker and model in any letter case."""
        model = identity.model.upper()
        return (
            identity.maker.upper().startswith(self.makers)
            and model in self.models
            and (self.model is None or model == self.model.upper())
            and (self.serial is None or identity.serial == self.serial)
        )


def checked_identity(session: ScpiSession, reply: str, expected: Expected) -> Identity:
    """Return the identity in a reply to ``*IDN?``.

    Raises:
        IdentityError: Another instrument answers; the session forgets it.
    """
    fields = [field.strip() for field in reply.split(",")]
    if len(fields) == 4 and expected.matches(identity := Identity(*fields)):
        return identity
    session.forget_identity()
    wanted = expected.model or " or ".join(expected.models)
    raise IdentityError(
        f"expected {wanted}, serial {expected.serial or 'any'}; found {reply!r}",
        device=session.device,
        address=session.address,
        hint="Check the address in the bench file, or which instrument is plugged in there.",
    )
