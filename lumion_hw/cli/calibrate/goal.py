"""Options of ``lumion-calibrate`` for the target accuracy and for limits of time and settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from lumion_hw.cli.common.numbers import MAX_COUNT, Number

if TYPE_CHECKING:
    from calibration.run.planning import Goal

_OPTIONS = (
    click.option(
        "--sigma-mrad",
        type=Number("mrad", 0.0, 1000.0, above=True),
        help="Target standard error of passive phases and loop phases, rms in mrad.  [default: 1]",
    ),
    click.option(
        "--seconds",
        type=Number("s", 0.0, 1e6, above=True),
        help="Largest measurement time on the hardware, in seconds.  [default: 90]",
    ),
    click.option(
        "--settings",
        type=click.IntRange(1, MAX_COUNT),
        help="Largest number of heater settings to measure.  [default: 5000]",
    ),
)


def goal_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options ``--sigma-mrad``, ``--seconds`` and ``--settings`` to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def goal_of(sigma_mrad: float | None, seconds: float | None, settings: int | None) -> Goal:
    """Return the calibration goal given by the options."""
    from calibration.run.planning import Goal

    default = Goal()
    return Goal(
        default.sigma_rad if sigma_mrad is None else 1e-3 * sigma_mrad,
        default.hardware_s if seconds is None else seconds,
        default.settings if settings is None else settings,
    )


def goal_arguments(sigma_mrad: float | None, seconds: float | None, settings: int | None) -> list[str]:
    """Return the command-line arguments that give a calibration goal."""
    options = (("--sigma-mrad", sigma_mrad), ("--seconds", seconds), ("--settings", settings))
    return [part for name, value in options if value is not None for part in (name, f"{value:.10g}")]
