"""Several emulated boards in memory, and the controller that combines them."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from lumion_hw import VirtualClock
from lumion_hw.drivers.mesh.combined import CombinedController
from lumion_hw.drivers.mesh.lumion.controller import LumionMeshController
from lumion_hw.emulator.mesh.lumion import BoardProfile, MeshBoard
from lumion_hw.interfaces import ControllerLimits
from lumion_hw.links.base import Link
from lumion_hw.links.memory import MemoryLink

FULL_SCALE_MA, MONITOR_FULL_SCALE_MA = 10.0, 1.0
OHM = 1000.0


class Boards:
    """Boards with the given numbers of heaters and monitors.

    Attributes:
        driven_ma: Currents of each board.
        photocurrent_ma: Photocurrents of each board.
    """

    def __init__(self, heaters: Sequence[int] = (4, 3, 5), monitors: Sequence[int] = (2, 1, 3), clock=None) -> None:
        self.clock, self.heaters = clock or VirtualClock(), heaters
        self.driven_ma = [np.zeros(n) for n in heaters]
        self.photocurrent_ma = [0.1 * (number + 1) + 0.01 * np.arange(n) for number, n in enumerate(monitors)]
        self.boards = [
            self._board(number, *counts) for number, counts in enumerate(zip(heaters, monitors, strict=True))
        ]

    def _board(self, number: int, n_heaters: int, n_monitors: int) -> MeshBoard:
        def drive(currents_ma: NDArray[np.float64], at_s: float) -> None:
            self.driven_ma[number] = currents_ma.copy()

        return MeshBoard(
            f"mesh{number}",
            self.clock,
            np.random.default_rng(number),
            drive=drive,
            sense_ma=lambda n_avg, at_s: self.photocurrent_ma[number],
            profile=BoardProfile(
                n_dac=n_heaters,
                n_adc=n_monitors,
                dac_full_scale=round(FULL_SCALE_MA * 1e3),
                adc_full_scale=round(MONITOR_FULL_SCALE_MA * 1e6),
                serial=f"BOARD-{number}",
            ),
        )

    @property
    def whole_ma(self) -> NDArray[np.float64]:
        """Currents of all boards."""
        return np.concatenate(self.driven_ma)

    def links(self) -> list[Link]:
        """Return a new link to each board."""
        return [MemoryLink(board.connect, self.clock, board.name) for board in self.boards]

    def controller(self, links: Sequence[Link] = (), configured: ControllerLimits | None = None) -> CombinedController:
        """Open all boards."""
        parts = {
            board.name: LumionMeshController(link, self.clock, device=board.name)
            for board, link in zip(self.boards, links or self.links(), strict=True)
        }
        for part in parts.values():
            part.open()
        controller = self.combined(parts)
        if configured is not None:
            controller.configure(configured)
        return controller

    def combined(self, parts: Mapping[str, LumionMeshController]) -> CombinedController:
        """Return open boards as one controller, limited by their full scale."""
        whole = [ControllerLimits(np.full(n, FULL_SCALE_MA), np.full(n, OHM), 1e6) for n in self.heaters]
        return CombinedController(parts, whole, self.clock, device="+".join(parts))

    def limits(self, max_ma: float = 5.0, total_power_mw: float = 1000.0) -> ControllerLimits:
        """Return equal limits of all heaters."""
        n = sum(self.heaters)
        return ControllerLimits(np.full(n, max_ma), np.full(n, OHM), total_power_mw)
