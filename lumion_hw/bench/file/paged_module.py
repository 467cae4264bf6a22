"""Bench-file keys of modules with paged memory: CMIS and SFF-8636."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from lumion_hw.bench.file.fields import Name, Number, Serial, StrictModel, WholeNumber
from lumion_hw.bench.file.module_connection import PIN_SCHEMES, PluggableModel

_WITH_PINS = tuple(f"{scheme}://" for scheme in PIN_SCHEMES)


class PinsModel(StrictModel):
    """Adapter pins that are connected to the low-speed signals of a module."""

    reset_l: WholeNumber | None = Field(None, ge=0, le=15, description="Pin wired to ResetL, which reset() pulls low.")
    lp_mode: WholeNumber | None = Field(
        None, ge=0, le=15, description="Pin wired to LPMode, which power_up() and power_down() drive."
    )
    int_l: WholeNumber | None = Field(None, ge=0, le=15, description="Pin wired to IntL, the interrupt of the module.")
    mod_prs_l: WholeNumber | None = Field(
        None, ge=0, le=15, description="Pin wired to ModPrsL, which shows that a module is in the socket."
    )

    def wired(self) -> dict[str, int]:
        """Return the connected pins by signal name."""
        return {signal: pin for signal, pin in self if pin is not None}

    @model_validator(mode="after")
    def _pins_are_distinct(self) -> Self:
        pins = list(self.wired().values())
        if len(set(pins)) < len(pins):
            raise ValueError(f"expected a different pin for every signal, found {self.wired()}")
        return self


class PagedModuleModel(PluggableModel):
    """A module with paged memory, low-speed signals, and possibly lanes that are wired one by one."""

    serial: Serial | None = Field(None, description="Expected serial number; opening fails if it differs.")
    vendor: str | None = Field(None, description="Expected vendor name.")
    part_number: str | None = Field(None, description="Expected part number.")
    lane_of: Name | None = Field(
        None, description="Module of which this is a media lane; set for each name such as dr4-a/2 in the wiring."
    )
    hold_off_s: Number = Field(
        0.0, ge=0.0, le=1.0, description="Pause after each write and page change, for slow boards."
    )
    pins: PinsModel | None = Field(
        None, description="Pins of an ftdi:// (3 to 15) or mcp2221:// (0 to 3) adapter that are wired to the socket."
    )

    @property
    def container(self) -> str | None:
        """Name of the module of which this is a media lane; ``None`` for a module."""
        return self.lane_of

    @model_validator(mode="after")
    def _adapter_has_pins(self) -> Self:
        if self.pins is not None and self.address is not None and not self.address.startswith(_WITH_PINS):
            raise ValueError(f"expected an adapter with pins (ftdi:// or mcp2221://) as address, found {self.address}")
        return self
