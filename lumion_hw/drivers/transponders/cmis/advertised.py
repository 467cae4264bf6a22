"""Reads what a module advertises: applications, durations, grids, supported fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property

from lumion_hw.interfaces import (
    Application,
    TransponderCapabilities,
    TransponderIdentity,
    TuningRange,
)
from lumion_hw.quantities import SPEED_OF_LIGHT_M_PER_S
from lumion_hw.standards.cmis import FIELDS, Field, Page, Value, codes, decode_from, interface_ids, is_supported
from lumion_hw.standards.cmis.codec import duration_s
from lumion_hw.standards.cmis.coherent_pages import COHERENT
from lumion_hw.standards.cmis.elsfp_pages import ELSFP
from lumion_hw.standards.cmis.fields import LANES
from lumion_hw.standards.cmis.grids import GRIDS, LaserGrids, laser_grids, reported_mhz
from lumion_hw.standards.cmis.interface_ids import ELSFP_IDENTIFIER

N_APPLICATIONS = 15
"""Maximum number of applications of a module."""
_IN_LOWER_MEMORY = 8
_BANKS = {0: 1, 1: 2, 2: 4}
STAGES = ("power_up", "power_down", "dp_init", "dp_deinit", "tx_turn_on", "tx_turn_off")
"""State changes whose maximum duration a module advertises."""
_MONITORS = ("temperature", "supply", "aux1", "aux2", "aux3", "custom", "tx_power", "tx_bias", "rx_power")
LOOPBACKS = ("media_output", "media_input", "host_output", "host_input")
"""Loopbacks in the order of bytes 13h:180-183."""


class Advertised:
    """Capabilities that a module advertises in its memory.

    Args:
        half: Function that returns the 128 bytes of a page, or ``None`` if the page does not exist or is unknown.
        has_page: Function that returns whether a page exists in a bank.
        is_known: Function that returns whether all bytes of a field, or of an element of it, are known.
        one_bank: Whether only the eight lanes of one bank are used.
    """

    def __init__(
        self,
        half: Callable[[Page], bytes | None],
        has_page: Callable[[int, int], bool],
        is_known: Callable[[Field, int | None], bool] = lambda field, index: True,
        *,
        one_bank: bool = False,
    ) -> None:
        self._half = half
        self._has_page = has_page
        self._is_known = is_known
        self._one_bank = one_bank

    @cached_property
    def n_banks(self) -> int:
        """Number of banks of eight lanes that the module advertises (01h:142.1-0) and has."""
        if self.flat or self._one_bank:
            return 1
        advertised = _BANKS.get(self.number("banks_supported"), 1)
        # Some modules advertise banks that they do not have.
        return next((bank for bank in range(1, advertised) if not self._has_page(0x11, bank)), advertised)

    def value(self, name: str, index: int | None = None) -> Value | None:
        """Return the value of a field, or ``None`` if it is unknown."""
        half = self._half(FIELDS[name].page)
        is_unknown = half is None or not self._is_known(FIELDS[name], index)
        return None if half is None or is_unknown else decode_from(FIELDS[name], half, index)

    def number(self, name: str, index: int | None = None) -> int:
        """Return the value of an integer field, or 0 if its page is unknown."""
        value = self.value(name, index)
        return int(value) if isinstance(value, (int, float)) else 0

    def text(self, name: str) -> str:
        """Return the value of a text field, or an empty text if its page is unknown."""
        value = self.value(name)
        return value if isinstance(value, str) else ""

    def supported(self, name: str) -> bool | None:
        """Return whether the module has a field, or ``None`` if this is unknown."""
        return is_supported(FIELDS[name], self._condition)

    def _condition(self, name: str) -> int | bool | None:
        if name == COHERENT:
            return self.coherent
        if name == ELSFP:
            return self.number("identifier") == ELSFP_IDENTIFIER
        value = self.value(name)
        return value if isinstance(value, int) else None

    @cached_property
    def flat(self) -> bool:
        """Whether only the lower memory and page 00h exist."""
        return bool(self.number("flat_memory"))

    @cached_property
    def revision(self) -> tuple[int, int]:
        """Major and minor CMIS revision."""
        return divmod(self.number("cmis_revision"), 16)

    @cached_property
    def tunable(self) -> bool:
        """Whether the module has a tunable laser with pages 04h and 12h."""
        return not self.flat and bool(self.number("transmitter_tunable"))

    @cached_property
    def signal(self) -> str:
        """What the media lanes carry, for messages: ``light``, or ``signal`` for copper cables."""
        return "signal" if self.number("media_technology") in interface_ids.COPPER_TECHNOLOGIES else "light"

    @cached_property
    def coherent(self) -> bool:
        """Whether the module has the C-CMIS pages (33h to 35h)."""
        if self.flat:
            return False
        single_mode = self.number("media_type") == codes.MediaType.SMF
        by_media = single_mode and any(item.media_id in interface_ids.COHERENT_MEDIA for item in self.applications)
        # Not all revisions of the standard have a bit for C-CMIS, so the pages must exist.
        tunable = self.number("media_technology") in interface_ids.TUNABLE_TECHNOLOGIES
        return by_media or (tunable and self._has_page(0x34, 0) and self._has_page(0x35, 0))

    @cached_property
    def applications(self) -> tuple[Application, ...]:
        """Applications that the module advertises and that use at least one host lane."""
        result = []
        for number in range(1, N_APPLICATIONS + 1):
            prefix = "application" if number <= _IN_LOWER_MEMORY else "more_application"
            host = self.value(f"{prefix}_host_interface", number)
            # FFh ends the list (CMIS, application descriptors).
            if host is None or host == interface_ids.END_OF_APPLICATIONS:
                break
            if self.number(f"{prefix}_host_lane_count", number):
                result.append(self._application(prefix, number))
        return tuple(result)

    def _application(self, prefix: str, number: int) -> Application:
        media_id = self.number(f"{prefix}_media_interface", number)
        host_id = self.number(f"{prefix}_host_interface", number)
        return Application(
            number=number,
            host_interface=codes.describe("host_interface", host_id),
            media_interface=codes.describe_media_interface(self.number("media_type"), media_id),
            host_lanes=self.number(f"{prefix}_host_lane_count", number),
            media_lanes=self.number(f"{prefix}_media_lane_count", number),
            first_host_lanes=self._lanes(self.number(f"{prefix}_host_lane_options", number)),
            first_media_lanes=self._lanes(self.number("application_media_lane_options", number)),
            media_id=media_id,
            host_id=host_id,
        )

    def _lanes(self, options: int) -> tuple[int, ...]:
        # The options of an application are the same in every bank (assumed).
        lanes = range(LANES * self.n_banks)
        return tuple(lane + 1 for lane in lanes if options >> lane % LANES & 1)

    @cached_property
    def media_lanes(self) -> tuple[int, ...]:
        """Media lanes that an application can use; all if unknown."""
        lanes = {
            lane
            for application in self.applications
            for first in application.first_media_lanes
            for lane in range(first, first + application.media_lanes)
            if lane <= LANES * self.n_banks
        }
        return tuple(sorted(lanes)) or tuple(range(1, LANES * self.n_banks + 1))

    @cached_property
    def durations_s(self) -> Mapping[str, float | None]:
        """Maximum duration in s of each of the ``STAGES``; ``None`` if unknown."""
        duration_codes = {stage: self.value(f"max_duration_{stage}") for stage in STAGES}
        return {stage: duration_s(code) if isinstance(code, int) else None for stage, code in duration_codes.items()}

    @cached_property
    def grids(self) -> LaserGrids:
        """Frequency grids, channel ranges and fine-tuning range of the laser; empty for lasers that cannot be tuned."""
        half = self._half(0x04) if self.tunable else None
        return LaserGrids() if half is None else laser_grids(half)

    @cached_property
    def tx_power_limits_dbm(self) -> tuple[float, float] | None:
        """Minimum and maximum setting of the output power, in dBm."""
        low, high = self.value("min_output_power"), self.value("max_output_power")
        if not self.supported("target_output_power") or not isinstance(low, (int, float)):
            return None
        return (float(low), float(high)) if isinstance(high, (int, float)) else None

    def identity(self) -> TransponderIdentity:
        """Return the identity of the module."""
        wavelength = self.value("nominal_wavelength")
        application = self.applications[0] if self.applications else None
        technology = codes.describe("technology", self.number("media_technology"))
        if application is not None and application.media_id:
            technology = f"{application.media_interface} ({technology})"
        wavelength_nm = float(wavelength) if isinstance(wavelength, (int, float)) else 0.0
        # Tunable modules may set the nominal wavelength to 0; the middle of the grid is used instead.
        if not wavelength_nm and self.grids.channels:
            grid, (low, high) = next(iter(self.grids.channels.items()))
            centre_mhz = (reported_mhz(grid, low) + reported_mhz(grid, high)) / 2
            wavelength_nm = SPEED_OF_LIGHT_M_PER_S / centre_mhz * 1e3
        return TransponderIdentity(
            vendor=self.text("vendor_name"),
            part_number=self.text("part_number"),
            revision=self.text("vendor_revision"),
            serial=self.text("serial_number"),
            date_code=self.text("date_code"),
            technology=technology,
            wavelength_nm=wavelength_nm,
        )

    def ber_limit(self, media_id: int) -> float | None:
        """Return the maximum pre-FEC bit error ratio that a media interface can correct; ``None`` if unknown."""
        single_mode = self.number("media_type") == codes.MediaType.SMF
        return interface_ids.FEC_LIMITS.get(media_id) if single_mode else None

    def capabilities(
        self, statistics: bool, loopbacks: tuple[str, ...], performance: Mapping[str, str]
    ) -> TransponderCapabilities:
        """Return the capabilities of the module."""
        fine = self.grids.fine
        return TransponderCapabilities(
            applications=self.applications,
            tunable=self.tunable,
            coherent=self.coherent,
            tuning=tuple(
                TuningRange(
                    grid=codes.describe("grid", grid),
                    spacing_ghz=float(GRIDS[grid].spacing_mhz) / 1e3,
                    min_thz=reported_mhz(grid, low) / 1e6,
                    max_thz=reported_mhz(grid, high) / 1e6,
                )
                for grid, (low, high) in self.grids.channels.items()
            ),
            fine_tuning_ghz=None
            if fine is None
            else (fine.low_mhz / 1e3, fine.high_mhz / 1e3, fine.resolution_mhz / 1e3),
            tx_power_dbm=self.tx_power_limits_dbm,
            durations_s=self.durations_s,
            monitors=tuple(name for name in _MONITORS if not self.flat and self.number(f"{name}_monitor_supported")),
            loopbacks=loopbacks,
            statistics=statistics,
            performance=performance,
        )
