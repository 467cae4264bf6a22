"""Cost of a scan: time per point compared with bare driver calls, and a million points in memory and on disk.

Run: .venv/bin/python benchmarks/scan.py [overhead] [million]
The overhead is the CPU time beyond the same driver calls in a bare loop, measured in turns with real drivers, emulated
links and virtual time, so that there is no waiting.
"""

from __future__ import annotations

import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lumion_hw import Bench
from lumion_hw.acquisition import Settings, load_scan, scan
from lumion_hw.acquisition.columns import Column, State, Value
from lumion_hw.acquisition.hdf5 import write_hdf5
from lumion_hw.acquisition.journal import LogHeader, LogJournal, LogRow
from lumion_hw.acquisition.scan_plan import ScanAxis, ScanPlan, SweptSetting, as_base64

MEGABYTE = 1e6
BENCH = """
version: 1
name: scan-benchmark
devices:
  meter0: {kind: keysight-n77xx, model: N7744A, averaging_s: 0.0001, wavelength_nm: 1550.0}
  tls-a: {kind: santec-tsl, model: TSL-570}
  pol-a: {kind: oz-epc04}
"""


def per_point(run: Callable[[int], object], n: int) -> float:
    """Return the CPU time per point from runs of two lengths, which removes the time of one-off work."""
    times = []
    for points in (n, 3 * n):
        begun = time.process_time()
        run(points)
        times.append(time.process_time() - begun)
    return (times[1] - times[0]) / (2 * n)


def overhead(turns: int = 7, n: int = 60) -> None:
    """Print time per point of a scan and of the bare calls."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bench.yaml"
        path.write_text(BENCH)
        with Bench.emulate(path) as bench:
            cases(bench, turns, n)


def cases(bench: Bench, turns: int, n: int) -> None:
    laser, meter, pol = bench.lasers["tls-a"], bench.meters["meter0"], bench.polarization["pol-a"]
    laser.enable()
    laser.wait_ready(60.0)
    low, high = Settings(bench, ["pol-a.setting.1"])["pol-a.setting.1"].limits()  # type: ignore[misc]
    drives = np.linspace(low, high, 50)
    rest = pol.read()

    def bare_wavelength(points: int) -> None:
        for place in range(points):
            laser.set_frequency_thz(193.0 + 0.01 * (place % 50))
            laser.wait_ready(60.0)
            meter.read_all()

    def bare_polarization(points: int) -> None:
        values = np.array(rest)
        for place in range(points):
            values[0] = drives[place % 50]
            pol.set(values)
            bench.clock.sleep(pol.settle_s)
            meter.read_all()

    frequencies = 193.0 + 0.01 * (np.arange(3 * n) % 50)
    rows = (
        ("laser frequency, 4 powers", bare_wavelength, {"tls-a.frequency_thz": frequencies}),
        ("polarization, 4 powers", bare_polarization, {"pol-a.setting.1": np.resize(drives, 3 * n)}),
    )
    print("| swept | bare calls, µs | scan, µs | more, µs | ratio |")
    print("|---|---|---|---|---|")
    for name, bare, sweep in rows:
        cases = []
        for _ in range(turns):
            one = per_point(bare, n)
            with tempfile.TemporaryDirectory() as folder:
                cases.append((one, per_point(partial(scanned, bench, sweep, Path(folder)), n)))
        bare_s, scan_s = (statistics.median(times) for times in zip(*cases, strict=True))
        more = statistics.median(other - one for one, other in cases)
        print(f"| {name} | {1e6 * bare_s:.0f} | {1e6 * scan_s:.0f} | {1e6 * more:.0f} | {scan_s / bare_s:.2f} |")


def scanned(bench: Bench, sweep: Mapping[str, NDArray[np.float64]], folder: Path, points: int) -> None:
    scan(bench, {name: values[:points] for name, values in sweep.items()}, ["meter0"], out=folder / f"{points}.h5")


def million(n: int = 1_000_000) -> None:
    """Print file size, additional memory and time for a million points."""
    plan = ScanPlan(
        (
            ScanAxis(
                (
                    SweptSetting(
                        "tls-a.wavelength_nm", "tls-a", "nm", "number", (), as_base64(np.linspace(1530.0, 1565.0, n))
                    ),
                ),
                n,
            ),
        )
    )
    columns = (
        Column("tls-a.wavelength_nm.set", "tls-a", "nm"),
        Column("scan.by_instrument", "scan", "1"),
        Column("meter0.power.1", "meter0", "W"),
    )
    header = LogHeader("benchmark", columns, 0.0, n, "2026-11-26T12:00:00.000+00:00", scan=plan)
    with tempfile.TemporaryDirectory() as folder:
        path, target = Path(folder) / "scan.journal", Path(folder) / "scan.h5"
        before = peak_mb()
        begun = time.perf_counter()
        way = Value(State.OK, 0.0)
        with LogJournal.create(path, header) as journal:
            for index in range(n):
                journal.append(LogRow(index, 1e-3 * index, (Value(State.OK, 1550.0), way, Value(State.OK, 1e-6))))
            journal.sync()
        told("written", begun, before, path)
        begun = time.perf_counter()
        write_hdf5(path, target)
        told("finished as HDF5", begun, before, target)
        begun = time.perf_counter()
        data = load_scan(target)
        told("loaded", begun, before, target)
        print(data)


def told(what: str, begun: float, before_mb: float, path: Path) -> None:
    took_s = time.perf_counter() - begun
    print(f"| {what} | {path.stat().st_size / MEGABYTE:.0f} MB | {peak_mb() - before_mb:.0f} MB | {took_s:.1f} s |")


def peak_mb() -> float:
    """Return the largest memory that this process has had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MEGABYTE


if __name__ == "__main__":
    asked = sys.argv[1:] or ["overhead", "million"]
    if "overhead" in asked:
        overhead()
    if "million" in asked:
        million()
