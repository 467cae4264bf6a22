"""State shared by all drivers of one module."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from lumion_hw.clock import Clock
from lumion_hw.drivers.life_cycle import not_open
from lumion_hw.drivers.transponders.cmis.context import ModuleContext
from lumion_hw.drivers.transponders.cmis.diagnostics import Diagnostics, Vdm
from lumion_hw.drivers.transponders.cmis.performance import PerformanceReader
from lumion_hw.errors import ConnectError
from lumion_hw.links.owner import fork_safe
from lumion_hw.sessions.module.adapter import PinnedAdapter
from lumion_hw.sessions.module.pages import ModulePages


@dataclass(frozen=True)
class OpenModule:
    """An open module with the readers of its optional pages."""

    context: ModuleContext
    vdm: Vdm
    diagnostics: Diagnostics
    performance: PerformanceReader


class SharedModule:
    """One module, shared by its driver and the drivers of its data paths.

    Args:
        pages: Access to the module.
        clock: Clock for time-outs.
        pins: Adapter with the low-speed signals of the socket, if there is one.

    Attributes:
        changing: Lock held during changes of the module.
        opened: Content read when the module was opened; ``None`` if it is not open.
        emitting: First host lanes of the data paths that were switched on since the module was opened.
    """

    def __init__(self, pages: ModulePages, clock: Clock, device: str, pins: PinnedAdapter | None) -> None:
        self.pages = pages
        self.clock = clock
        self.device = device
        self.pins = pins
        self.changing = fork_safe(threading.RLock())
        self.opened: OpenModule | None = None
        self.emitting: set[int] = set()

    def parts(self) -> OpenModule:
        """Return the content read when the module was opened. Raises ``ConnectError`` if the module is not open."""
        if self.opened is None:
            raise self.not_open()
        return self.opened

    def not_open(self) -> ConnectError:
        """Return the error for a call on a module that is not open."""
        return not_open("the module", self.device, self.pages.name)

    @contextlib.contextmanager
    def operation(self) -> Iterator[ModuleContext]:
        """Lock the module for a change by one thread."""
        with self.changing:
            yield self.parts().context
