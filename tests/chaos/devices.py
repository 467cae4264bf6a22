"""A device of every kind: a script uses it while one of its scripted faults strikes."""

from __future__ import annotations

import contextlib
from functools import cache
from pathlib import Path
from typing import Any

from numpy.random import Generator

from lumion_hw import Bench, VirtualClock
from lumion_hw.bench.bench import load
from lumion_hw.bench.emulated import emulated_bench
from lumion_hw.emulator.assembly import EmulatedBench
from lumion_hw.errors import LumionError
from tests.chaos.lives import Life, Step
from tests.chaos.scene import Fault, Findings
from tests.faults.test_fault_table import ASK, FILE, KINDS, NAMES, SINGLE

LAYER = "one device"
PROMISE = "each call returns or raises an error of this package; when the fault is over, the next program works"
N_CALLS = 8
LONGEST_S = 300.0
"""Longest time of one call, in s of the bench's clock."""
LASTING = {"module_out", "late_reply"}
"""Faults that no program ends: a module is missing in the chain, or every reply is late."""


def opened(emulated: EmulatedBench, name: str, life: Life | None = None) -> Bench:
    """Open one device, by a program that can be struck."""
    links = emulated.link
    return Bench(
        load(FILE),
        lambda device, _: links(device) if life is None else life.link(links(device), device),
        emulated.clock,
        emulated,
        only=[name],
    )


def calls(bench: Bench, kind: str, findings: Findings) -> None:
    """Call a device several times; an error of the package is a valid answer."""
    driver: Any = bench.devices[NAMES[kind]]
    for _ in range(N_CALLS):
        begun_s = bench.clock.now()
        try:
            ASK[kind](driver)
        except LumionError as error:
            findings.story.append(f"{type(error).__name__}: {error}")
        if bench.clock.now() - begun_s > LONGEST_S:
            findings.broken.append(f"a call took {bench.clock.now() - begun_s:.0f} s")
        bench.clock.sleep(0.1)


@cache
def steps_of(kind: str) -> int:
    """Return the number of steps of a script without a fault."""
    clock = VirtualClock()
    emulated, life = emulated_bench(load(FILE), clock, 1), Life(clock)
    with opened(emulated, NAMES[kind], life) as bench:
        calls(bench, kind, Findings())
    return life.steps


def run(fault: Fault, rng: Generator, directory: Path) -> Findings:
    """Try a random fault of a device."""
    del directory
    kind, clock, findings = fault.name.removeprefix("any scripted fault: "), VirtualClock(), Findings()
    emulated, life = emulated_bench(load(FILE), clock, 1), Life(clock)
    name, faults = NAMES[kind], emulated.faults
    row = faults.list_faults(name)[int(rng.integers(len(faults.list_faults(name))))]
    arguments = SINGLE.get((kind, row.name), ({}, None))[0]

    def strike(life: Life, step: Step) -> None:
        del step
        life.log.append(f"{row.name} {arguments}")
        faults.inject(name, row.name, **arguments)

    life.accidents[int(rng.integers(1, steps_of(kind) + 1))] = strike
    try:
        with opened(emulated, name, life) as bench:
            calls(bench, kind, findings)
    except LumionError as error:
        findings.story.append(f"{type(error).__name__}: {error}")
    except ExceptionGroup as group:
        if group.split(LumionError)[1] is not None:
            raise
    findings.has_struck = not life.accidents
    findings.story += life.log
    if findings.has_struck and row.end is not None:
        faults.end(name, row.name, **arguments)
    clock.sleep(120.0)
    for _ in range(arguments.get("count", 0)):  # each program uses up one of the lost frames or more
        with contextlib.suppress(LumionError):
            opened(emulated, name).close()
    if row.name not in LASTING:
        _use_again(emulated, kind, findings)
    return findings


def _use_again(emulated: EmulatedBench, kind: str, findings: Findings) -> None:
    try:
        with opened(emulated, NAMES[kind]) as bench:
            ASK[kind](bench.devices[NAMES[kind]])
    except LumionError as error:
        findings.broken.append(f"the next program fails: {type(error).__name__}: {error}")


def strike_at_random(scene: object) -> None:
    """Do nothing: :func:`run` draws fault and instant."""


FAULTS = tuple(Fault(f"any scripted fault: {kind}", LAYER, PROMISE, strike_at_random, 1.0) for kind in KINDS)
