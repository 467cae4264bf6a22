"""Options of ``lumion-calibrate`` about how much is to be known, and what that may cost."""

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
        help="Wanted standard error of passive phases and loops, rms; 1 mrad if not given.",
    ),
    click.option("--seconds", type=Number("s", 0.0, 1e6, above=True), help="Most hardware time; 90 s if not given."),
    click.option("--settings", type=click.IntRange(1, MANY), help="Most settings; 5000 if not given."),
)


def goal_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options ``sigma_mrad``, ``seconds`` and ``settings``."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def goal_of(sigma_mrad: float | None, seconds: float | None, settings: int | None) -> Goal:
    """Return the goal that options ask for."""
    from calibration.run.planning import Goal

    usual = Goal()
    return Goal(
        usual.sigma_rad if sigma_mrad is None else 1e-3 * sigma_mrad,
        usual.hardware_s if seconds is None else seconds,
        usual.settings if settings is None else settings,
    )


def goal_words(sigma_mrad: float | None, seconds: float | None, settings: int | None) -> list[str]:
    """Return the words of a command line that ask for a goal."""
    asked = (("--sigma-mrad", sigma_mrad), ("--seconds", seconds), ("--settings", settings))
    return [word for name, value in asked if value is not None for word in (name, f"{value:.10g}")]
