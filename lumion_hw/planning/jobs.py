"""Job mixes: sizes of jobs in accelerators, and the frequency of each size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from lumion_hw.errors import ConfigError, UnknownNameError
from lumion_hw.files import AnyPath
from lumion_hw.schedules.demand import read_counts

ShareBasis = Literal["jobs", "accelerators"]
_MAX_SIZE = 65_536


@dataclass(frozen=True)
class JobMix:
    """Job sizes in accelerators (``sizes``), and the fraction of the jobs that have each size (``shares``)."""

    sizes: tuple[int, ...]
    shares: tuple[float, ...]

    @classmethod
    def from_weights(cls, weights: dict[int, float], counted_by: ShareBasis = "jobs") -> JobMix:
        """Return the job mix in which each size has a given weight.

        Args:
            weights: Weight of every size, in any unit.
            counted_by: ``jobs`` if the weights are proportional to numbers of jobs, ``accelerators`` if they are
                proportional to the accelerators that these jobs use.

        Raises:
            ConfigError: A size is not a valid integer, a weight is negative or not finite, or all weights are 0.
        """
        if counted_by not in ("jobs", "accelerators"):
            raise ConfigError(f"counted_by must be 'jobs' or 'accelerators', not {counted_by!r}")
        for size, weight in weights.items():
            if not 1 <= size <= _MAX_SIZE or size != int(size):
                raise ConfigError(
                    f"a job cannot have {size} accelerators", hint=f"Give whole numbers from 1 to {_MAX_SIZE}."
                )
            if not (np.isfinite(weight) and weight >= 0.0):
                raise ConfigError(
                    f"the share of jobs of {size} accelerators is {weight}", hint="Give a finite number of at least 0."
                )
        positive = {int(size): weight for size, weight in sorted(weights.items()) if weight > 0.0}
        if not positive:
            raise ConfigError("all weights of the job mix are 0")
        jobs = np.array([weight / (size if counted_by == "accelerators" else 1) for size, weight in positive.items()])
        return cls(tuple(positive), tuple((jobs / jobs.sum()).tolist()))

    def draw(self, rng: np.random.Generator, count: int) -> NDArray[np.int64]:
        """Return random sizes of ``count`` jobs, shape ``(count,)``."""
        return rng.choice(np.array(self.sizes), size=count, p=np.array(self.shares))


# The table of TPU v4 (ISCA 2023) for slices below a rack, as recalled by the authors of this file and not checked
# against the paper: shares of use by topology.
MIXES: dict[str, JobMix] = {
    "tpu-v4-small": JobMix.from_weights({4: 6.8, 8: 6.4, 16: 8.9, 32: 10.6}),
    "even": JobMix.from_weights({4: 1.0, 8: 1.0, 16: 1.0, 32: 1.0}),
}
"""Job mixes by name. The numbers of ``tpu-v4-small`` have not been checked against their source."""


def job_mix(name_or_file: AnyPath, counted_by: ShareBasis = "jobs") -> JobMix:
    """Return a mix by name, or from a CSV file with a line ``size, share`` per size.

    Raises:
        ConfigError: No mix or file has this name, or the file has other content.
    """
    name = str(name_or_file)
    if name in MIXES:
        return MIXES[name]
    if not name.endswith((".csv", ".npy")):
        raise UnknownNameError(f"no mix of jobs is called {name!r}", hint=f"Give {', '.join(MIXES)} or a .csv file.")
    rows = read_counts(name_or_file)
    if rows.shape[1] != 2:
        raise ConfigError(
            f"{name}: a row has {rows.shape[1]} numbers, expected 2", hint="Give a size and its share in each row."
        )
    if len(np.unique(rows[:, 0])) < len(rows):
        raise ConfigError(f"{name}: a size is listed twice")
    return JobMix.from_weights(dict(rows.tolist()), counted_by)
