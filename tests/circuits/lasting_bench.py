"""An emulated bench that outlives the programs that open it, like hardware does; all in virtual time."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lumion_hw import Bench, VirtualClock, save_record
from lumion_hw.bench.bench import load, with_leave_on
from lumion_hw.bench.emulated import emulated_bench
from lumion_hw.circuits import CircuitService
from lumion_hw.circuits.service import switch_heaters_off
from tests.circuits.known_mesh import SMALL, record_of_truth

HOLD_S = 600.0


class LastingBench:
    """The small bench; each :meth:`service` is a program of its own."""

    def __init__(self, directory: Path, file: Path = SMALL, seed: int = 5) -> None:
        self.clock = VirtualClock()
        self.file_model = self.model = with_leave_on(load(file), HOLD_S)
        self.emulated = emulated_bench(self.model, self.clock, seed)
        self.record, self.directory = directory / "record.json", directory / "state"
        with self.open() as bench:
            save_record(record_of_truth(bench), self.record)

    def forget(self) -> None:
        """Start again: heaters off, no journal, the original bench file."""
        self.model = self.file_model
        with self.open() as bench:
            switch_heaters_off(bench)
        shutil.rmtree(self.directory, ignore_errors=True)

    def open(self) -> Bench:
        return Bench(self.model, lambda name, _: self.emulated.link(name), self.clock, self.emulated)

    def service(self, **options: object):
        return CircuitService.open(self.open, self.record, self.directory, **options)

    @property
    def journal(self) -> Path:
        return self.directory / "circuits.jsonl"

    def driven_ma(self) -> NDArray[np.float64]:
        """The present heater currents."""
        driven: NDArray[np.float64] = self.emulated.world.chip.driven_ma
        return driven.copy()

    def killed_at(self, milestone: str, act: Callable[[CircuitService, Callable[[str], None]], object]) -> None:
        """Leave journal and mesh in the state after a program is killed with signal 9 at a milestone of ``act``."""
        files, driven_ma = self.directory.with_name("killed"), []

        def tell(name: str) -> None:
            if name == milestone and not driven_ma:
                shutil.copytree(self.directory, files)
                driven_ma.append(self.driven_ma())

        with self.service() as service:
            act(service, tell)
        assert driven_ma, f"{milestone} was never told"
        with self.open() as bench:
            bench.mesh.program(driven_ma[0])
        shutil.rmtree(self.directory)
        files.rename(self.directory)
