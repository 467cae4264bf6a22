"""Recovery: time of its steps, false alarms, random sequences of failures, and rehearsal with a training job.

Run: .venv/bin/python benchmarks/recovery.py [bench|quiet|chaos|rehearsal] [number]

bench      Bench time and CPU time from the fault to proven circuits, medians of 10: with our protocol, with the
           published latencies of a commercial controller, and with the modules' loss of signal only.
quiet      Fades that must not start a recovery, and false alarms in 10,000 hours of bench time.
chaos      200 random sequences of failures, returns, device faults and kills of the manager.
rehearsal  Wall clock from a fault to the first training step, medians of 10.

The calibration record of the benches is made from the hidden truth, as in the tests.
"""

from __future__ import annotations

import contextlib
import gc
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.pop(0)  # this folder has a module of the same name as the package calibration
sys.path.insert(0, str(Path(__file__).parents[1]))

import yaml

from lumion_hw import Bench
from lumion_hw.bench.file.loader import builtin_path
from lumion_hw.circuits import BenchLock, CircuitJournal, CircuitService
from lumion_hw.fabric import FabricJournal, FabricManager, find_unit
from lumion_hw.fabric.detectors import Detector
from lumion_hw.fabric.detectors.light import Modules, Photodiodes
from lumion_hw.links.memory import MemoryLink
from lumion_hw.mesh.record.calibration_record import CalibrationRecord
from tests.circuits.known_mesh import record_of_truth

ROOT = Path(__file__).parents[1]
SPANS = ("detected", "spare_chosen", "route_found", "programmed", "settled", "proven", "link_up")
PUBLISHED_WRITE_MS = 56.25
"""144 of the 160 channels that are written in 62.5 ms (thesis of D. Sánchez-Jácome, UPV 2025)."""


@contextlib.contextmanager
def managed(
    bench: Bench, directory: Path, record: CalibrationRecord, detectors: list[Detector] | None = None
) -> Iterator[FabricManager]:
    """Manage the fabric of a bench, like a separate program."""
    with (
        BenchLock(directory, "benchmark") as lock,
        CircuitJournal(directory, bench.model.name, bench.mesh.topology.sha256) as circuits,
        FabricJournal(directory, bench.model.name) as journal,
    ):
        service = CircuitService(bench, record, circuits, lock)
        service.restore()
        with FabricManager(service, journal, detectors=detectors) as manager:
            yield manager


def edited(directory: Path, emulation: dict[str, Any] | None = None, **keys: Any) -> Path:
    """Return the built-in bench with changed keys of its controller and its emulation."""
    data = yaml.safe_load(builtin_path("lumion-prototype").read_text(encoding="utf-8"))
    data["devices"]["mesh0"] |= keys
    data["emulation"] = data.get("emulation", {}) | (emulation or {})
    path = directory / "bench.yaml"
    path.write_text(yaml.safe_dump(data), encoding="utf-8")
    return path


class EmulatorShare:
    """CPU time of the emulated devices, measured where bytes enter and leave them.

    Attributes:
        spent_s: Total until now.
        at_fault_s: Total at the last fault.
        until_proven_ms: From the fault until the new circuits were proven.
    """

    def __init__(self) -> None:
        self.spent_s = self.at_fault_s = self.until_proven_ms = 0.0
        self._depth = 0

    def counted(self, peer: Any) -> Any:
        """Return the device end of a link with timed calls."""
        for name in ("receive", "transmit", "next_event"):
            setattr(peer, name, self._timed(getattr(peer, name)))
        return peer

    def _timed(self, call: Any) -> Any:
        def timed(*args: Any) -> Any:
            began_s, self._depth = time.thread_time(), self._depth + 1
            try:
                return call(*args)
            finally:
                self._depth -= 1
                if not self._depth:
                    self.spent_s += time.thread_time() - began_s

        return timed


def bench_time(trials: int) -> None:
    cases: list[tuple[str, dict[str, Any], list[Detector], float]] = [
        ("own protocol", {}, [Photodiodes()], 20.0),
        ("published controller", {"emulated_write_ms": PUBLISHED_WRITE_MS}, [Photodiodes()], 100.0),
        ("modules' LOS at 9600 baud", {}, [Modules()], 250.0),
    ]
    print(f"Bench ms since the fault, medians (least, most) of {trials}; CPU of the process, emulator included.\n")
    print("| | " + " | ".join(SPANS) + " | CPU ms to proven | of it outside the emulator | goal, proven |")
    print("|" + "---|" * (len(SPANS) + 4))
    for name, keys, detectors, goal_ms in cases:
        times_ms: dict[str, list[float]] = {span: [] for span in SPANS}
        cpu_ms: list[float] = []
        own_ms: list[float] = []
        share = EmulatorShare()
        with tempfile.TemporaryDirectory() as folder:
            directory = Path(folder)
            with Bench.emulate(edited(directory, **keys), seed=4) as bench:
                record = record_of_truth(bench)
                count_emulator(bench, share)
                with managed(bench, directory, record, detectors) as manager:
                    manager.begin()
                    for trial in range(trials):
                        for span in lost(manager, "server1", 0.0137 * trial, share):
                            times_ms[span.name].append(span.at_ms)
                            if span.name == "detected":
                                cpu_ms.append(0.0)
                            if span.name != "link_up":
                                cpu_ms[-1] += span.cpu_ms
                        own_ms.append(cpu_ms[-1] - share.until_proven_ms)
                        back(manager)
        cells = [f"{statistics.median(v):.1f} ({min(v):.1f}, {max(v):.1f})" if v else "–" for v in times_ms.values()]
        cpu = f"{statistics.median(cpu_ms):.1f} | {statistics.median(own_ms):.1f}"
        print(f"| {name} | " + " | ".join(cells) + f" | {cpu} | {goal_ms:.0f} |")


def count_emulator(bench: Bench, share: EmulatorShare) -> None:
    """Measure the CPU time of the devices of an open bench, at their ends of the open links."""
    links = [link for link in gc.get_objects() if isinstance(link, MemoryLink)]
    for link in links:
        if link._peer is not None:
            share.counted(link._peer)


def lost(manager: FabricManager, server: str, later_s: float, share: EmulatorShare) -> Any:
    """Stop a server at a random time and return the time spans of its replacement."""
    bench = manager.bench
    manager.run(0.2)
    # During monitoring, at a random time between two checks of the detector.
    manager.fault_s = bench.clock.now() + 0.05 + later_s

    def kill() -> None:
        bench.emulated.faults.kill_modules(bench.model.server(server).nics)
        manager.fault_cpu_s, share.at_fault_s = time.process_time(), share.spent_s

    def told(what: str, particulars: dict[str, Any]) -> None:
        if what == "span" and particulars["name"] == "proven":
            share.until_proven_ms = 1e3 * (share.spent_s - share.at_fault_s)

    manager._emit = told
    bench.emulated.world.time.add(manager.fault_s, kill)
    for _ in range(20):
        recovery = manager.step(0.5)
        if recovery is not None:
            return recovery.spans
    raise RuntimeError(f"{server} was not replaced: {manager.state}")


def back(manager: FabricManager) -> None:
    """Return every server to service."""
    for name in list(manager.state.failed):
        manager.bench.emulated.faults.revive_modules(find_unit(manager.bench.model, name).nics)
    manager.bench.clock.sleep(1.0)
    manager.restore_bench_file_places()


def quiet(hours: int) -> None:
    """Check that fades on one fibre, and noise and drift for hours, start no recovery."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Bench.emulate(seed=4) as bench,
        managed(bench, Path(folder), record_of_truth(bench), [Photodiodes()]) as manager,
    ):
        manager.begin()
        clock = bench.clock
        inputs = [path.port for path in bench.wiring.inputs if (path.transponder or "").startswith("sfp-s0")]
        for number in range(100):
            begin_s = clock.now() + 0.05 + 0.00037 * number
            bench.emulated.faults.drift_power(
                inputs[number % len(inputs)],
                lambda _, at=begin_s: -40.0 if at <= clock.now() < at + 0.05 else 0.0,
            )
            if manager.run(0.3):
                raise RuntimeError(f"fade {number} started a recovery")
        counted = manager.judge.counters
        print(f"100 fades of 50 ms on one fibre: {counted.fades} counted, {counted.verdicts} verdicts")
    for rate in (1e-5, 1e-3):
        turning(rate, 1800.0)
    print(f"{hours} hours: {alarm_bound(hours)}")


def turning(rate_rad2_per_s: float, for_s: float) -> None:
    """Monitor and maintain a fabric whose fibres rotate, with all noise and drift of a bench."""
    keys = {
        "fibre_drift_rad2_per_s": rate_rad2_per_s,
        "temperature_sigma_k": 0.05,
        "resistance_drift_per_root_day": 1e-3,
    }
    with tempfile.TemporaryDirectory() as folder:
        path = edited(Path(folder), emulation=keys)
        with (
            Bench.emulate(path, seed=4) as bench,
            managed(bench, Path(folder), record_of_truth(bench), [Photodiodes()]) as manager,
        ):
            manager.begin()
            deepest_db = [0.0]

            def look() -> None:
                deepest_db.extend(each.lost_db or 0.0 for each in manager.maintenance.health)

            recoveries = manager.run(for_s, between_steps=look)
            counted = manager.judge.counters
            print(
                f"{for_s / 60:.0f} min with fibres at {rate_rad2_per_s:g} rad²/s: {len(recoveries)} recoveries, "
                f"{counted.verdicts} verdicts, {counted.fades} fades; light down by at most {max(deepest_db):.2f} dB, "
                f"dark counts from 10 dB; {len(deepest_db) - 1} looks"
            )


def alarm_bound(hours: int) -> str:
    """Print the distance of noise from the threshold, and the expected false readings in many hours."""
    # Too many hours to simulate every millisecond. The weakest monitored light is 40 steps of the
    # converter, and the threshold is a tenth of it; the noise of a reading is 0.5 % and the floor, well below a step.
    with Bench.emulate(seed=4) as bench:
        step_ma, responsivity = bench.mesh.monitor_step_ma, bench.mesh.responsivity_a_per_w
    level_ma, floor_ma = 40.0 * step_ma, 1e-6 * responsivity
    sigma_ma = math.hypot(0.005 * level_ma, floor_ma, step_ma / math.sqrt(12.0))
    far = 0.9 * level_ma / sigma_ma
    readings = hours * 3600.0 * 1000.0 * 8
    return (
        f"{readings:.2g} readings of eight exits; the dimmest light watched lies {far:.0f} sigma of noise above "
        f"its threshold: {readings * 0.5 * math.erfc(far / math.sqrt(2.0)):.1g} readings beyond it are expected"
    )


def chaos(sequences: int) -> None:
    """Run random failures, returns, device faults and kills of the manager on the small bench."""
    from tests.fabric.chaos import sequence

    connected = refused = recoveries = managers = 0
    began = time.monotonic()
    for number in range(sequences):
        with tempfile.TemporaryDirectory() as folder:
            ended = sequence(number, Path(folder))
        refused += ended.refused
        connected += not ended.refused
        recoveries += ended.recoveries
        managers += ended.managers
    print(
        f"{sequences} sequences: {connected} end connected and proven, {refused} refused with a reason; "
        f"{recoveries} recoveries, {managers} managers; no circuit left over; {time.monotonic() - began:.0f} s"
    )


def rehearsal(trials: int) -> None:
    from lumion_hw.rehearsal import LightFabric, RehearsalSetting, SwitchedLight, rehearse
    from lumion_hw.rehearsal.bench_fabric import BenchFabric
    from lumion_hw.rehearsal.timing import table

    goals_ms = {1: {"light": 250.0, "kill": 150.0, "freeze": 400.0}, 2: {"light": 300.0}}
    with Bench.emulate(seed=4) as bench:
        record = record_of_truth(bench)
    fabrics: dict[str, Callable[[str], LightFabric]] = {
        "a switch of 10 ms": lambda folder: SwitchedLight(["server0", "server1"], ["server2"]),
        "the emulated bench": lambda folder: BenchFabric("lumion-prototype", record, folder, seed=4),
    }
    for title, fabric in fabrics.items():
        for accelerators, goals in goals_ms.items():
            setting = RehearsalSetting(accelerators=accelerators)
            with tempfile.TemporaryDirectory() as folder, contextlib.closing(fabric(folder)) as light:
                for each in rehearse(light, ["light", "kill", "freeze"], setting, trials=trials):
                    rows = {row["name"]: row for row in table(each.trials)}
                    cells = "; ".join(f"{name} {row['at_ms']:.0f}" for name, row in rows.items())
                    first, goal = rows["first_step"], goals.get(each.fault)
                    print(
                        f"{title}, {each.ranks} ranks, {each.job}, {each.network}, {each.fault}: "
                        f"first step {first['at_ms']:.0f} ms ({first['least_ms']:.0f}, {first['most_ms']:.0f})"
                        f"{f', goal {goal:.0f}' if goal else ''}; "
                        f"bit-identical {sum(each.identical)} of {len(each.identical)}. Medians: {cells}",
                        flush=True,
                    )


PARTS = {"bench": (bench_time, 10), "quiet": (quiet, 10_000), "chaos": (chaos, 200), "rehearsal": (rehearsal, 10)}


def main() -> None:
    chosen = sys.argv[1:2] or list(PARTS)
    for name in chosen:
        part, usual = PARTS[name]
        part(int(sys.argv[2]) if len(sys.argv) > 2 else usual)


if __name__ == "__main__":
    main()
