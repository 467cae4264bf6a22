"""Draw numbers per PUC or cell on a picture of the mesh, as colours and as text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from lumion_hw.errors import ConfigError
from lumion_hw.files.escaping import xml_text
from lumion_hw.mesh.layout.topology import MeshTopology
from lumion_hw.mesh.picture.geometry import MARGIN, PageLayout

_VIRIDIS = (
    "#440154", "#482475", "#414487", "#355f8d", "#2a788e", "#21918c", "#22a884", "#44bf70", "#7ad151", "#bddf26",
    "#fde725",
)  # fmt: skip
"""Viridis colours from low to high."""

_STEPS = 24
_DECADES = 1.5
"""The colour scale is logarithmic if the numbers span more than this many powers of ten."""
_SCALE_WIDTH = 320.0  # px
_DISC = 0.3
"""Radius of the disc that marks a cell, in PUC lengths."""
_INK, _PAPER = "#1d2733", "#ffffff"


@dataclass(frozen=True)
class PictureValues:
    """Numbers to draw on the PUCs and cells of a mesh.

    Attributes:
        name: Name of the quantity, written at the colour scale.
        pucs: Numbers by PUC; PUCs without a number are drawn empty.
        cells: Numbers by cell, in the order of ``MeshTopology.faces``.
        scale: Ends of the colour scale; by default the smallest and the largest number.
    """

    name: str
    unit: str
    pucs: Mapping[int, float] = field(default_factory=dict)
    cells: Mapping[int, float] = field(default_factory=dict)
    scale: tuple[float, float] | None = None

    def check(self, mesh: MeshTopology) -> None:
        """Check that the numbers can be drawn on a mesh.

        Raises:
            ConfigError: A PUC or cell does not exist, or a number is not finite.
        """
        numbers = [*self.pucs.items(), *self.cells.items()]
        unknown = [puc for puc in self.pucs if not 0 <= puc < mesh.n_pucs]
        unknown += [cell for cell in self.cells if not 0 <= cell < len(mesh.faces)]
        if unknown or not all(math.isfinite(value) for _, value in numbers):
            raise ConfigError(
                f"cannot draw the values of {self.name!r} on mesh {mesh.label!r}",
                hint="Give finite numbers for PUCs and cells that the mesh has; omit unknown values.",
            )

    @property
    def title(self) -> str:
        """Quantity with its unit, if it has one."""
        return f"{self.name}, {self.unit}" if self.unit else self.name

    @property
    def limits(self) -> tuple[float, float]:
        """Ends of the colour scale."""
        if self.scale is not None:
            return self.scale
        numbers = [*self.pucs.values(), *self.cells.values()]
        return (min(numbers), max(numbers)) if numbers else (0.0, 1.0)

    @property
    def logarithmic(self) -> bool:
        """Whether the colour scale is logarithmic."""
        low, high = self.limits
        return low > 0.0 and math.log10(high / low) > _DECADES

    def position(self, value: float) -> float:
        """Return the position of a number on the colour scale, 0 … 1."""
        low, high = self.limits
        # All numbers are equal, and the scale has no length.
        if high <= low:
            return 0.0
        if self.logarithmic:
            return math.log(value / low) / math.log(high / low)
        return (value - low) / (high - low)

    def value_at(self, position: float) -> float:
        """Return the number at a position on the colour scale, 0 … 1."""
        low, high = self.limits
        return low * (high / low) ** position if self.logarithmic else low + position * (high - low)

    def format_value(self, value: float) -> str:
        """Return a number as text for the picture, with about two significant digits."""
        low, high = self.limits
        size = max(abs(low), abs(high), 1e-12)
        if not 1e-3 <= size < 1e4:
            return f"{value:.1e}"
        if self.scale is not None:
            return f"{value:.2g}"
        # About two significant digits of the largest number; on a logarithmic scale, of each number.
        digits = max(0, 1 - math.floor(math.log10(size)))
        if self.logarithmic and value:
            digits = max(0, 1 - math.floor(math.log10(abs(value))))
        return f"{value:.{digits}f}"

    def colours(self, value: float) -> tuple[str, str]:
        """Return the colour for a number, and a text colour that is readable on it."""
        colour = colour_at(self.position(value))
        red, green, blue = (int(colour[i : i + 2], 16) / 255.0 for i in (1, 3, 5))
        # Brightness as the eye sees it, with the weights of ITU-R BT.601.
        return colour, _INK if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else _PAPER


def colour_at(position: float) -> str:
    """Return the colour at a position on the colour scale, 0 … 1."""
    place = min(max(position, 0.0), 1.0) * (len(_VIRIDIS) - 1)
    index = min(int(place), len(_VIRIDIS) - 2)
    first, second = (
        np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) for colour in (_VIRIDIS[index], _VIRIDIS[index + 1])
    )
    red, green, blue = np.rint(first + (place - index) * (second - first)).astype(int).tolist()
    return f"#{red:02x}{green:02x}{blue:02x}"


def value_figures(mesh: MeshTopology, page: PageLayout, values: PictureValues) -> Iterator[str]:
    """Write the numbers on PUCs and cells, and draw the colour scale at the top right."""
    for puc, value in values.pucs.items():
        x, y = page.centre(puc)[0]
        yield _text(x, y + 3.5, values.format_value(value), 10, fill=values.colours(value)[1])
    for cell, value in values.cells.items():
        x, y = page.px(mesh.puc_centres[list(mesh.faces[cell])].mean(axis=0))
        colour, ink = values.colours(value)
        text = xml_text(f"cell {cell}: {value:.4g} {values.unit}")
        radius = _DISC * page.scale
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill="{colour}"><title>{text}</title></circle>'
        yield _text(x, y + 4.5, values.format_value(value), 13, fill=ink)
    yield from _scale(page, values)


def _scale(page: PageLayout, values: PictureValues) -> Iterator[str]:
    left, width = page.width - MARGIN - _SCALE_WIDTH, _SCALE_WIDTH / _STEPS
    for step in range(_STEPS):
        colour = colour_at((step + 0.5) / _STEPS)
        yield f'<rect x="{left + step * width:.1f}" y="30" width="{width + 0.5:.1f}" height="14" fill="{colour}"/>'
    for position, anchor in ((0.0, "start"), (0.5, "middle"), (1.0, "end")):
        yield _text(
            left + position * _SCALE_WIDTH, 57, values.format_value(values.value_at(position)), 11, anchor=anchor
        )
    text = f"{values.title}{' (logarithmic)' if values.logarithmic else ''}"
    yield _text(left + _SCALE_WIDTH, 23, text, 12, anchor="end")


def _text(x: float, y: float, text: str, size: int, *, fill: str = _INK, anchor: str = "middle") -> str:
    style = f'font-size="{size}" fill="{fill}" text-anchor="{anchor}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{xml_text(text)}</text>'
