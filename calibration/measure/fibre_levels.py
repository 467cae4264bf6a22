"""Losses from the mesh into the fibres, measured with external meters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from calibration.measure.probe import Probe
from calibration.model.mesh_model import MeshModel
from calibration.model.observations import Observations
from calibration.model.parameters import MeshParameters
from calibration.model.response import mesh_physics

SETTINGS_PER_SOURCE = 6
# Below this power on the chip, a small error of the model is a large error in dB.
_MIN_DBM = -35.0
_MIN_SIGMA_DB = 0.02


@dataclass(frozen=True)
class FibreReadings:
    """Powers in the output fibres at one setting.

    Attributes:
        setting: Number of the setting among all stored readings.
        level_dbm: Power in dBm by port.
    """

    setting: int
    level_dbm: Mapping[int, float]


def fibre_losses_db(
    probe: Probe,
    model: MeshModel,
    parameters: MeshParameters,
    settings: Observations,
    on_step: Callable[[int, int], None] = lambda step, total: None,
) -> dict[int, tuple[float, float]]:
    """Return the loss into the fibre at every port with a meter, and the standard error, in dB.

    A few of ``settings`` are measured for each source, or for the first one only if no meter reads its light.
    ``on_step`` is called after each setting.
    """
    chosen = np.concatenate([_spread(settings, source) for source in model.space.sources])
    chosen_settings = settings[chosen]
    levels = list[dict[int, float]]()
    for index in range(len(chosen_settings)):
        if index == SETTINGS_PER_SOURCE and not any(levels):
            break
        probe.light_only_port(int(chosen_settings.source[index]))
        probe.measure(chosen_settings.currents_ma[index])
        levels.append(probe.fibre_dbm())
        on_step(index + 1, len(chosen_settings))
    return losses_from_levels_db(model, parameters, chosen_settings, levels)


def losses_from_levels_db(
    model: MeshModel, parameters: MeshParameters, observations: Observations, levels: Sequence[Mapping[int, float]]
) -> dict[int, tuple[float, float]]:
    """Return the loss into the fibre at every port with a meter, and the standard error, in dB.

    Args:
        model: The model of the mesh.
        parameters: The fitted parameters.
        observations: Settings.
        levels: Power in dBm in the fibres at every setting, by port.
    """
    if not (ports := tuple(sorted(set().union(*levels)))):
        return {}
    # The same mesh with a responsivity of one at all ports predicts the power that leaves into each fibre.
    no_readings = np.zeros((len(observations), len(ports)))
    unread = replace(observations, monitors=ports, reading_ma=no_readings, saturated=no_readings > 0.0)
    in_mesh = mesh_physics(parameters.extra_physics)
    single_source = replace(parameters, monitor_ma_per_mw=np.ones(len(ports)), extra_physics=in_mesh)
    leaving_mw = model.with_monitors(ports).predict(single_source, unread)
    leaving_dbm = 10.0 * np.log10(np.maximum(leaving_mw, 1e-30))
    losses: dict[int, tuple[float, float]] = {}
    for column, port in enumerate(ports):
        read = [(index, level[port]) for index, level in enumerate(levels) if port in level]
        differences_db = [
            leaving_dbm[index, column] - dbm for index, dbm in read if leaving_dbm[index, column] > _MIN_DBM
        ]
        if differences_db:
            # The median ignores settings in which the port is nearly dark, where a small model error is several dB.
            scatter = float(np.std(differences_db)) / np.sqrt(len(differences_db))
            losses[port] = float(np.median(differences_db)), max(scatter, _MIN_SIGMA_DB)
    return losses


def _spread(settings: Observations, source: int) -> np.ndarray:
    own = np.flatnonzero(settings.source == source)
    if not len(own):
        return own
    return own[np.unique(np.linspace(0, len(own) - 1, SETTINGS_PER_SOURCE).astype(np.int64))]
