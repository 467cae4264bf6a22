"""Order in which fibres are moved by hand between ports, and detection of a wrong port.

If laser and meter both move, the laser stays at one port while the meter visits all outputs, then the meter stays while
the laser visits the other inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration.measure.plug_requests import Fibre
from calibration.model.arrays import Real
from calibration.model.device_under_test import PUC_LOSS_DB
from calibration.model.mesh_model import MeshModel
from calibration.model.nominal_heaters import NominalHeaters
from calibration.model.observations import Observations
from calibration.model.parameters import MeshParameters
from lumion_hw.mesh.layout.topology import MeshTopology

# Chips with random phases that predict how strongly each heater changes the light between two ports.
_N_CHIPS = 8
_BACKGROUNDS = 4
_MAX_HEATERS = 32
# Relative response below which a heater is not seen at a port: crosstalk from a neighbour's heat, or noise.
VISIBLE = 0.03
_MIN_RESPONSE = 0.02
# Variance of the logarithm of a response beyond that of the predicted chips.
_RESPONSE_VARIANCE = 0.15
# Difference of two scores (squared deviations in standard errors) from which one port counts as more likely.
_DECISIVE = 16.0
# Mean reading, in units of its noise, from which a port counts as lit.
_BRIGHT_SIGMA = 10.0
# Relative difference of two patterns of readings below which they belong to the same port.
_SAME_PATTERN = 0.05


@dataclass(frozen=True)
class Visit:
    """Period in which the moved fibres stay at their ports.

    Attributes:
        source: Port that gets the light.
        meter: Port of the meter that is moved by hand; ``None`` if no meter is moved.
        moves: Fibres to connect before, with their ports.
    """

    source: int
    meter: int | None
    moves: tuple[tuple[Fibre, int], ...]


class Responses:
    """Settings that show where the fibres are, and expected responses of heaters at every pair of ports.

    Args:
        driven: Shape ``(2E,)``; heaters that may be used.
        max_ma: Shape ``(2E,)``; largest current of every heater.
        rng: Random generator for chips and backgrounds.
    """

    def __init__(
        self,
        mesh: MeshTopology,
        sources: tuple[int, ...],
        monitors: tuple[int, ...],
        heaters: NominalHeaters,
        driven: NDArray[np.bool_],
        max_ma: Real,
        rng: np.random.Generator,
    ) -> None:
        self.sources, self.monitors = sources, monitors
        self._mesh, self._heaters, self._max_ma = mesh, heaters, max_ma
        every = np.flatnonzero(driven)
        squares = max_ma**2 * rng.random((_BACKGROUNDS, len(max_ma)))
        all_responses = self._predicted(self._settings_ma(squares, every), len(every), rng)
        # Mean over chips of the relative response of every driven heater, shape (H, S, M).
        self.strength = np.zeros((len(driven), len(sources), len(monitors)))
        self.strength[every] = all_responses.mean(axis=0)
        # Heaters whose visibility differs most from port to port tell the ports apart.
        spread = np.log(np.maximum(self.strength[every], _MIN_RESPONSE)).reshape(len(every), -1).std(axis=1)
        chosen = np.sort(np.argsort(-spread, kind="stable")[:_MAX_HEATERS])
        self._test_heaters = every[chosen]
        self.currents_ma = self._settings_ma(squares, self._test_heaters)
        logs = np.log(np.maximum(all_responses[:, chosen], _MIN_RESPONSE))
        self._mean, self._variance = logs.mean(axis=0), logs.var(axis=0) + _RESPONSE_VARIANCE

    def _settings_ma(self, squares_ma2: Real, heaters: NDArray[np.int64]) -> Real:
        half_ma2 = np.pi / float(np.mean(self._heaters.rho2_range))
        up_ma2 = squares_ma2 + half_ma2
        moved_ma2 = np.where(up_ma2 <= self._max_ma**2, up_ma2, np.maximum(squares_ma2 - half_ma2, 0.0))
        # Each background is followed by a setting for every heater, with this heater moved.
        settings_ma2 = np.repeat(squares_ma2[:, None], 1 + len(heaters), axis=1)
        settings_ma2[:, 1 + np.arange(len(heaters)), heaters] = moved_ma2[:, heaters]
        return np.sqrt(settings_ma2.reshape(-1, len(self._max_ma)))

    def _predicted(self, currents_ma: Real, count: int, rng: np.random.Generator) -> Real:
        mesh, heaters = self._mesh, self._heaters
        model = MeshModel(mesh, self.sources, self.monitors, heaters.ohm)
        n_sources = len(self.sources)
        no_readings = np.zeros((n_sources * len(currents_ma), len(self.monitors)))
        currents, source = np.tile(currents_ma, (n_sources, 1)), np.repeat(self.sources, len(currents_ma))
        settings = Observations(currents, source, self.monitors, no_readings, no_readings > 0.0)
        laws = np.zeros((2 * mesh.n_pucs, 3))
        laws[:, 0] = np.mean(heaters.rho2_range)
        chip_responses = []
        for _ in range(_N_CHIPS):
            chip = MeshParameters(
                passive_phase_rad=rng.uniform(0.0, 2.0 * np.pi, mesh.n_pucs),
                heater_law=laws,
                loss_db=PUC_LOSS_DB * mesh.loss_share,
                coupler_common_rad=np.zeros(mesh.n_pucs),
                coupler_difference_rad=np.zeros(mesh.n_pucs),
                joint_phase_rad=rng.uniform(0.0, 2.0 * np.pi, len(mesh.joints)),
                source_db=np.zeros(n_sources),
                monitor_ma_per_mw=np.ones(len(self.monitors)),
                crosstalk_rad_per_mw=heaters.kernel,
            )
            readings = model.predict(chip, settings).reshape(n_sources, len(currents_ma), len(self.monitors))
            chip_responses.append(responses(np.moveaxis(readings, 0, 1), count))
        return np.array(chip_responses)

    def columns(self, visit: Visit, monitors_by_hand: Sequence[int]) -> list[int]:
        """Return the positions of the monitors that are read during a visit."""
        return [
            column for column, port in enumerate(self.monitors) if port not in monitors_by_hand or port == visit.meter
        ]

    def shares(self, visits: Sequence[Visit], monitors_by_hand: Sequence[int]) -> Real:
        """Return the fraction of the random settings for each visit (position of the fibres): by heaters seen there."""
        ports = [[self.monitors[column] for column in self.columns(visit, monitors_by_hand)] for visit in visits]
        counts = np.array([self.visible(visit.source, own).sum() for visit, own in zip(visits, ports, strict=True)])
        return np.asarray((counts + 1.0) / (counts.sum() + len(counts)))

    def visible(self, source: int, monitors: Sequence[int]) -> NDArray[np.bool_]:
        """Return which heaters change the light of a source at one of the given monitors, shape ``(2E,)``."""
        columns = [self.monitors.index(port) for port in monitors]
        strongest = self.strength[:, self.sources.index(source)][:, columns].max(axis=1, initial=0.0)
        return np.asarray(strongest > VISIBLE)

    def find_likely_port(
        self, readings_ma: Real, visit: Visit, candidates: Sequence[tuple[Fibre, int]], floor_ma: float
    ) -> tuple[Fibre, int] | None:
        """Return the fibre that seems to be in a wrong port, and this port; ``None`` if all may be right.

        Args:
            readings_ma: Shape ``(n, M)``; readings at :attr:`currents_ma`, NaN at ports without a meter.
            visit: Requested ports.
            candidates: Fibres with other possible ports.
            floor_ma: Noise of a reading.
        """
        columns = np.flatnonzero(np.isfinite(readings_ma).all(axis=0))
        columns = columns[readings_ma[:, columns].mean(axis=0) > _BRIGHT_SIGMA * floor_ma]
        logs = np.log(np.maximum(responses(readings_ma[:, columns], len(self._test_heaters)), _MIN_RESPONSE))

        def score(source: int, meter: int | None) -> float:
            own_columns = columns if meter is None else [self.monitors.index(meter)]
            mean, variance = (
                moments[:, self.sources.index(source)][:, own_columns] for moments in (self._mean, self._variance)
            )
            return float(((logs - mean) ** 2 / variance + np.log(variance)).sum())

        scores = {
            (fibre, port): score(*((port, visit.meter) if fibre == "laser" else (visit.source, port)))
            for fibre, port in candidates
        }
        best = min(scores, key=scores.__getitem__, default=None)
        is_decisive = best is not None and score(visit.source, visit.meter) - scores[best] >= _DECISIVE
        return best if is_decisive else None


def responses(readings_ma: Real, count: int) -> Real:
    """Return the relative change of readings of shape ``(n, ...)`` by each of ``count`` heaters."""
    blocks = readings_ma.reshape(_BACKGROUNDS, 1 + count, *readings_ma.shape[1:])
    mean = np.maximum(blocks.mean(axis=(0, 1)), 1e-30)
    return np.asarray(np.sqrt(np.mean((blocks[:, 1:] - blocks[:, :1]) ** 2, axis=0)) / mean)


def is_same_pattern(one_ma: Real, other_ma: Real) -> bool:
    """Return whether two readings of the same settings, shape ``(n, M)``, are proportional within a few per cent."""
    is_read = np.isfinite(one_ma).all(axis=0), np.isfinite(other_ma).all(axis=0)
    # A moved meter has its readings in the column of its requested port.
    first, second = one_ma[:, is_read[0]], other_ma[:, is_read[1]]
    if first.shape != second.shape or not first.size or first.sum() <= 0.0 or second.sum() <= 0.0:
        return False
    first, second = first / first.mean(), second / second.mean()
    swing = float(np.sqrt(np.mean((first - first.mean(axis=0)) ** 2)))
    return float(np.sqrt(np.mean((first - second) ** 2))) < _SAME_PATTERN * swing


def plan_visits(responses: Responses, sources_by_hand: Sequence[int], monitors_by_hand: Sequence[int]) -> list[Visit]:
    """Return the order of visits that shows as many heaters as possible with the fewest connections by hand.

    Args:
        responses: Expected responses of the heaters.
        sources_by_hand: Ports of the laser that is moved.
        monitors_by_hand: Ports of the meter that is moved.
    """
    sources, fixed = responses.sources, [port for port in responses.monitors if port not in monitors_by_hand]
    visible = {
        (source, meter): responses.visible(source, [*fixed, meter])
        for source in sources
        for meter in (monitors_by_hand or fixed[:1])
    }
    if not monitors_by_hand:
        first = max(sources, key=lambda source: (visible[source, fixed[0]].sum(), -source))
        return _with_moves([(source, None) for source in _starting_with(first, sources)], sources_by_hand, ())
    if not sources_by_hand:
        turns = enumerate(monitors_by_hand)
        order = [(source, meter) for number, meter in turns for source in sources[:: (-1) ** number]]
        return _with_moves(order, (), monitors_by_hand)

    def visible_counts(corner: tuple[int, int]) -> tuple[int, int]:
        row = [visible[corner[0], meter] for meter in monitors_by_hand]
        column = [visible[source, corner[1]] for source in sources]
        return int(np.any([*row, *column], axis=0).sum()), int(visible[corner].sum())

    source, last = max(visible, key=visible_counts)
    other_meters = [meter for meter in monitors_by_hand if meter != last]
    first_meter = max(other_meters, key=lambda meter: int(visible[source, meter].sum()), default=None)
    meters = [*_starting_with(first_meter, other_meters), last] if first_meter is not None else [last]
    order = [(source, meter) for meter in meters]
    order += [(other, last) for other in _starting_with(source, sources)[1:]]
    return _with_moves(order, sources_by_hand, monitors_by_hand)


def _starting_with(first: int, ports: Sequence[int]) -> list[int]:
    return [first, *(port for port in sorted(ports) if port != first)]


def _with_moves(
    order: Sequence[tuple[int, int | None]], sources_by_hand: Sequence[int], monitors_by_hand: Sequence[int]
) -> list[Visit]:
    at: dict[Fibre, int] = {}
    visits = []
    for source, meter in order:
        ports: Mapping[Fibre, int | None] = {
            "laser": source if source in sources_by_hand else None,
            "meter": meter if meter in monitors_by_hand else None,
        }
        moves = tuple((fibre, port) for fibre, port in ports.items() if port is not None and at.get(fibre) != port)
        at.update(moves)
        visits.append(Visit(source, meter, moves))
    return visits
