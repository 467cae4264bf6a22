"""Checks that a heater controller fits its mesh."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from lumion_hw.bench.file.checks import BenchData, Check, mapping
from lumion_hw.bench.file.devices import HeaterDriverModel

if TYPE_CHECKING:
    from lumion_hw.bench.file.model import BenchModel

_MIN_PHASE_PI = 0.25
"""Smallest useful phase range of a heater, in units of π."""
_MAX_TURNS = 3.0
"""Largest phase of a heater at its largest current, in turns; with more, the power per π is probably wrong."""
ROUNDING = 1.01
"""Factor by which a value may miss its limit, because people round values."""


_OF_ALL = ("heater_ohm", "monitor_responsivity_a_per_w", "leave_on_s")
"""Keys in which the controllers of one mesh must agree."""


def heater_check(bench: BenchData, name: str, model: type[HeaterDriverModel]) -> Iterator[Check]:
    """Check that the largest heater current shifts the phase by at least π/4; detects currents given in A, not mA.

    If several controllers drive the mesh, check also that they agree in the properties of the chip.
    """
    from lumion_hw.bench.file.model import TypicalMeshModel

    if not bench.drives_mesh(name):
        return
    device, lead = bench.devices[name], bench.controllers()[0]
    for key in _OF_ALL if lead in bench.devices else ():
        if key in model.model_fields and _number(device, model, key) != _number(bench.devices[lead], model, key):
            message = (
                f"expected the {key} of {lead!r}, because both drive one mesh, found {_number(device, model, key):g}"
            )
            yield Check(("devices", name, key) if key in device else ("devices", name), message, ("devices", lead))
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


def compliance_check(bench: BenchData, name: str) -> Iterator[Check]:
    """Check that the voltage limit of a current source allows the largest heater current."""
    device = bench.devices[name]
    max_ma = _number(device, HeaterDriverModel, "heater_max_ma")
    ohm = _number(device, HeaterDriverModel, "heater_ohm")
    limit_v, needed_v = device.get("compliance_v"), max_ma * ohm * 1e-3
    if isinstance(limit_v, int | float) and 0.0 < limit_v * ROUNDING < needed_v:
        yield Check(
            ("devices", name, "compliance_v"),
            f"expected a voltage limit for heater_max_ma: {max_ma:g} mA needs {needed_v:.3g} V in these heaters "
            f"({ohm:g} Ω); compliance_v is {limit_v:g}",
            ("devices", name, "heater_max_ma") if "heater_max_ma" in device else None,
        )


def reach_note(model: BenchModel) -> str | None:
    """Return a warning if the largest current gives less than 2π in some heater, or many turns, otherwise ``None``."""
    if model.mesh is None:
        return None
    name = model.mesh.controller
    device = model.devices[name]
    if not isinstance(device, HeaterDriverModel):
        return None
    turn_mw = 2.0 * model.mesh.typical.p_pi_max_mw
    max_mw = device.heater_max_ma**2 * device.heater_ohm * 1e-3
    if max_mw > _MAX_TURNS * turn_mw:
        return (
            f"heater_max_ma of {name} is {device.heater_max_ma:g}: this gives {max_mw:.3g} mW in {device.heater_ohm:g} "
            f"Ω, and a phase of {max_mw / turn_mw:.0f} turns in heaters with {model.mesh.typical.p_pi_max_mw:g} mW per "
            "π. Set p_pi_min_mw and p_pi_max_mw in mesh.typical to the values of your heaters."
        )
    if max_mw * ROUNDING >= turn_mw:
        return None
    # Rounded up, so that the current in the message is sufficient.
    needed_ma = math.ceil(100.0 * math.sqrt(1e3 * turn_mw / device.heater_ohm)) / 100.0
    return (
        f"heater_max_ma of {name} is {device.heater_max_ma:g}: this gives {max_mw:.3g} mW in {device.heater_ohm:g} Ω, "
        f"but a phase of 2π needs up to {turn_mw:g} mW (twice mesh.typical.p_pi_max_mw). Set heater_max_ma to "
        f"{needed_ma:g} if chip and driver allow it; otherwise some heaters cannot set every phase."
    )


def heat_note(model: BenchModel, needed_mw: float) -> str | None:
    """Return a warning if the limit of the total power is below ``needed_mw``, otherwise ``None``."""
    device = model.devices[model.mesh_section.controller]
    if not isinstance(device, HeaterDriverModel) or needed_mw <= device.total_power_mw:
        return None
    return (
        f"a calibration heats the chip with up to {math.ceil(needed_mw)} mW, but total_power_mw of "
        f"{model.mesh_section.controller} is {device.total_power_mw:g}. Set total_power_mw to "
        f"{10 * math.ceil(needed_mw / 10.0)} if chip and supply allow it."
    )


def _number(data: Mapping[Any, Any], model: type[BaseModel], key: str) -> float:
    value = data.get(key, model.model_fields[key].default)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0


def channel_check(bench: BenchData, name: str, max_channels: int, driver: str) -> Iterator[Check]:
    """Check that the mesh needs no more drive channels than its controllers have.

    ``max_channels`` is the limit of one controller, and ``driver`` the name of this kind in the message.
    """
    names = bench.controllers()
    max_channels *= len(names)
    needed = bench.channels_needed() if names[:1] == (name,) else 0  # reported once
    if needed > max_channels:
        limit = f"the limit of {driver}" if len(names) == 1 else f"the limit of {len(names)} controllers"
        message = f"expected a mesh with at most {max_channels} drive channels, {limit}, found {needed}"
        yield Check(("mesh", "controller" if len(names) == 1 else "controllers"), message, ("devices", name))
