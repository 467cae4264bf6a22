"""Two small racks and a spine, emulated in this process on one virtual clock."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from lumion_hw import Bench
from lumion_hw.circuits import CircuitService
from lumion_hw.clock import VirtualClock
from lumion_hw.emulator.optics.joined_fibres import JoinedFibre, JoinedFibres
from lumion_hw.joined import JoinedFile, JoinedMeshes, LocalBench, load_joined
from lumion_hw.joined.journal import JoinedJournal
from lumion_hw.mesh.record.calibration_record import CalibrationRecord
from lumion_hw.storage import save_record
from tests.circuits.known_mesh import record_of_truth

JOINED = Path(__file__).parents[1] / "data" / "joined" / "joined.yaml"
FILE = load_joined(JOINED)
SEED = 3


@cache
def record_of(name: str) -> CalibrationRecord:
    """Return the record that a perfect calibration of a bench would find."""
    with Bench.emulate(JOINED.with_name(f"{name}.yaml"), seed=SEED, ends=FILE.ends_of(name)) as bench:
        return record_of_truth(bench)


def emulated_fibres(file: JoinedFile) -> list[JoinedFibre]:
    """Return the fibres of a file for the emulator."""
    return [
        JoinedFibre(fibre.start.bench, fibre.start.port, fibre.end.bench, fibre.end.port, fibre.loss_db)
        for fibre in file.fibres
    ]


@dataclass
class TwoRacks:
    """The emulated benches, and the programs that use them."""

    folder: Path
    fibres: JoinedFibres
    services: dict[str, CircuitService]
    benches: dict[str, LocalBench]
    clock: VirtualClock
    file: JoinedFile = FILE
    opened: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    @contextlib.contextmanager
    def program(self, name: str = "a") -> Iterator[JoinedMeshes]:
        """Yield the joined meshes as one program sees them; each name has its own journal."""
        with JoinedJournal(self.folder / name, self.file.name) as journal:
            yield JoinedMeshes(self.file, self.benches, journal, self.clock.sleep)

    def names(self) -> dict[str, list[str]]:
        """Return the names of the active circuits of each bench."""
        return {name: [circuit.name for circuit in service.state.circuits] for name, service in self.services.items()}

    def currents(self) -> dict[str, list[float]]:
        """Return the driven heater currents of each bench."""
        return {name: service.setup.bench.mesh.read_back_ma().tolist() for name, service in self.services.items()}

    def are_transmitters_off(self) -> bool:
        """Return whether no module sends light."""
        benches = [service.setup.bench for service in self.services.values()]
        return all(module.status().tx_disabled for bench in benches for module in bench.transponders.values())


@contextlib.contextmanager
def two_racks(folder: Path, file: JoinedFile = FILE, fibres: JoinedFile | None = None) -> Iterator[TwoRacks]:
    """Open two racks and a spine; ``fibres`` are those that really exist, by default those of the file."""
    clock = VirtualClock()
    with contextlib.ExitStack() as stack:
        worlds, services = {}, {}
        for name in file.benches:
            save_record(record_of(name), folder / f"{name}.json", overwrite="any")
            opened = stack.enter_context(
                CircuitService.open(
                    lambda name=name: Bench.emulate(  # type: ignore[misc]
                        JOINED.with_name(f"{name}.yaml"), seed=SEED, clock=clock, ends=file.ends_of(name)
                    ),
                    folder / f"{name}.json",
                    folder / name,
                )
            )
            services[name] = opened
            worlds[name] = opened.setup.bench.emulated.world
            for module in opened.setup.bench.transponders.values():
                module.disable()
        joined = JoinedFibres(worlds, emulated_fibres(fibres or file))
        benches = {name: LocalBench(service) for name, service in services.items()}
        yield TwoRacks(folder, joined, services, benches, clock, file)
