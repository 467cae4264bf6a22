"""All faults of the suite, with what is promised; and one try of one fault."""

from __future__ import annotations

import errno
import faulthandler
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator

from tests.chaos import devices, one_bench, one_fabric, scans, served, several_meshes
from tests.chaos.accidents import (
    clock_step,
    clock_stop,
    connection_lost,
    fibre_cut,
    flipped_bit,
    flipped_fabric_bit,
    hold_of_another_user,
    renumbered,
    second_program,
    take_over,
)
from tests.chaos.lives import disk, kill, kill_in_the_middle, lose_power, pause, sever, slow_disk
from tests.chaos.scene import Fault, Findings, Scene, injected

CMIS = "fabric of CMIS modules"
BENCH, FABRIC, OPERATOR, MESHES = "circuits", "fabric", "several meshes: operator", "several meshes: a bench"
DEVICE, SCAN, SERVED = "one device", "scan", "served bench"
RUN: dict[str, Callable[[Fault, Generator, Path], Findings]] = {
    BENCH: one_bench.run,
    FABRIC: one_fabric.run,
    CMIS: partial(one_fabric.run, file=one_fabric.SMALL_CMIS),
    OPERATOR: partial(several_meshes.run, victim=several_meshes.OPERATOR),
    MESHES: partial(several_meshes.run, victim="a bench"),
    DEVICE: devices.run,
    SCAN: scans.run,
    SERVED: served.run,
}
LONGEST_S = 300
"""A try that takes longer stands still."""

Strike = Callable[[Any], None]


def at_random(accident: Callable[..., None]) -> Strike:
    """Return the strike of an accident at a random step of the program."""
    return lambda scene: scene.at_random(accident)


def a_puc(scene: Scene) -> int:
    """Draw a PUC."""
    return int(scene.rng.integers(15))


def a_heater(scene: Scene) -> int:
    """Draw a heater of an even or odd arm."""
    return int(scene.rng.integers(2))


def an_input(scene: Scene) -> int:
    """Draw a port at which light enters."""
    return int(scene.choice(1, 6, 11))


def an_output(scene: Scene) -> int:
    """Draw a port with a receiver."""
    return int(scene.choice(3, 8, 13))


def a_source(scene: Scene) -> int:
    """Draw a fault source of the controller: supply, SPI, external loop, watchdog, ESTOP."""
    return int(scene.choice(4, 5, 8, 9, 11))


def a_number(scene: Scene) -> float:
    """Draw a number of accesses."""
    return float(scene.choice(1, 10, 100))


def module_severed(kind: str) -> Strike:
    """Return the strike that the connection to a module is half open from a random step on."""

    def strike(scene: Scene) -> None:
        name = scene.choice(*scene.names_of(kind))
        scene.hurt.add(name)
        scene.at_random(sever(name))

    return strike


def unpowered_server(kind: str) -> Strike:
    """Return the strike that a server with a module of this kind loses power."""
    return injected("bench", "kill_modules", modules=lambda scene: [scene.choice(*scene.names_of(kind))])


UNDONE = "the change is complete or undone; the next program goes on without help"
LOST_NAMED = "the change is complete or undone, or the next program names every circuit that is lost"
ONE_PROGRAM = "the second program is refused and named; the first does not notice"
RESUMED = "the next manager finishes or undoes what was begun; every job is connected or refused with a reason"
ONLY_ITS_SERVER = "only the server of the module counts as failed; a spare replaces it"
DAMAGED = "used if a later entry says everything; otherwise refused by line, and nothing is changed"
HELD = "refused, because a program or host holds the bench; the first program does not notice"
ONE_OPERATOR = "each change is complete or undone; an operator in the way of the other is refused by name"
BOTH_OR_NONE = "after `recover`, each circuit is whole or gone on all benches"

PROCESS: tuple[tuple[str, Strike], ...] = (
    ("program killed", at_random(kill)),
    ("program killed while it writes its journal", at_random(kill_in_the_middle)),
    ("host loses power: zeros in place of a journal entry", at_random(lose_power)),
    ("disk full", at_random(disk(errno.ENOSPC))),
    ("disk fails (EIO)", at_random(disk(errno.EIO))),
    ("state directory belongs to somebody else", at_random(disk(errno.EACCES))),
    ("disk slow: 3 s for each sync", at_random(slow_disk(3.0))),
    ("host stands still for 30 s", at_random(pause(30.0))),
)
"""Faults of a program, its host and its disk."""
TIME: tuple[tuple[str, Strike], ...] = (
    ("time of day steps back by a day", clock_step(-86400.0)),
    ("time of day steps ahead by ten years", clock_step(3.2e8)),
    ("time of day stands still", clock_stop),
)
CONTROLLER: tuple[tuple[str, Strike], ...] = (
    ("mesh controller loses power", injected("mesh0", "no_power")),
    ("cable of the mesh controller pulled", injected("mesh0", "no_cable")),
    ("mesh controller hangs", injected("mesh0", "hang")),
    ("mesh controller deaf", injected("mesh0", "deaf")),
    ("mesh controller restarts", injected("mesh0", "restart")),
    ("mesh controller trips", injected("mesh0", "trip", source=a_source)),
    ("chip at 140 °C", injected("mesh0", "hot_chip", temperature_c=140.0)),
    ("1 % of all bytes damaged", injected("mesh0", "corrupt_bytes", rate=0.01)),
    ("1 to 30 frames lost", injected("mesh0", "lose_frames", count=lambda scene: int(scene.choice(1, 3, 30)))),
    ("connection of the mesh controller half open", at_random(sever("mesh0"))),
)
MODULES: tuple[tuple[str, Strike], ...] = (
    ("module loses power", injected("sfp-8472", "module_dead")),
    ("I2C bus of a module hangs", injected("sfp-8472", "bus_stuck")),
    ("laser of a module breaks", injected("sfp-8472", "laser_broken")),
    ("transmitter-disable pin asserted", injected("sfp-8472", "tx_disable_pin")),
    ("cable of a module pulled", injected("sfp-8472", "no_cable")),
    ("connection of a module half open", module_severed("sfp-8472")),
)
CMIS_MODULES: tuple[tuple[str, Strike], ...] = (
    ("module loses power", injected("cmis", "module_dead")),
    ("module restarts", injected("cmis", "module_reset")),
    ("I2C bus of a module hangs", injected("cmis", "bus_stuck")),
    ("module does not acknowledge 1 to 100 accesses", injected("cmis", "nack", strength=a_number)),
    ("transmitters of a module fail", injected("cmis", "tx_failure")),
    ("module enters its fault state (TEC runaway)", injected("cmis", "tec_runaway")),
    ("low-power pin asserted", injected("cmis", "low_power_pin")),
    ("data path of a module is never initialized", injected("cmis", "stuck_init")),
    ("receivers of a module dark", injected("cmis", "los")),
    ("cable of a module pulled", injected("cmis", "no_cable")),
    ("connection of a module half open", module_severed("cmis")),
    ("server loses power", unpowered_server("cmis")),
)
INSTRUMENTS: tuple[tuple[str, Strike], ...] = (
    ("power meter loses power", injected("meter0", "no_power")),
    ("polarization controller loses power", injected("oz-epc04", "no_power")),
)
CHIP: tuple[tuple[str, Strike], ...] = (
    ("heater open or stuck", injected("bench", "stick_heater", puc=a_puc, arm=a_heater, current_ma=0.0)),
    ("heater weak", injected("bench", "weaken_heater", puc=a_puc, arm=a_heater, factor=0.6)),
    ("couplers of a PUC unbalanced", injected("bench", "unbalance", puc=a_puc, common_rad=0.3)),
    ("fibre before the mesh broken", injected("bench", "kill_port", port=an_input)),
    ("fibre behind the mesh broken", injected("bench", "kill_port", port=an_output)),
    ("photodiode dead", injected("bench", "kill_monitor", port=an_output)),
    ("photodiode saturated", injected("bench", "scale_monitor", port=an_output, factor=1e5)),
    ("chip 2 K warmer", injected("bench", "drift_temperature", trajectory_k=lambda _: lambda now_s: 2.0)),
    (
        "launch power 3 dB lower",
        injected("bench", "drift_power", port=an_input, trajectory_db=lambda _: lambda now_s: -3.0),
    ),
    (
        "fibre of a module moved",
        injected("bench", "turn_polarization", transponder=lambda scene: scene.choice(*scene.names_of("sfp-8472"))),
    ),
)
SERVERS: tuple[tuple[str, Strike], ...] = (("server loses power", unpowered_server("sfp-8472")),)


def rows(layer: str, promise: str, *tables: tuple[tuple[str, Strike], ...], weight: float = 1.0) -> tuple[Fault, ...]:
    """Return the faults of some tables in one layer, all with the same promise."""
    return tuple(Fault(name, layer, promise, strike, weight) for table in tables for name, strike in table)


FAULTS: tuple[Fault, ...] = (
    *rows(BENCH, UNDONE, PROCESS, TIME, weight=1.5),
    *rows(BENCH, LOST_NAMED, CONTROLLER, MODULES, INSTRUMENTS),
    Fault("second program", BENCH, ONE_PROGRAM, second_program),
    Fault("`lumion hold` of another user", BENCH, HELD, hold_of_another_user),
    Fault("second program takes over", BENCH, "it waits for a change; the first then changes nothing", take_over),
    Fault("two modules on each other's serial port (ttyUSB renumbered)", BENCH, "refused by serial number", renumbered),
    Fault(
        "a bit of the circuit journal flips",
        BENCH,
        DAMAGED,
        flipped_bit("circuits.jsonl"),
    ),
    *rows(FABRIC, RESUMED, PROCESS, TIME, weight=1.5),
    *rows(FABRIC, "no server is blamed; the circuits come back when the controller does", CONTROLLER),
    *rows(FABRIC, ONLY_ITS_SERVER, MODULES, SERVERS, weight=1.5),
    *rows(FABRIC, "no server is blamed; every dark circuit is reported", INSTRUMENTS),
    *rows(FABRIC, "another path, a spare for the server at that fibre, or a report", CHIP),
    *rows(CMIS, ONLY_ITS_SERVER, CMIS_MODULES),
    Fault("a bit of the fabric's journal flips", FABRIC, DAMAGED, flipped_fabric_bit),
    Fault("second manager", FABRIC, ONE_PROGRAM, second_program),
    Fault("`lumion hold` of another user", FABRIC, HELD, hold_of_another_user),
    *rows(OPERATOR, BOTH_OR_NONE, PROCESS, TIME, weight=1.5),
    Fault("connection to a bench lost", OPERATOR, BOTH_OR_NONE, connection_lost),
    Fault("a bit of the joined meshes' journal flips", OPERATOR, DAMAGED, flipped_bit("joined.jsonl")),
    Fault("fibre between meshes pulled", OPERATOR, "the message names the fibre; all benches are set back", fibre_cut),
    Fault("second operator", OPERATOR, ONE_OPERATOR, several_meshes.second_operator),
    *rows(MESHES, BOTH_OR_NONE, PROCESS, TIME, CONTROLLER),
    *devices.FAULTS,
    *scans.FAULTS,
    *served.FAULTS,
)


def number_of(name: str, layer: str) -> int:
    """Return the number of a fault in the table."""
    return next(number for number, fault in enumerate(FAULTS) if (fault.name, fault.layer) == (name, layer))


def drawn(seed: int, number: int) -> int:
    """Return the fault of a try."""
    weights = np.array([fault.weight for fault in FAULTS])
    return int(np.random.default_rng([seed, number]).choice(len(FAULTS), p=weights / weights.sum()))


def tried(seed: int, number: int, fault: int | None = None) -> tuple[Fault, Findings]:
    """Try one fault; the same numbers give the same try, except for real processes.

    Args:
        seed: Seed of all tries.
        number: Number of the try.
        fault: Number of the fault; by default drawn.
    """
    chosen = FAULTS[drawn(seed, number) if fault is None else fault]
    rng = np.random.default_rng([seed, number, 1])
    with tempfile.TemporaryDirectory(prefix="lumion-chaos-") as directory, _not_for_ever():
        try:
            findings = RUN[chosen.layer](chosen, rng, Path(directory))
        except Exception as error:  # noqa: BLE001 - a try that ends in any error is a finding
            findings = Findings(broken=[f"{type(error).__name__}: {error}"])
    return chosen, findings


class StandsStillError(Exception):
    """A try takes too long."""


@contextmanager
def _not_for_ever() -> Iterator[None]:
    has_given_up = False

    def give_up(*_: object) -> None:
        nonlocal has_given_up
        if has_given_up:  # not even the end of the try ends
            faulthandler.dump_traceback()
            os._exit(3)
        has_given_up = True
        signal.alarm(60)
        raise StandsStillError(f"not over after {LONGEST_S} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(LONGEST_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
