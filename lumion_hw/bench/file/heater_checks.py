"""Checks that a controller of heater currents fits the mesh that it drives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from lumion_hw.bench.file.checks import BenchData, Check, mapping
from lumion_hw.bench.file.devices import HeaterDriverModel

_MIN_PHASE_PI = 0.25
"""Smallest phase range of a heater, in units of π: smaller changes cannot be told apart from drift and noise."""


def heater_check(bench: BenchData, name: str) -> Iterator[Check]:
    """Check that the largest heater current changes the phase enough; detects a current in A instead of mA."""
    from lumion_hw.bench.file.model import TypicalMeshModel

    if bench.mesh.get("controller") != name:
        return
    device = bench.devices[name]
    max_ma = _number(device, HeaterDriverModel, "heater_max_ma")
    ohm = _number(device, HeaterDriverModel, "heater_ohm")
    p_pi_mw = _number(mapping(bench.mesh.get("typical")), TypicalMeshModel, "p_pi_min_mw")
    max_mw = max_ma**2 * ohm * 1e-3
    if 0.0 < max_mw < _MIN_PHASE_PI * p_pi_mw:
        yield Check(
            ("devices", name, "heater_max_ma"),
            f"expected a current in mA that is large enough, found {max_ma:g} mA: with {ohm:g} Ω this is "
            f"{max_mw:.2g} mW, but a phase of π needs at least {p_pi_mw:g} mW (mesh.typical.p_pi_min_mw)",
        )


def _number(data: Mapping[Any, Any], model: type[BaseModel], key: str) -> float:
    """Return a number from the bench file, or its default; 0 if the value is not a number."""
    value = data.get(key, model.model_fields[key].default)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0


def channel_check(bench: BenchData, name: str, max_channels: int, driver: str) -> Iterator[Check]:
    """Check that the mesh needs no more drive channels than its controller can have.

    Args:
        bench: The bench file.
        name: Name of the controller.
        max_channels: Largest number of channels of this kind of controller.
        driver: Name of the controller, for the message.
    """
    needed = bench.channels_needed() if bench.mesh.get("controller") == name else 0
    if needed > max_channels:
        message = f"expected a mesh with at most {max_channels} drive channels, the limit of {driver}, found {needed}"
        yield Check(("mesh", "controller"), message, ("devices", name))
