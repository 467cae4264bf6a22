"""The LUMION mesh driver and the emulated controller with a bad wire between them, counted on both sides.

Driver and emulator were written from the same standard by different hands. Here the emulator's own outputs and counters
are the witness: nothing is executed twice, nothing is lost without an error, no table is driven that nobody sent.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import firmware_protocol as fp
from lumion_hw.clock import Clock, SystemClock, VirtualClock
from lumion_hw.drivers.mesh.lumion.controller import LumionMeshController
from lumion_hw.drivers.mesh.lumion.reconnect import LinkEventKind, ReconnectPolicy
from lumion_hw.emulator.mesh.lumion import BoardProfile, MeshBoard
from lumion_hw.errors import LinkLost, LinkTimeout
from lumion_hw.interfaces import ControllerLimits
from lumion_hw.links.fault import Direction, FaultEvent, FaultKind, FaultLink, FaultPlan, FaultRates
from lumion_hw.links.memory import MemoryLink
from lumion_hw.testing.wires import wired

SET = BoardProfile(n_dac=16, n_adc=4, mtu=256)
LARGE = replace(SET, n_dac=144, mtu=512)  # one SET of 312 bytes: three in four get through at one error in a thousand
STAGED = replace(SET, n_dac=144)  # two STAGE frames and a COMMIT
FULL_SCALE_MA = 10.0
OUT, BACK = Direction.TO_DEVICE, Direction.FROM_DEVICE


class Bench:
    """An emulated controller, a fault link, a driver, and every table that was asked for."""

    def __init__(self, clock: Clock, profile: BoardProfile, seed: int) -> None:
        self.clock = clock
        self.n = profile.n_dac
        self.dice = random.Random(seed)
        self.driven: list[tuple[int, ...]] = []
        self.board = MeshBoard(
            "mesh0",
            clock,
            np.random.default_rng(seed),
            drive=lambda output_ma, at_s: self.driven.append(self.codes(output_ma)),
            sense_ma=lambda n_avg, at_s: np.zeros(profile.n_adc),
            profile=profile,
        )
        self.link = FaultLink(MemoryLink(self.board.connect, clock, "memory"), FaultPlan(), clock, seed)
        self.asked: list[tuple[int, ...]] = []
        self.confirmed: tuple[int, ...] = (0,) * self.n
        self.given_up = 0

    def attach(self, **options: object) -> LumionMeshController:
        self.driver = LumionMeshController(self.link, self.clock, device="mesh0", **options)  # type: ignore[arg-type]
        self.driver.open()
        self.driver.configure(ControllerLimits(np.full(self.n, 10.0), np.full(self.n, 1.0), 4000.0))
        return self.driver

    def codes(self, currents_ma: np.ndarray) -> tuple[int, ...]:  # type: ignore[type-arg]
        return tuple(np.rint(np.asarray(currents_ma) / FULL_SCALE_MA * 65535).astype(int).tolist())

    def program(self) -> bool:
        """Ask for a table that was never asked for before; whether it was confirmed."""
        codes = (len(self.asked) + 1, *[self.dice.randrange(65536) for _ in range(self.n - 1)])
        self.asked.append(codes)
        try:
            receipt = self.driver.program(np.array(codes) * (FULL_SCALE_MA / 65535))
        except LinkTimeout:
            self.given_up += 1
            return False
        assert receipt.crc32 == fp.table_crc32(codes)
        assert self.driven[-1] == codes
        self.confirmed = codes
        return True


def rates(byte_error_rate: float) -> FaultRates:
    """A third of the byte errors each, and now and then everything that can happen to a piece."""
    third = byte_error_rate / 3
    return FaultRates(
        flip=third, drop=third, duplicate=third, burst=0.002, delay=0.003, split=0.05, swap=0.005, delay_s=0.08
    )


def storm(bench: Bench, commands: int) -> None:
    """Send commands over the bad wire, a quarter of them no tables."""
    others = (bench.driver.faults, bench.driver.read_monitors, bench.driver.read_back, bench.driver.board_counters)
    for _ in range(commands):
        if bench.dice.random() < 0.75:
            bench.program()
            continue
        try:
            bench.dice.choice(others)()
        except LinkTimeout:
            bench.given_up += 1


def hits(bench: Bench, direction: Direction) -> int:
    """What was done to one direction: each hit costs at most one frame (section 2.2), a swap those it tears apart."""
    done = bench.link.counts(direction)
    return done.flipped + done.dropped + done.duplicated + done.bursts + 2 * done.swaps


def check_everything_is_accounted_for(bench: Bench) -> None:
    bench.link.apply(FaultPlan())
    bench.clock.sleep(1.0)  # whatever was late has come by now
    bench.driver.read_back()
    transmitted = bench.link.counts(BACK).accepted
    board, host = bench.driver.board_counters(), Counter(bench.driver.session.counters)
    out, back = bench.link.counts(OUT), bench.link.counts(BACK)
    # Tables: each one that was driven was asked for, in the order in which it was, and none of them twice.
    places = {codes: place for place, codes in enumerate(bench.asked)}
    driven = [places[codes] for codes in bench.driven if any(codes)]
    assert driven == sorted(set(driven))
    assert len(driven) == board["latches"]
    assert len(bench.asked) - len(driven) <= bench.given_up  # of each that was not, its caller was told
    # Bytes: what one side sent and what the other one had, and on the wire what became of the difference.
    assert host["tx_bytes"] == out.accepted
    assert board["rx_bytes"] == out.delivered == out.accepted + out.duplicated - out.dropped
    assert board["tx_bytes"] == transmitted  # as of before the reply that says so
    assert host["rx_bytes"] == back.delivered == back.accepted + back.duplicated - back.dropped
    # Frames to the board: understood, or damaged by something that was done to the wire. A hit on the delimiter between
    # two frames joins them, and costs both.
    sent = 1 + host["requests"] + host["retries"]  # the first is HELLO
    assert 0 <= sent - board["rx_frames"] <= 2 * hits(bench, OUT)
    assert board["bad_cobs"] + board["bad_short"] + board["bad_crc"] > 0
    assert board["bad_kind"] == board["bad_version"] == board["bad_session"] == board["unknown_command"] == 0
    # Frames to the host: an answer, late, or damaged.
    assert host["timeouts"] >= bench.given_up  # more where a question told what had become of a table
    answers = 1 + host["requests"] - host["timeouts"]
    assert 0 <= board["tx_frames"] + 1 - answers - host["late"] <= 2 * hits(bench, BACK)
    assert not {"mismatched", "foreign_session", "bad_payload", "echoes", "unknown_event"} & host.keys()
    assert board["replayed"] > 0
    assert board["wd_trips"] == board["faults"] == 0


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("profile", [SET, STAGED], ids=["SET", "STAGE and COMMIT"])
def test_no_command_is_executed_twice_or_lost_and_the_counters_add_up(seed: int, profile: BoardProfile) -> None:
    bench = Bench(VirtualClock(), profile, seed)
    with bench.attach():
        bench.link.apply(FaultPlan(rates(1e-3), rates(1e-3)))
        storm(bench, 400)
        check_everything_is_accounted_for(bench)


@pytest.mark.parametrize(
    "commands", [300, pytest.param(4_000, marks=pytest.mark.long), pytest.param(10_000, marks=pytest.mark.campaign)]
)
def test_of_tables_of_144_channels_at_one_byte_error_in_a_thousand_none_is_lost(commands: int) -> None:
    bench = Bench(VirtualClock(), LARGE, seed=0)
    third = FaultRates(flip=1e-3 / 3, drop=1e-3 / 3, duplicate=1e-3 / 3)
    with bench.attach():
        bench.link.apply(FaultPlan(third, third))
        start_s, longest_s = bench.clock.now(), 0.0
        for _ in range(commands):
            began_s = bench.clock.now()
            assert bench.program()
            longest_s = max(longest_s, bench.clock.now() - began_s)
        assert bench.driven == bench.asked  # each of them, once, in order
        assert longest_s < 2.0  # of the watchdog
        assert bench.clock.now() - start_s < 0.025 * commands
        bench.link.apply(FaultPlan())


@pytest.mark.parametrize(
    "seed",
    [pytest.param(seed, marks=pytest.mark.long if seed == 0 else pytest.mark.campaign) for seed in range(6)],
)
def test_ten_thousand_commands_at_one_byte_error_in_a_thousand_on_the_emulated_board(seed: int) -> None:
    bench = Bench(VirtualClock(), STAGED if seed % 3 == 2 else SET, seed)
    stalls = tuple(
        FaultEvent(FaultKind.STALL, direction, at_byte, duration_s=0.12)
        for direction in Direction
        for at_byte in range(20_000, 2_000_000, 30_011)
    )
    with bench.attach():
        bench.link.apply(FaultPlan(rates(1e-3), rates(1e-3), stalls))
        storm(bench, 10_000)
        check_everything_is_accounted_for(bench)
        assert bench.link.counts(OUT).stalls > 5
        assert bench.driver.session.counters["retries"] > 500


# --- unplugged in mid-frame, on real wires ---------------------------------------------------------------------------


@pytest.mark.parametrize("transport", ["tcp", pytest.param("pty", marks=pytest.mark.long)])
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_unplugged_in_mid_frame_it_comes_back_stages_again_and_the_table_is_proven(transport: str, seed: int) -> None:
    clock = SystemClock()
    bench = Bench(clock, STAGED, seed)
    with wired(bench.board, transport, clock) as wire:
        bench.link = FaultLink(wire.link(), FaultPlan(), clock, seed)
        driver = bench.attach(reconnect=ReconnectPolicy(wait_s=5.0, first_delay_s=0.05), resume=True)
        assert bench.program()
        truth: list[tuple[int, ...]] = []
        for turn in range(6):
            cut = bench.link.counts(OUT).accepted + bench.dice.randrange(10, 500)  # two STAGE frames and a COMMIT
            bench.link.apply(FaultPlan(events=(FaultEvent(FaultKind.UNPLUG, OUT, cut, duration_s=0.1),)))
            with pytest.raises(LinkLost):
                [bench.program() for _ in range(5)]
            restarted = turn % 3 == 2
            if restarted:
                wire.run_action(bench.board.reset)
            asked = bench.asked[-1]
            driver.read_back()  # waits for the link
            found = driver.link_events[-1].attachment
            assert found is not None
            assert driver.link_events[-1].kind is LinkEventKind.RECONNECTED
            assert (found.restarted, found.configuration) == (restarted, "applied" if restarted else "kept")
            truth.clear()
            wire.run_action(lambda: truth.append(tuple(bench.board.driven_codes.tolist())))
            # The one under way was latched whole, or the one before it is driven: never a mixture, never nothing.
            assert truth[0] == (asked if found.in_flight_latched else bench.confirmed)
            assert bench.codes(driver.read_back()) == truth[0]
            assert bench.program()
        driver.close()
        assert not any(bench.driven[-1])
    assert len(set(bench.driven) - {bench.driven[-1]}) <= len(bench.asked)
    assert set(bench.driven) <= {*bench.asked, (0,) * bench.n}
