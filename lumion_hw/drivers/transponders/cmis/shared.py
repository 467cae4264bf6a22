"""What all drivers of one module share: the way to it, who may change it, and what was read when it was opened."""

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
    """An open module, and the parts that read its optional pages."""

    context: ModuleContext
    vdm: Vdm
    diagnostics: Diagnostics
    performance: PerformanceReader


class SharedModule:
    """One module, for the driver of the whole and those of its data paths.

    Args:
        pages: The way to the module.
        clock: Measures deadlines.
        device: Device name, for messages.
        pins: Low-speed signals of the socket, where an adapter has them.

    Attributes:
        changing: Held while a thread changes the module.
        opened: What was read when the module was opened; ``None`` while it is not open. Assigned as a whole, so that
            a thread that finds the module open finds all of it.
        lit: First host lanes of the data paths that were switched on since the module was opened.
    """

    def __init__(self, pages: ModulePages, clock: Clock, device: str, pins: PinnedAdapter | None) -> None:
        self.pages = pages
        self.clock = clock
        self.device = device
        self.pins = pins
        self.changing = fork_safe(threading.RLock())
        self.opened: OpenModule | None = None
        self.lit: set[int] = set()

    def parts(self) -> OpenModule:
        """Return what was read when the module was opened. Raises ``ConnectError`` while it is not open."""
        if self.opened is None:
            raise self.not_open()
        return self.opened

    def not_open(self) -> ConnectError:
        """Return the error for a call while the module is not open."""
        return not_open("the module", self.device, self.pages.name)

    @contextlib.contextmanager
    def operation(self) -> Iterator[ModuleContext]:
        """Let one thread change the module at a time."""
        with self.changing:
            yield self.parts().context
