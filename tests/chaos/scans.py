"""A scan that is interrupted at a random point, whose file is then altered, and which is resumed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from lumion_hw import Bench
from lumion_hw.acquisition import ScanData, load_scan, scan
from lumion_hw.errors import BusyError, ConfigError, LumionError
from tests.chaos.scene import Fault, Findings
from tests.circuits.known_mesh import SMALL
from tests.full_disk import room

LAYER = "scan"
READING = "meter0.power.1"
SETTING = "pol-a.setting.1"
N_POINTS = 12
TOLERANCE = 0.1
"""Relative difference between two scans of the same light: the noise of the meter."""


class Interrupted(BaseException):
    """The scan is interrupted."""


@dataclass
class ScanScene:
    """A scan to be struck.

    Attributes:
        out: Its file.
        at: Number of points after which it is interrupted.
        sweep: What the resumed scan asks for.
        must_refuse: Whether the resumed scan has to be refused.
    """

    rng: Generator
    bench: Bench
    out: Path
    at: int
    findings: Findings
    sweep: dict[str, list[float]] = field(default_factory=dict)
    must_refuse: bool = False
    before: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext
    after: Callable[[], Any] = lambda: None

    @property
    def journal(self) -> Path:
        """The journal of the unfinished scan."""
        return Path(f"{self.out}.journal")


@contextlib.contextmanager
def lit_bench() -> Any:
    """Open the small bench with light at the meter."""
    with Bench.emulate(SMALL, seed=3) as bench:
        bench.transponders["sfp-a"].enable()
        bench.clock.sleep(1.0)
        yield bench


def swept_values() -> list[float]:
    """Return the values of the setting."""
    return np.linspace(0.0, 2.0, N_POINTS).tolist()


@cache
def expected() -> NDArray[np.float64]:
    """Return the readings of a scan that nothing disturbs."""
    with lit_bench() as bench:
        return np.array(scan(bench, {SETTING: swept_values()}, [READING]).value[READING])


def run(fault: Fault, rng: Generator, directory: Path) -> Findings:
    """Try a fault of a scan."""
    findings, reference = Findings(), expected()
    with lit_bench() as bench:
        scene = ScanScene(rng, bench, directory / "s.h5", int(rng.integers(1, N_POINTS)), findings)
        scene.sweep = {SETTING: swept_values()}
        fault.strike(scene)
        interrupt(scene)
        kept = rows_of(scene)
        scene.after()
        judge(scene, reference, kept)
    return findings


def interrupt(scene: ScanScene) -> None:
    """Run the scan up to the random point."""

    def progress(told: Any) -> None:
        if told.done >= scene.at:
            raise Interrupted

    try:
        with scene.before():
            scan(scene.bench, {SETTING: swept_values()}, [READING], out=scene.out, progress=progress)
    except (Interrupted, LumionError) as error:
        scene.findings.story.append(f"interrupted after {scene.at}: {error!r}")


def rows_of(scene: ScanScene) -> int:
    """Return the number of points that the interrupted scan has saved."""
    with contextlib.suppress(LumionError):
        return int(load_scan(scene.out).n_read)
    return 0


def judge(scene: ScanScene, reference: NDArray[np.float64], kept: int) -> None:
    """Resume the scan, and compare it with one that nothing has disturbed."""
    findings = scene.findings
    try:
        # No room for the first line leaves no file: there is nothing to resume.
        resume = scene.journal.exists() or scene.out.exists()
        whole: ScanData = scan(scene.bench, scene.sweep, [READING], out=scene.out, resume=resume)
    except (ConfigError, BusyError) as error:
        findings.story.append(f"refused: {error}")
        if not scene.must_refuse:
            findings.by_hand.append(str(error))
        return
    except LumionError as error:
        findings.broken.append(f"{type(error).__name__}: {error}")
        return
    if scene.must_refuse:
        findings.broken.append("another scan was continued in this file")
    findings.story.append(f"{kept} rows kept")
    if not whole.complete:
        findings.broken.append("the resumed scan is not complete")
    values = np.array(whole.value[READING])
    wrong = [int(i) for i in np.flatnonzero(~(np.abs(values / reference - 1.0) < TOLERANCE))]
    if wrong:
        findings.broken.append(f"points {wrong} have wrong readings: {values[wrong]}, not {reference[wrong]}")


# -- strikes


def interrupted(scene: ScanScene) -> None:
    """Only the interruption."""


def cut_file(scene: ScanScene) -> None:
    """The end of the file is missing: at most its rows are lost."""

    def cut() -> None:
        data = scene.journal.read_bytes()
        header = data.index(b"\n") + 1
        scene.journal.write_bytes(data[: int(scene.rng.integers(header, len(data) + 1))])

    scene.after = cut


def flipped_row(scene: ScanScene) -> None:
    """A bit of a row flips."""

    def flip() -> None:
        data = bytearray(scene.journal.read_bytes())
        header = data.index(b"\n") + 1
        if len(data) > header:
            data[int(scene.rng.integers(header, len(data)))] ^= 1 << int(scene.rng.integers(8))
        scene.journal.write_bytes(data)

    scene.after = flip


def other_values(scene: ScanScene) -> None:
    """The resumed scan asks for other values."""
    scene.sweep = {SETTING: [*swept_values()[:-1], 2.5]}
    scene.must_refuse = True


def other_plan_in_file(scene: ScanScene) -> None:
    """The plan in the file is altered."""

    def alter() -> None:
        data = scene.journal.read_bytes()
        old = b'"bench": "small"' if b'"bench": "small"' in data else b'"bench":"small"'
        scene.journal.write_bytes(data.replace(old, old.replace(b"small", b"smart"), 1))

    scene.after, scene.must_refuse = alter, True


def full_disk(scene: ScanScene) -> None:
    """The disk is full after some rows."""
    # The header of a journal has some 10 kB.
    scene.before = lambda: room(int(scene.rng.integers(100, 20_000)))


FAULTS = tuple(
    Fault(name, LAYER, promise, strike)
    for name, promise, strike in (
        ("scan interrupted", "`--resume` continues after the last point", interrupted),
        ("end of the scan's file missing", "`--resume` takes the missing points again", cut_file),
        ("a bit of a row flips", "`--resume` takes this point and the later ones again", flipped_row),
        ("resumed with other values", "refused", other_values),
        ("scan's file altered: another bench", "refused", other_plan_in_file),
        ("disk full during a scan", "`--resume` continues after the last saved point", full_disk),
    )
)
