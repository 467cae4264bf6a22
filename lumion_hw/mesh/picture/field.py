"""Light in a mesh as colour: power in dB along the joints (waveguides between PUCs)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lumion_hw.errors import ConfigError
from lumion_hw.mesh.layout.topology import MeshTopology
from lumion_hw.mesh.picture.geometry import Curve, PageLayout

_SCALE = ("#fde725", "#7ad151", "#22a884", "#2a788e", "#414487", "#440154")
"""Viridis colours from bright to dark."""

_STRONGEST, _WEAKEST = 6.5, 1.5  # px


def checked_field_db(mesh: MeshTopology, field_db: ArrayLike) -> NDArray[np.float64]:
    """Check the power in dB of the light that enters each PUC-port and return it as an array.

    Raises:
        ConfigError: The shape is wrong, or a value is NaN.
    """
    field = np.asarray(field_db, dtype=np.float64)
    if field.shape != (4 * mesh.n_pucs,) or np.any(np.isnan(field)):
        raise ConfigError(
            f"cannot draw a field of shape {field.shape}",
            hint=(
                f"Give the power in dB of the wave that enters each of the {4 * mesh.n_pucs} PUC-ports; -inf for no "
                "light."
            ),
        )
    return field


def field_lines(
    mesh: MeshTopology, page: PageLayout, field_db: NDArray[np.float64], range_db: float
) -> Iterator[tuple[Curve, str, float, str]]:
    """Yield curve, colour, width in px and tooltip for every waveguide between PUCs and every port with light.

    Light weaker than the strongest by more than ``range_db`` is not drawn.
    """
    strongest = float(field_db.max(initial=-np.inf))
    for index, (first, second) in enumerate(mesh.joints.tolist()):
        yield from _line(
            page.joint_curve(first, second),
            max(field_db[first], field_db[second]),
            strongest,
            range_db,
            f"joint {index}",
        )
    for port, puc_port in enumerate(mesh.port_puc_port.tolist()):
        yield from _line(page.port_curve(port), field_db[puc_port], strongest, range_db, f"into port {port}")


def _line(
    curve: Curve, power_db: float, strongest_db: float, range_db: float, name: str
) -> Iterator[tuple[Curve, str, float, str]]:
    if not np.isfinite(power_db) or power_db < strongest_db - range_db:
        return
    depth = (strongest_db - power_db) / range_db
    width = _STRONGEST + (_WEAKEST - _STRONGEST) * depth
    yield curve, colour_of(depth), width, f"{name}: {power_db:.1f} dB"


def colour_of(depth: float) -> str:
    """Return the colour for a position on the colour scale, from 0 (strongest light) to 1 (weakest)."""
    return _SCALE[min(int(depth * len(_SCALE)), len(_SCALE) - 1)]


def scale_steps(field_db: NDArray[np.float64], range_db: float) -> list[tuple[str, str]]:
    """Return colour and label for each step of the colour scale."""
    strongest = float(field_db.max(initial=-np.inf))
    step = range_db / len(_SCALE)
    return [(colour, f"{strongest - (i + 1) * step:.0f} dB") for i, colour in enumerate(_SCALE)]
