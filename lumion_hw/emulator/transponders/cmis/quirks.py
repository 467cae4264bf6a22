"""Ways of real modules that a host has to live with: chosen when the module is made."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from lumion_hw.emulator.transponders.cmis.profile import Timing


@dataclass(frozen=True)
class ModuleQuirks:
    """Options, each seen in the field (facts, transponders 2.3, 3.7, 4.1, 4.3); the defaults follow the standard.

    Attributes:
        lenient_writes: Accept writes of any length on every page; otherwise more than 8 bytes are not acknowledged,
            except on the CDB pages.
        stepped_config_only: A data path has to be deactivated before it is configured (00h:2.6).
        inverted_deinit: CMIS 3: a 1 in 10h:128 powers the data path up.
        ignores_low_power: Low power requests have no effect (modules of power class 1).
        init_pending_s: DPInitPending is visible for no longer than this.
        init_pending_clobbers: Raising DPInitPending for one data path clears it for the others.
        password_protects_eeprom: Page 03h can be written only after the password.
        refuses_page_silently: PageSelect keeps the number of an unsupported page, whose bytes read as 0.
        page_change_s: The module does not answer for so long after a page change (boards in the field: 10 ms).
        nv_write_s: The same after a write to the user EEPROM (80 ms).
        apply_s: ConfigStatus stays in progress for so long; ``None`` is the profile's time.
    """

    lenient_writes: bool = False
    stepped_config_only: bool = False
    inverted_deinit: bool = False
    ignores_low_power: bool = False
    init_pending_s: float | None = None
    init_pending_clobbers: bool = False
    password_protects_eeprom: bool = False
    refuses_page_silently: bool = False
    page_change_s: float = 0.0
    nv_write_s: float = 0.0
    apply_s: float | None = None

    def timing(self, timing: Timing) -> Timing:
        """Return a profile's times with those that are chosen here."""
        apply_s = timing.apply_s if self.apply_s is None else self.apply_s
        return dataclasses.replace(
            timing, page_change_s=self.page_change_s, nv_write_s=self.nv_write_s, apply_s=apply_s
        )
