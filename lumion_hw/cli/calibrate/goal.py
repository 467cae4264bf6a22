"""Options of ``lumion-calibrate`` for the required accuracy and the limits of the effort."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from lumion_hw.cli.common.numbers import MANY, Number

if TYPE_CHECKING:
    from calibration.run.planning import Goal

_OPTIONS = (
    click.option(
        "--sigma-mrad",
        type=Number("mrad", 0.0, 1000.0, above=True),
        help="Required rms standard error of passive phases and loops, in mrad; default: 1.",
    ),
    click.option(
        "--seconds", type=Number("s", 0.0, 1e6, above=True), help="Maximum hardware time, in seconds; default: 90."
    ),
    click.option("--settings", type=click.IntRange(1, MANY), help="Maximum number of settings; default: 5000."),
)


def goal_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options ``sigma_mrad``, ``seconds`` and ``settings`` to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def goal_of(sigma_mrad: float | None, seconds: float | None, settings: int | None) -> Goal:
    """Return the goal for the given options."""
    from calibration.run.planning import Goal

    usual = Goal()
    return Goal(
        usual.sigma_rad if sigma_mrad is None else 1e-3 * sigma_mrad,
        usual.hardware_s if seconds is None else seconds,
        usual.settings if settings is None else settings,
    )


def goal_words(sigma_mrad: float | None, seconds: float | None, settings: int | None) -> list[str]:
    """Return the command-line words for a goal."""
    asked = (("--sigma-mrad", sigma_mrad), ("--seconds", seconds), ("--settings", settings))
    return [word for name, value in asked if value is not None for word in (name, f"{value:.10g}")]
