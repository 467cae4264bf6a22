"""A host that writes anything anywhere: only allowed transitions, correct statuses, no cross-talk, no crash."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from lumion_hw.clock import VirtualClock
from lumion_hw.emulator.transponders.cmis import FAULTS, PROFILES, ReceivedLight
from lumion_hw.emulator.transponders.cmis.memory import upper_pages
from lumion_hw.errors import LinkError
from lumion_hw.standards.cmis import byte_access
from tests.emulator.transponders.cmis_testbench import GOOD_LIGHT, Host

# CMIS 6.3.2 and 6.3.3; a reset leads to 1 from anywhere, a fault to 5 and to 1 of the paths
MODULE_STEPS = {(1, 2), (2, 3), (2, 4), (3, 4), (4, 1)}
PATH_STEPS = {(1, 2), (2, 3), (2, 7), (3, 1), (7, 3), (7, 5), (5, 6), (5, 4), (4, 6), (6, 7)}
MAX_HOPS = 7
"""Largest number of transitions between two checks."""


def closure(steps: set[tuple[int, int]], hops: int) -> set[tuple[int, int]]:
    """Return the pairs of states that at most ``hops`` steps connect, and every state with itself."""
    states = {state for step in steps for state in step}
    reached = {(state, state) for state in states}
    for _ in range(hops):
        reached |= {
            (first, last) for (first, middle), (same, last) in itertools.product(reached, steps) if middle == same
        }
    return reached


REACHABLE_MODULE = closure(MODULE_STEPS, MAX_HOPS)
REACHABLE_PATH = closure(PATH_STEPS, MAX_HOPS)
PAGES = [
    0x00,
    0x01,
    0x02,
    0x03,
    0x04,
    0x10,
    0x11,
    0x12,
    0x13,
    0x14,
    0x20,
    0x24,
    0x28,
    0x2C,
    0x2D,
    0x2F,
    0x30,
    0x33,
    0x34,
    0x9F,
]
INTERESTING = [
    *((0x10, byte) for byte in (128, 130, 132, 138, 143, 144, *range(145, 153), 178, 213)),
    *((0x12, byte) for byte in (128, 136, 137, 152, 153, 200, 201, 231, 239)),
    (None, 26), (None, 31), (0x13, 180), (0x13, 168), (0x13, 172), (0x14, 128), (0x2F, 144), (0x9F, 128), (0x9F, 129),
]  # fmt: skip


class RandomHost(RuleBasedStateMachine):
    """One module that receives random writes, and an untouched module next to it."""

    @initialize(profile=st.sampled_from(sorted(PROFILES)), pin=st.booleans(), seed=st.integers(0, 99))
    def insert(self, profile: str, pin: bool, seed: int) -> None:
        self.clock = VirtualClock()
        self.poked = Host(profile, clock=self.clock, seed=seed, low_power_pin=pin, time_scale=0.02)
        self.bystander = Host(profile, clock=self.clock, seed=seed + 100, low_power_pin=True)
        self.poked.light = self.bystander.light = dict.fromkeys(range(1, 5), GOOD_LIGHT)
        self.module = self.poked.module
        self.judged = 0
        self.clock.sleep(1.0)
        self.controls = self.rest()
        self.before = self.look()
        self.disturbed = False

    # rules

    @rule(place=st.sampled_from(INTERESTING), value=st.integers(0, 255))
    def write_control(self, place: tuple[int | None, int], value: int) -> None:
        self.attempt(place[0], place[1], bytes([value]))

    @rule(page=st.sampled_from([None, *PAGES]), offset=st.integers(0, 127), data=st.binary(max_size=12))
    def write_anything(self, page: int | None, offset: int, data: bytes) -> None:
        self.attempt(page, offset + (0 if page is None else 128), data)

    @rule(data=st.binary(min_size=1, max_size=8), offset=st.integers(120, 127))
    def write_across_page_select(self, data: bytes, offset: int) -> None:
        self.attempt(None, offset, data)

    @rule(first=st.sampled_from([1, 3, 5, 7]), app=st.integers(0, 4), mask=st.sampled_from([0xFF, 0x03, 0x0C, 0xF0]))
    def configure(self, first: int, app: int, mask: int) -> None:
        count = {1: 8, 4: 4}.get(app, 2)
        value = app << 4 | (first - 1) << 1
        for lane in range(first, min(first + count, 9)):
            self.attempt(0x10, 144 + lane, bytes([value]))
        self.attempt(0x10, 143, bytes([mask]))

    @rule(on=st.booleans())
    def start_or_stop(self, on: bool) -> None:
        self.attempt(None, 26, b"\x00")
        self.attempt(0x10, 128, b"\x00" if on else b"\xff")
        self.attempt(0x10, 130, b"\x00" if on else b"\xff")

    @rule(page=st.sampled_from([None, *PAGES]), offset=st.integers(0, 127), length=st.integers(0, 300))
    def read_anything(self, page: int | None, offset: int, length: int) -> None:
        try:
            if page is not None:
                self.poked.select(page)
            assert len(self.module.read(offset + (0 if page is None else 128), length)) == length
        except LinkError:
            pass

    @rule(seconds=st.sampled_from([0.0001, 0.004, 0.05, 0.3, 1.0]))
    def wait(self, seconds: float) -> None:
        self.clock.sleep(seconds)

    @rule(pin=st.booleans())
    def pin(self, pin: bool) -> None:
        self.module.set_low_power_pin(pin)

    @rule()
    def reset(self) -> None:
        self.module.reset()
        self.disturbed = True

    @rule(bright=st.booleans())
    def change_the_light(self, bright: bool) -> None:
        self.poked.light = dict.fromkeys(range(1, 5), GOOD_LIGHT) if bright else ReceivedLight()

    # direct access to the memory: clears no flag and selects no page

    def attempt(self, page: int | None, byte: int, data: bytes) -> None:
        try:
            if page is not None:
                self.poked.select(page)
            self.module.write(byte, data)
        except LinkError:
            pass
        if byte <= 26 < byte + len(data) and page is None and data[26 - byte] & 0x08:
            self.disturbed = True

    def look(self) -> tuple[int, list[int], dict[str, bytes]]:
        image = self.module.image()
        pages = {key: bytes.fromhex(value) for key, value in image["pages"].items()}  # type: ignore[attr-defined]
        pages["lower"] = bytes.fromhex(str(image["lower"]))
        states = [pages["11"][lane // 2] >> 4 * (lane % 2) & 0xF for lane in range(8)]
        return pages["lower"][3] >> 1 & 7, states, pages

    def rest(self) -> list[object]:
        """Return the controls and states of the untouched module."""
        image = self.bystander.module.image()
        pages: dict[str, str] = image["pages"]  # type: ignore[assignment]
        # Not every module has diagnostics (13h), statistics (2Fh) and messages (9Fh).
        return [pages.get(page) for page in ("03", "10", "13", "2F", "9F")] + [self.bystander.module.state]

    @invariant()
    def only_allowed_transitions(self) -> None:
        if not hasattr(self, "module"):
            return
        module_before, paths_before, _ = self.before
        module_now, paths_now, pages = now = self.look()
        if not self.disturbed and module_before and self.module.state is not None:  # 0 while it initialises
            assert (module_before, module_now) in REACHABLE_MODULE
            for before, after in zip(paths_before, paths_now, strict=True):
                assert (before, after) in REACHABLE_PATH
        self.disturbed = False
        self.before = now
        self.every_step_is_allowed()
        self.statuses_are_truthful(module_now, paths_now, pages)

    def every_step_is_allowed(self) -> None:
        """Transitions between two checks are allowed, too; a fault state and resets end all states."""
        for step in self.module.history[self.judged :]:
            pair = (int(step.before or 0), int(step.after or 0))
            if step.machine == "module":
                assert pair in MODULE_STEPS or pair[1] == 0 or pair == (0, 1), step
            else:
                assert pair in PATH_STEPS, step
        self.judged = len(self.module.history)

    def statuses_are_truthful(self, module: int, paths: list[int], pages: dict[str, bytes]) -> None:
        if module not in (3, 4):
            assert set(paths) == {1}, "data paths work without ModuleReady"
        active = pages["11"][206 - 128 : 214 - 128]
        for lane, state in enumerate(paths):
            if active[lane] >> 4 == 0:
                assert state == 1, "an unused lane has a state"
            else:
                assert state == paths[active[lane] >> 1 & 7], "lanes of one path differ"
        statuses = {pages["11"][202 - 128 + lane // 2] >> 4 * (lane % 2) & 0xF for lane in range(8)}
        assert statuses <= {0, 1, 2, 3, 4, 5, 6, 7, 0xC}
        sends = [self.module.light(lane).enabled for lane in range(1, self.lanes() + 1)]
        assert pages["11"][133 - 128] == sum(on << lane for lane, on in enumerate(sends))
        if any(sends):
            assert any(state in (4, 5, 6, 7) for state in paths), "light without an initialised path"
        disable = pages["10"][130 - 128]
        assert not any(on and disable >> lane & 1 for lane, on in enumerate(sends))
        if not any(state in (4, 5, 6, 7) for state in paths):
            assert pages["11"][132 - 128] == 0, "output without an initialised path"

    def lanes(self) -> int:
        return PROFILES[self.module.name].media_lanes

    @invariant()
    def controls_read_back_and_constants_stay(self) -> None:
        if not hasattr(self, "module"):
            return
        _, _, pages = self.before
        for key in ("00", "01", "02"):
            assert pages[key] == self.constants(key)
        for key, half in pages.items():
            access = byte_access(None if key == "lower" else int(key, 16))
            assert all(byte & ~mask == 0 for byte, mask in zip(half, access.defined, strict=True)), key
            assert all(byte & mask == 0 for byte, mask in zip(half, access.reads_zero, strict=True)), key

    def constants(self, key: str) -> bytes:
        image = self.bystander.module.image()
        return bytes.fromhex(image["pages"][key])  # type: ignore[index]

    @invariant()
    def the_bystander_is_untouched(self) -> None:
        if hasattr(self, "bystander"):
            assert self.rest() == self.controls
            assert self.bystander.sent == []


def run(examples: int, steps: int) -> None:
    run_state_machine_as_test(
        RandomHost,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_a_random_host_never_sees_a_forbidden_transition_or_an_untrue_status() -> None:
    run(examples=5, steps=25)


@pytest.mark.parametrize(
    "examples", [pytest.param(8, marks=pytest.mark.long), pytest.param(600, marks=pytest.mark.campaign)]
)
def test_many_random_hosts_never_do(examples: int) -> None:
    run(examples=examples, steps=60)


def writes(profile: str, seed: int) -> Iterator[tuple[int, int, bytes]]:
    """Write every byte of every page, and of some missing pages, in random order with random data."""
    rng = random.Random(seed)
    pages = (*upper_pages(PROFILES[profile]), 0x05, 0x50, 0xB0, 0xFF)
    places = [(page, byte) for page in pages for byte in range(128, 256)] + [(0, byte) for byte in range(128)]
    rng.shuffle(places)
    for page, byte in places:
        yield page, byte, rng.randbytes(rng.choice((1, 1, 2, 4, 8)))


def fuzz(profile: str, seed: int, count: int) -> None:
    host = Host(profile, low_power_pin=False, time_scale=0.05, seed=seed)
    host.light = dict.fromkeys(range(1, 5), GOOD_LIGHT)
    host.wait(5)
    for page, byte, data in itertools.islice(writes(profile, seed), count):
        try:
            host.select(page)
            host.module.write(byte, data)
            host.module.read(byte, 16)
        except LinkError:
            pass
        host.wait(0.02)
    host.module.reset()
    host.wait(60)
    host.select(0x11)
    assert host.module.read(128, 1) == b"\x44"


@pytest.mark.parametrize(
    "profile", ["400zr", *(pytest.param(name, marks=pytest.mark.campaign) for name in PROFILES if name != "400zr")]
)
def test_nonsense_in_any_register_breaks_nothing(profile: str) -> None:
    fuzz(profile, 7, 40)


@pytest.mark.parametrize(
    ("profile", "seed"),
    [
        pytest.param(profile, seed, marks=pytest.mark.long if (profile, seed) == ("400zr", 0) else pytest.mark.campaign)
        for profile in PROFILES
        for seed in range(3)
    ],
)
def test_nonsense_in_all_registers_breaks_nothing(profile: str, seed: int) -> None:
    fuzz(profile, seed, 100_000)


@pytest.mark.parametrize(
    "profile",
    [pytest.param(name, marks=pytest.mark.long if name == "400zr" else pytest.mark.campaign) for name in PROFILES],
)
def test_random_faults_at_random_times_break_nothing(profile: str) -> None:
    rng = random.Random(11)
    host = Host(profile, low_power_pin=False, time_scale=0.02)
    host.light = dict.fromkeys(range(1, 5), GOOD_LIGHT)
    for _ in range(300):
        host.module.faults.inject(rng.choice(sorted(FAULTS)), after_s=rng.uniform(0, 2), lasts_s=rng.uniform(0.01, 2))
        host.wait(rng.uniform(0, 1))
        try:
            host.select(rng.choice(PAGES))
            host.module.read(rng.randrange(256), 128)
            host.module.write(26, bytes([rng.randrange(256) & ~8]))
        except LinkError:
            pass
    host.wait(10)
    assert host.module.faults.active == ()
    host.module.write(26, b"\x08")
    host.wait(5)
    host.select(0x11)
    assert host.module.read(128, 1) == b"\x44"
