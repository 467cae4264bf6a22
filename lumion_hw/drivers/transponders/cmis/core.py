"""An open CMIS module: the way to it, its identity, and the turns of those who change it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from lumion_hw.clock import Clock
from lumion_hw.drivers.life_cycle import Driver, closed_if_failed, not_open
from lumion_hw.drivers.transponders.cmis.context import ModuleContext
from lumion_hw.drivers.transponders.cmis.diagnostics import Diagnostics
from lumion_hw.drivers.transponders.cmis.opening import open_module
from lumion_hw.drivers.transponders.cmis.performance import PerformanceReader
from lumion_hw.drivers.transponders.cmis.vdm import Vdm
from lumion_hw.errors import ConnectError
from lumion_hw.interfaces import (
    TransponderCapabilities,
    TransponderIdentity,
)
from lumion_hw.links.owner import fork_safe
from lumion_hw.sessions.i2c_adapter import ModulePins
from lumion_hw.sessions.module_pages import ModulePages
from lumion_hw.sessions.paged_i2c import PagedI2c
from lumion_hw.sessions.register_access import I2cDevice, ModuleAbsentError


class OpenModule(Driver):
    """What the driver's parts build on: opening, closing, identity. See ``CmisTransponder`` for the arguments."""

    def __init__(
        self,
        link: I2cDevice | ModulePages,
        clock: Clock,
        *,
        device: str = "transponder",
        expected_vendor: str | None = None,
        expected_part_number: str | None = None,
        expected_serial: str | None = None,
        quirks: Mapping[str, Any] | None = None,
        bank: int = 0,
        lane: int = 1,
        hold_off_s: float = 0.0,
        pins: ModulePins | None = None,
    ) -> None:
        self._pages: ModulePages
        if isinstance(link, ModulePages):
            self._pages = link
        else:
            self._pages = PagedI2c(link, clock, device=device, hold_off_s=hold_off_s)
        self._clock = clock
        self._device = device
        self._expected = {
            "vendor": expected_vendor,
            "part_number": expected_part_number,
            "serial": expected_serial,
        }
        self._quirks = dict(quirks or {})
        self._bank = bank
        self._lane = lane
        self._pins = pins
        self._changing = fork_safe(threading.RLock())
        self._module: ModuleContext | None = None
        self._lit_here = False

    # -- opening and closing

    def open(self) -> None:
        """Open the way to the module and read its identity, what it advertises, and what its optional pages list.

        Raises:
            ConnectError: The way cannot be opened.
            ModuleAbsentError: No module.
            NotRespondingError: The module does not answer within its start-up time.
            IdentityError: Another module than expected, or one that is not managed by CMIS.
        """
        with self._changing, closed_if_failed(self.close):
            self._pages.open()
            if self._pins is not None and "mod_prs_l" in self._pins.wired and not self._pins.is_asserted("mod_prs_l"):
                raise ModuleAbsentError(
                    "ModPrsL is high: no module in the socket",
                    device=self._device,
                    address=self._pages.name,
                    hint="Plug it in; if there is one, check which pin ModPrsL is wired to.",
                )
            module = open_module(self._pages, self._clock, self._device, self._bank, self._expected, self._quirks)
            self._vdm = Vdm(module)
            self._diagnostics = Diagnostics(module)
            self._performance = PerformanceReader(module, self._vdm, self._diagnostics, self._lane)
            self._module = module

    def close(self) -> None:
        """Release the way to the module; idempotent, never raises. The transmitter is left as it is."""
        self._module = None
        self._pages.close()

    # -- who and what it is

    def identify(self) -> TransponderIdentity:
        """Read the identity anew and compare it with the one that was opened. Raises ``IdentityError``."""
        module = self._opened
        module.guard()
        return module.identity

    @property
    def is_flat(self) -> bool:
        """Whether the module has only the lower memory and page 00h, as cables have."""
        return self._opened.advertised.flat

    def capabilities(self) -> TransponderCapabilities:
        """Return what the module says of itself."""
        module = self._opened
        module.memory.number("cmis_revision")  # a module that is gone has no capabilities
        loopbacks, performance = self._diagnostics.loopbacks, self._performance.units()
        return module.advertised.capabilities(self._vdm.has_statistics, loopbacks, performance)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What went wrong without stopping anything, since the module was opened."""
        return tuple(self._opened.warnings)

    # -- inside

    @property
    def _opened(self) -> ModuleContext:
        if self._module is None:
            raise self._not_open()
        return self._module

    def _not_open(self) -> ConnectError:
        return not_open("the module", self._device, self._pages.name)

    @contextlib.contextmanager
    def _operation(self) -> Iterator[ModuleContext]:
        """Let one thread change the module at a time."""
        with self._changing:
            yield self._opened
