"""The small bench, its emulation, and links that say whether somebody still holds them."""

from pathlib import Path

from lumion_hw.bench.bench import Bench, load
from lumion_hw.bench.emulated import emulated_bench
from lumion_hw.clock import VirtualClock
from lumion_hw.errors import ConnectError, LumionError
from lumion_hw.testing.wires import DisturbedLink

SMALL = Path(__file__).parents[1] / "data" / "small.yaml"
SMALL_DEVICES = {"mesh0", "meter0", "sfp-a", "sfp-b", "sfp-c", "pol-a", "pol-b", "pol-c"}


class HeldLink(DisturbedLink):
    """A link that can be cut, refused or interrupted, and knows whether it is open."""

    def __init__(self, link, clock, on_open=None) -> None:
        super().__init__(link, clock)
        self._on_open = on_open
        self.held = False

    def open(self, deadline: float) -> None:
        if self._on_open is not None:
            raise self._on_open
        super().open(deadline)
        self.held = True

    def close(self) -> None:
        super().close()
        self.held = False


class SmallBench:
    """The small bench on virtual time; some of its links may fail to open."""

    def __init__(self, seed: int = 0) -> None:
        self.clock = VirtualClock()
        self.model = load(SMALL)
        self.emulated = emulated_bench(self.model, self.clock, seed)
        self.board = self.emulated.faults.board("mesh0")
        self.links: dict[str, HeldLink] = {}
        self.failing: dict[str, BaseException] = {}

    def open(self, model=None) -> Bench:
        return Bench(model or self.model, self.link, self.clock, self.emulated)

    def refuse(self, *devices: str, error: type[LumionError] = ConnectError) -> None:
        for device in devices:
            self.failing[device] = error("connection refused", device=device, address=f"test://{device}")

    @property
    def held(self) -> set[str]:
        return {name for name, link in self.links.items() if link.held}

    def link(self, name, device) -> HeldLink:
        self.links[name] = HeldLink(self.emulated.link(name), self.clock, self.failing.get(name))
        return self.links[name]
