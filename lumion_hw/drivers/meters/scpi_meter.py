"""Base of the drivers for power meters over SCPI."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from lumion_hw.drivers.scpi import ScpiDriver
from lumion_hw.errors import DeviceError


class ScpiMeter(ScpiDriver):
    """Base of power meter drivers over SCPI; implements ``PowerMeter``. Thread-safe.

    Arguments as for :class:`~lumion_hw.drivers.scpi.ScpiDriver`.

    Attributes:
        dark: Text for messages: how to darken the meter for zeroing.
    """

    kind = "meter"
    dark: ClassVar[str] = "Cap all inputs"

    def errors(self) -> tuple[tuple[int, str], ...]:
        """Read and empty the instrument's error queue, oldest error first."""
        return self._scpi.errors()

    def _zeroing_failed(self, reasons: Sequence[str], command: str, code: int | None = None) -> DeviceError:
        return self._session.error(
            DeviceError,
            f"zeroing failed: {'; '.join(reasons)}",
            code=code,
            command=command,
            hint=f"{self.dark}, or switch the light off; then zero again.",
        )
