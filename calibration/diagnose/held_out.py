"""How readings that took no part in any fit compare with what a record predicts, and which PUCs to suspect."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Kind = Literal["random", "states"]
KINDS: tuple[Kind, ...] = ("random", "states")
"""Random heater currents, and programmed bar and cross states as routing uses them."""


@dataclass(frozen=True)
class HeldOut:
    """One monitor at one setting.

    Powers are those leaving the mesh at the port: the photocurrent over the record's responsivity of that monitor.

    Attributes:
        setting: Number of the setting.
        kind: What kind of setting.
        source: Port where light entered.
        port: Port of the monitor.
        predicted_dbm: What the record predicts.
        error_db: Measured minus predicted; where one of the two is below what can be judged, that level stands for it.
        noise_db: Standard deviation of it by the noise of the reading alone.
        error_sigma: The error in standard errors of reading and prediction together.
    """

    setting: int
    kind: Kind
    source: int
    port: int
    predicted_dbm: float
    error_db: float
    noise_db: float
    error_sigma: float


@dataclass(frozen=True)
class Verification:
    """All that was compared.

    Attributes:
        results: By setting and monitor.
        suspects: PUCs whose phase, moved, would explain most of what is off beyond noise, the worst first.
    """

    results: tuple[HeldOut, ...]
    suspects: tuple[int, ...] = ()

    def of(self, kind: Kind) -> Verification:
        """Return the results of one kind of settings."""
        return Verification(tuple(result for result in self.results if result.kind == kind))

    @property
    def errors_db(self) -> NDArray[np.float64]:
        """Every error."""
        return np.array([result.error_db for result in self.results])

    @property
    def rms_db(self) -> float:
        """Root mean square error. Raises ``ValueError`` without results."""
        return rms_db(self.results)

    @property
    def noise_db(self) -> float:
        """What that would be by the noise of the readings alone."""
        return float(np.sqrt(np.mean(np.square([result.noise_db for result in self.results]))))

    @property
    def excess_db(self) -> float:
        """What is left of the root mean square error when that noise is taken out of it: the record's own."""
        return float(np.sqrt(max(self.rms_db**2 - self.noise_db**2, 0.0)))

    @property
    def chi2(self) -> float:
        """Mean square of the errors in standard errors: 1 where the record knows how good it is."""
        return float(np.mean(np.square([result.error_sigma for result in self.results])))

    @property
    def settings(self) -> int:
        """Number of settings with anything to judge."""
        return len({result.setting for result in self.results})

    def words(self) -> str:
        """Return how far off light is, in a sentence."""
        return (
            f"light on settings that no fit has seen is off by {self.rms_db:.2f} dB rms, {self.excess_db:.2f} dB "
            f"beyond noise; suspect PUCs: {', '.join(map(str, self.suspects)) or 'none'}"
        )

    def figures(self) -> dict[str, float]:
        """Return the figures for a record's ``quality``; without results only that there are none."""
        figures = {"held_out_readings": float(len(self.results)), "held_out_settings": float(self.settings)}
        if not self.results:
            return figures
        errors = np.abs(self.errors_db)
        figures |= {
            "held_out_rms_db": self.rms_db,
            "held_out_noise_db": self.noise_db,
            "held_out_excess_db": self.excess_db,
            "held_out_median_db": float(np.median(errors)),
            "held_out_worst_db": float(np.max(errors)),
            "held_out_chi2": self.chi2,
        }
        parts = {kind: part for kind in KINDS if (part := self.of(kind)).results}
        return figures | {f"held_out_{kind}_rms_db": part.rms_db for kind, part in parts.items()}


def rms_db(results: Iterable[HeldOut]) -> float:
    """Return the root mean square error in dB. Raises ``ValueError`` without results."""
    errors = [result.error_db for result in results]
    if not errors:
        raise ValueError("no light could be judged")
    return float(np.sqrt(np.mean(np.square(errors))))
