"""What power meters over SCPI have in common: what zeroing needs, and how they say that it failed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from lumion_hw.drivers.scpi import ScpiDriver
from lumion_hw.errors import DeviceError


class ScpiMeter(ScpiDriver):
    """Base of the drivers; implements ``PowerMeter`` but for the instrument's own commands. Thread-safe.

    Args as of :class:`~lumion_hw.drivers.scpi.ScpiDriver`.

    Attributes:
        dark: What has to be dark for zeroing, and how to make it so, for messages.
    """

    kind = "meter"
    dark: ClassVar[str] = "every channel dark: cap the inputs"

    def errors(self) -> tuple[tuple[int, str], ...]:
        """Drain the instrument's error queue, oldest first."""
        return self._scpi.errors()

    def _zeroing_failed(self, why: Sequence[str], command: str, code: int | None = None) -> DeviceError:
        """Return the error of a zeroing that the instrument says went wrong."""
        return self._session.error(
            DeviceError,
            f"zeroing failed: {'; '.join(why)}",
            code=code,
            command=command,
            hint=f"Zeroing needs {self.dark} or switch the light off, then zero again.",
        )
