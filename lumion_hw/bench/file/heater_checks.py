"""Checks of the controller of heater currents against the mesh that it drives, for the kinds of these controllers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from lumion_hw.bench.file.checks import BenchData, Check, mapping
from lumion_hw.bench.file.devices import HeaterDriverModel

_LEAST_TURN = 0.25
"""Least phase that a heater has to reach, in half turns: a calibration cannot tell less from drift and noise."""


def heater_check(bench: BenchData, name: str) -> Iterator[Check]:
    """Check that the heaters can move the light: a current in A in place of mA cannot."""
    from lumion_hw.bench.file.model import TypicalMeshModel

    if bench.mesh.get("controller") != name:
        return
    device = bench.devices[name]
    max_ma = _number(device, HeaterDriverModel, "heater_max_ma")
    ohm = _number(device, HeaterDriverModel, "heater_ohm")
    p_pi_mw = _number(mapping(bench.mesh.get("typical")), TypicalMeshModel, "p_pi_min_mw")
    most_mw = max_ma**2 * ohm * 1e-3
    if 0.0 < most_mw < _LEAST_TURN * p_pi_mw:
        yield Check(
            ("devices", name, "heater_max_ma"),
            f"expected a current in mA that moves the light, found {max_ma:g} mA: through {ohm:g} Ω that is "
            f"{most_mw:.2g} mW, and half a turn of the phase takes at least {p_pi_mw:g} mW (mesh.typical.p_pi_min_mw)",
        )


def _number(data: Mapping[Any, Any], model: type[BaseModel], key: str) -> float:
    """Return a number of the file or its default; 0 where the model reports a mistake."""
    value = data.get(key, model.model_fields[key].default)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0


def channel_check(bench: BenchData, name: str, most: int, driver: str) -> Iterator[Check]:
    """Check that a controller can have as many drive channels as its mesh needs.

    Args:
        bench: The bench file.
        name: Name of the controller.
        most: Most channels that it can have.
        driver: What has them, for the message.
    """
    needed = bench.channels_needed() if bench.mesh.get("controller") == name else 0
    if needed > most:
        message = f"expected a mesh of at most {most} drive channels, which is what {driver} can have, found {needed}"
        yield Check(("mesh", "controller"), message, ("devices", name))
