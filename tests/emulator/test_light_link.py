"""Light between emulated meshes in several processes, carried by UDP on loopback."""

import json
import socket
from collections.abc import Callable, Iterator

import pytest

from lumion_hw.bench import load_bench
from lumion_hw.bench.emulated import emulated_bench
from lumion_hw.clock import VirtualClock
from lumion_hw.emulator.assembly import EmulatedBench
from lumion_hw.emulator.optics.joined_fibres import JoinedFibre
from lumion_hw.emulator.wires.light_link import LightLink
from lumion_hw.errors import ConnectError, InUseError
from lumion_hw.interfaces.wiring import FibreEnds
from tests.joined.two_racks import JOINED

FIBRE = JoinedFibre("rack0", 6, "spine", 0, 3.0)


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def rack(clock: VirtualClock) -> EmulatedBench:
    bench = emulated_bench(load_bench(JOINED.with_name("rack0.yaml")), clock, 3, ends=FibreEnds((), (6,)))
    bench.world.set_transmitter("sfp-b", 0.0)
    return bench


@pytest.fixture
def spine(clock: VirtualClock) -> EmulatedBench:
    return emulated_bench(load_bench(JOINED.with_name("spine.yaml")), clock, 3, ends=FibreEnds((0,), ()))


@pytest.fixture
def links(
    rack: EmulatedBench, spine: EmulatedBench, clock: VirtualClock
) -> Iterator[tuple[LightLink, LightLink, dict[str, int]]]:
    ports = {"rack0": free_port(), "spine": free_port()}
    first = LightLink("rack0", rack.world, [FIBRE], ports, clock)
    second = LightLink("spine", spine.world, [FIBRE], ports, clock)
    yield first, second, ports
    first.close()
    second.close()


def passing(links: tuple[LightLink, LightLink, dict[str, int]], clock: VirtualClock, for_s: float = 0.1) -> None:
    """Let both emulators run for a while."""
    end_s = clock.now() + for_s
    while clock.now() < end_s:
        clock.sleep(0.01)
        for link in links[:2]:
            link.advance()


def test_light_arrives_with_the_loss_of_the_fibre_and_its_origin(links, rack, spine, clock) -> None:  # type: ignore[no-untyped-def]
    rack.world.set_transmitter("sfp-a", 1e-3)
    passing(links, clock)
    (sent,) = links[0].ends.leaving([6])[6]
    (arrived,) = links[1].ends.arriving(0)
    assert sent.origin == arrived.origin == "rack0:sfp-a"
    assert arrived.wavelength_nm == pytest.approx(sent.wavelength_nm)
    assert arrived.power_w == pytest.approx(sent.power_w * 10**-0.3, rel=1e-4)
    assert [name for name, _, _ in spine.world.leaving_lines_w()] == ["port0"]
    rack.world.set_transmitter("sfp-a", 0.0)
    passing(links, clock)
    assert not spine.world.leaving_lines_w()


def test_the_fibre_is_dark_when_the_other_emulator_has_ended(links, rack, spine, clock) -> None:  # type: ignore[no-untyped-def]
    rack.world.set_transmitter("sfp-a", 1e-3)
    passing(links, clock)
    assert spine.world.leaving_lines_w()
    links[0].close()
    for _ in range(3):
        clock.sleep(0.6)
        links[1].advance()
    assert not spine.world.leaving_lines_w()


def test_light_is_sent_again_to_an_emulator_that_starts_later(rack, spine, clock) -> None:  # type: ignore[no-untyped-def]
    ports = {"rack0": free_port(), "spine": free_port()}
    first = LightLink("rack0", rack.world, [FIBRE], ports, clock)
    rack.world.set_transmitter("sfp-a", 1e-3)
    for _ in range(5):
        clock.sleep(0.01)
        first.advance()
    second = LightLink("spine", spine.world, [FIBRE], ports, clock)
    passing((first, second, ports), clock, 0.5)
    assert spine.world.leaving_lines_w()
    first.close()
    second.close()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\x00",
        b"[]",
        b'{"bench": 5, "light": {}}',
        json.dumps({"bench": "rack0", "light": {"6": [["x", 1e9, 1550.0]]}}).encode(),
        json.dumps({"bench": "rack0", "light": {"6": [["x", True, 1550.0], ["x"], 5]}}).encode(),
        json.dumps({"bench": "rack0", "light": {"6": 5}}).encode(),
        json.dumps({"bench": "rack9", "light": {"6": [["x", 1e-3, 1550.0]]}}).encode(),
        b'{"bench": "rack0", "light": {"6": [["x", NaN, 1550.0]]}}',
    ],
)
def test_other_bytes_at_the_port_make_no_light(links, spine, clock, data: bytes) -> None:  # type: ignore[no-untyped-def]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(data, ("127.0.0.1", links[2]["spine"]))
    clock.sleep(0.01)
    links[1].advance()
    assert not spine.world.leaving_lines_w()


def test_a_used_port_is_reported_and_the_link_has_no_connections(links, rack, clock) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InUseError, match="change emulated_port in the file of joined meshes"):
        LightLink("rack0", rack.world, [FIBRE], links[2], clock)
    refuse: Callable[[], object] = links[0].connect
    with pytest.raises(ConnectError):
        refuse()
