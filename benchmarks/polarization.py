"""Readings and remaining loss of the polarization search and of tracking, on simulated squeezers.

Run: .venv/bin/python benchmarks/polarization.py [trials] [search] [tracking]
Every trial draws an input state, the state that the device passes, and the unknown retardances at zero drive; the
periods are known. The result of the search is compared with the hidden truth.
"""

from __future__ import annotations

import sys
import time

import numpy as np
from numpy.typing import NDArray

from lumion_hw.clock import VirtualClock
from lumion_hw.interfaces import ActuatorInfo
from lumion_hw.polarization import EXPECTED_NOISE_DB, Aligner, Alignment
from lumion_hw.polarization.retarders import RetarderChain, accepted_share, turn_matrix

PERIOD, RANGE = 3700.0, 5000.0
GOAL_LOSS_DB, GOAL_MEDIAN, GOAL_P95 = 0.05, 8, 20


class Squeezers:
    """Squeezers at 0°, 45°, 0° … between a random input state and a random state that the device passes."""

    settle_s = 1e-3

    def __init__(self, seed: int, n: int, noise_db: float, crosstalk: float = 0.0) -> None:
        self.rng = np.random.default_rng(seed)
        self.chain = RetarderChain(n)
        self.actuators = (ActuatorInfo("drive voltage", "mV", -RANGE, RANGE, 1.0, PERIOD, endless=False),) * n
        self.rest_rad = self.rng.uniform(0.0, 2.0 * np.pi, n)
        self.light, self.taken = self.random_state(), self.random_state()
        self.noise_db, self.crosstalk = noise_db, crosstalk
        self.drive_mv = np.zeros(n)

    def random_state(self) -> NDArray[np.float64]:
        """Draw a state."""
        state = self.rng.standard_normal(3)
        return np.asarray(state / np.linalg.norm(state))

    def set(self, settings: NDArray[np.float64]) -> None:
        """Set the drives."""
        self.drive_mv = np.rint(settings)

    def read(self) -> NDArray[np.float64]:
        """Return the drives."""
        return self.drive_mv.copy()

    def close(self) -> None:
        """Do nothing."""

    @property
    def share(self) -> float:
        """Return the fraction of the light that the device passes."""
        turned = self.chain.turn(self.rest_rad + 2.0 * np.pi * self.drive_mv / PERIOD, self.light)
        return float(accepted_share(turned, self.taken, 1.0, self.crosstalk))

    def reading_w(self) -> float:
        """Return a reading."""
        return 1e-4 * self.share * 10.0 ** (self.noise_db * self.rng.standard_normal() / 10.0)


def searched(seed: int, n: int, noise_db: float, sign: int, crosstalk: float = 0.0) -> tuple[Squeezers, Alignment]:
    squeezers = Squeezers(seed, n, noise_db, crosstalk)
    aligner = Aligner(VirtualClock(), noise_db=max(noise_db, EXPECTED_NOISE_DB))
    find = aligner.maximise if sign > 0 else aligner.minimise
    return squeezers, find("pol", squeezers, squeezers.reading_w)


def search_row(trials: int, n: int, noise_db: float, sign: int, crosstalk: float = 0.0) -> None:
    began = time.process_time()
    runs = [searched(seed, n, noise_db, sign, crosstalk) for seed in range(trials)]
    spent_ms = 1e3 * (time.process_time() - began) / trials
    reads = np.array([result.reads for _, result in runs])
    share = np.array([squeezers.share for squeezers, _ in runs])
    pure = (share - crosstalk) / (1.0 - 2.0 * crosstalk)
    loss_db = -10.0 * np.log10(np.maximum(pure if sign > 0 else 1.0 - pure, 1e-12))
    told_db = np.array([result.remaining_loss_db for _, result in runs])
    dark_db = -10.0 * np.log10(np.maximum(share, 1e-9))
    fallen_back = sum(result.method != "model" for _, result in runs)
    print(
        f"| {'brightest' if sign > 0 else 'darkest'} | {n} | {noise_db} "
        f"| {f'{10 * np.log10(crosstalk):.0f}' if crosstalk else '–'} "
        f"| {np.median(reads):.0f} / {np.percentile(reads, 95):.0f} / {reads.max()} "
        f"| {np.mean(loss_db < GOAL_LOSS_DB):.2%} | {np.percentile(loss_db, 99):.4f} / {loss_db.max():.4f} "
        f"| {np.mean(loss_db <= told_db):.1%} | {np.median(dark_db):.0f} / {np.percentile(dark_db, 5):.0f} "
        f"| {fallen_back} | {spent_ms:.0f} |",
        flush=True,
    )


def tracking_row(trials: int, reads: int, motion: str, drift_rad: float) -> None:
    """Track the polarization while the fibres before and after four squeezers rotate, each by half of the motion."""
    dithered, centre, told, steps, ends, returns = [], [], [], [], 0, 0
    for seed in range(trials):
        squeezers = Squeezers(seed, 4, 0.01)
        aligner = Aligner(VirtualClock())
        alignment = aligner.maximise("pol", squeezers, squeezers.reading_w)
        tracking = aligner.track("pol", squeezers, squeezers.reading_w, alignment)
        axis, rng = squeezers.random_state(), np.random.default_rng(seed + 1000)
        was_returning = False
        for _ in range(reads):
            turns = rng.standard_normal((2, 3)) / np.sqrt(2.0) if motion == "random walk" else np.stack([axis, -axis])
            turns *= drift_rad / np.sqrt(2.0) if motion == "random walk" else 0.5 * drift_rad
            squeezers.light = turned(squeezers.light, turns[0])
            squeezers.taken = turned(squeezers.taken, turns[1])
            before_mv = squeezers.drive_mv
            state = tracking.step()
            dithered.append(squeezers.share)
            told.append(state.remaining_loss_db)
            steps.append(np.abs(squeezers.drive_mv - before_mv).max())
            ends += state.at_end
            returns += bool(state.returning) and not was_returning
            was_returning = bool(state.returning)
            asked_mv = squeezers.drive_mv
            tracking.freeze()
            centre.append(squeezers.share)
            squeezers.set(asked_mv)
    loss_db, centre_db = -10.0 * np.log10(dithered), -10.0 * np.log10(centre)
    print(
        f"| {motion} | {drift_rad} | {loss_db.mean():.4f} / {np.percentile(loss_db, 99):.3f} / {loss_db.max():.3f} "
        f"| {centre_db.mean():.4f} / {np.percentile(centre_db, 99):.3f} / {centre_db.max():.3f} | {np.mean(told):.3f} "
        f"| {returns} | {ends} | {2.0 * np.pi * max(steps) / PERIOD:.2f} |",
        flush=True,
    )


def turned(state: NDArray[np.float64], vector: NDArray[np.float64]) -> NDArray[np.float64]:
    angle = float(np.linalg.norm(vector))
    return np.asarray(turn_matrix(vector / angle, angle) @ state)


def search_rows(trials: int) -> None:
    print(
        "| wanted | squeezers | noise dB | crosstalk dB | readings: median / 95 % / most | below 0.05 dB "
        "| loss dB: 99 % / worst | loss within the estimate | extinction dB: median / 5 % | by rounds | CPU ms |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    search_row(trials, 3, 0.01, 1)
    search_row(trials, 3, 0.05, 1)
    search_row(trials, 4, 0.01, 1)
    search_row(trials, 3, 0.01, -1)
    search_row(trials, 4, 0.05, -1)
    search_row(trials, 3, 0.01, -1, 1e-2)
    search_row(trials, 3, 0.01, -1, 1e-3)


def tracking_rows(trials: int) -> None:
    print(
        "| motion | rad per reading | loss dB as read: mean / 99 % / worst | at the centre: mean / 99 % / worst "
        "| estimate dB, mean | led back from an end | readings at an end | largest step rad |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for motion, drift_rad in (
        ("random walk", 0.003),
        ("random walk", 0.01),
        ("random walk", 0.03),
        ("one way", 0.003),
        ("one way", 0.01),
    ):
        tracking_row(max(trials // 40, 1), 2000, motion, drift_rad)


def main() -> None:
    trials = int(sys.argv[1]) if len(sys.argv) > 1 else 400
    parts = sys.argv[2:] or ["search", "tracking"]
    if "search" in parts:
        search_rows(trials)
    print()
    if "tracking" in parts:
        tracking_rows(trials)


if __name__ == "__main__":
    main()
