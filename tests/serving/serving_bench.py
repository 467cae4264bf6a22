"""The small bench, emulated on wires and served, for tests with remote clients."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from lumion_hw.bench.bench import Bench, load
from lumion_hw.bench.emulated import emulated_on_wires
from lumion_hw.emulator.assembly import EmulatedBench
from lumion_hw.links.address import open_link
from lumion_hw.remote.pv_names import client_conf, parse_address
from lumion_hw.serving.owner import BenchOwner
from lumion_hw.serving.pva import PvaServer
from tests.recorded_calibration import RECORD, SEED
from tests.waiting import PatientClock

SMALL = Path(__file__).parents[1] / "data" / "small.yaml"


@dataclass
class Served:
    """A served bench and its emulator."""

    owner: BenchOwner
    server: PvaServer
    emulated: EmulatedBench
    directory: Path

    @property
    def address(self) -> str:
        return self.server.address

    @property
    def port(self) -> int:
        return parse_address(self.address)[1]

    def client(self) -> Any:
        """Return a p4p client with the default configuration except for the address."""
        from p4p.client.thread import Context

        return Context("pva", conf=client_conf("127.0.0.1", self.port) | {"EPICS_PVA_CONN_TMO": "30"}, useenv=False)

    @staticmethod
    def rpc(context: Any, name: str, timeout: float = 60.0, **arguments: Any) -> Any:
        """Call an RPC of the served bench with text arguments, as the p4p command line does."""
        from p4p.nt import NTURI

        uri = NTURI([(key, "s") for key in arguments])
        return context.rpc(f"small:{name}", uri.wrap(name, kws=arguments), timeout=timeout)


def refused(match: str) -> Any:
    """Expect that a p4p client gets an error. Imports p4p here, because the import takes a second."""
    from p4p.client.thread import RemoteError

    return pytest.raises(RemoteError, match=match)


def _without_controllers(file: Path, directory: Path) -> Path:
    document = yaml.safe_load(file.read_text(encoding="utf-8"))
    for entry in document["wiring"]["inputs"]:
        document["devices"].pop(entry.pop("polarization"), None)
    path = directory / "aligned.yaml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path


@contextlib.contextmanager
def serving(
    directory: Path,
    *,
    file: Path = SMALL,
    seed: int = SEED,
    record: Path | None = RECORD,
    fabric: bool = False,
    aligned: bool = False,
    **options: Any,
) -> Iterator[Served]:
    """Serve an emulated bench. If ``aligned``, its fibres keep TE light, and it has no polarization controllers.

    To align three inputs takes 15 s, because the wires of the controllers are slow.
    """
    model, clock = load(_without_controllers(file, directory) if aligned else file), PatientClock()
    with emulated_on_wires(model, seed) as (emulated, addresses):
        for chain in emulated.world.chains if aligned else ():
            chain.launch = np.array([1.0, 0.0], dtype=np.complex128)
            chain.fibre_in = chain.fibre_out = np.eye(2, dtype=np.complex128)

        def open_bench() -> Bench:
            return Bench(model, lambda name, _device: open_link(addresses[name], clock), clock, emulated)

        off = {"heaters_off_on_loss": options.pop("heaters_off_on_loss", False)}
        with (
            BenchOwner.open(open_bench, directory, record=record, fabric=fabric, **off) as owner,
            PvaServer(owner, **options) as server,
        ):
            yield Served(owner, server, emulated, directory)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The served bench of a test module; while open it uses a tenth of a core to read its devices."""
    with serving(tmp_path_factory.mktemp("served")) as found:
        yield found


@pytest.fixture
def client(served: Served) -> Iterator[Any]:
    context = served.client()
    yield context
    context.close()


@pytest.fixture
def lease(served: Served) -> Iterator[Callable[[Any, str], None]]:
    """A function that takes the lease for a client; the lease is released after the test."""
    holders = []

    def take(context: Any, owner: str) -> None:
        context.put("small:lease:owner", owner)
        holders.append(context)

    yield take
    for context in holders:
        with contextlib.suppress(Exception):
            context.put("small:lease:owner", "")
