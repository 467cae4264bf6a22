"""Numbers on a picture of the mesh: one per PUC, per cell of the mesh, or both, as colour and in figures."""

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
"""Low to high, evenly perceived, also by colour-blind readers and in grey."""

_STEPS = 24
_DECADES = 1.5
"""Spread of the numbers, in powers of ten, beyond which the scale is logarithmic."""
_SCALE_WIDTH = 320.0  # px
_DISC = 0.3
"""Radius of the disc of a cell, in PUC lengths."""
_INK, _PAPER = "#1d2733", "#ffffff"


@dataclass(frozen=True)
class PictureValues:
    """What to draw.

    Attributes:
        name: What the numbers are, for the scale.
        unit: Their unit.
        pucs: Numbers by PUC; those missing are drawn empty.
        cells: Numbers by cell, in the order of ``MeshTopology.faces``.
    """

    name: str
    unit: str
    pucs: Mapping[int, float] = field(default_factory=dict)
    cells: Mapping[int, float] = field(default_factory=dict)

    def check(self, mesh: MeshTopology) -> None:
        """Refuse numbers that cannot be drawn.

        Raises:
            ConfigError: A PUC or cell does not exist, or a number is none.
        """
        numbers = [*self.pucs.items(), *self.cells.items()]
        unknown = [puc for puc in self.pucs if not 0 <= puc < mesh.n_pucs]
        unknown += [cell for cell in self.cells if not 0 <= cell < len(mesh.faces)]
        if unknown or not all(math.isfinite(value) for _, value in numbers):
            raise ConfigError(
                f"values of {self.name!r} cannot be drawn on mesh {mesh.label!r}",
                hint="Give finite numbers for PUCs and cells that the mesh has; leave out what is not known.",
            )

    @property
    def limits(self) -> tuple[float, float]:
        """Ends of the scale: the least and the largest number."""
        numbers = [*self.pucs.values(), *self.cells.values()]
        return (min(numbers), max(numbers)) if numbers else (0.0, 1.0)

    @property
    def logarithmic(self) -> bool:
        """Whether the scale is logarithmic, as it is for numbers of many sizes."""
        low, high = self.limits
        return low > 0.0 and math.log10(high / low) > _DECADES

    def share(self, value: float) -> float:
        """Return where a number is on the scale, 0 … 1."""
        low, high = self.limits
        if high <= low:
            return 0.0
        if self.logarithmic:
            return math.log(value / low) / math.log(high / low)
        return (value - low) / (high - low)

    def at(self, share: float) -> float:
        """Return the number at a place on the scale, 0 … 1."""
        low, high = self.limits
        return low * (high / low) ** share if self.logarithmic else low + share * (high - low)

    def figure(self, value: float) -> str:
        """Return a number as it is written on the picture: three letters or four."""
        low, high = self.limits
        size = max(abs(low), abs(high), 1e-12)
        if not 1e-3 <= size < 1e4:
            return f"{value:.1e}"
        digits = max(0, 1 - math.floor(math.log10(size)))
        if self.logarithmic and value:
            digits = max(0, 1 - math.floor(math.log10(abs(value))))
        return f"{value:.{digits}f}"

    def colours(self, value: float) -> tuple[str, str]:
        """Return the colour of a number, and one in which letters can be read on it."""
        colour = colour_at(self.share(value))
        red, green, blue = (int(colour[i : i + 2], 16) / 255.0 for i in (1, 3, 5))
        return colour, _INK if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else _PAPER


def colour_at(share: float) -> str:
    """Return the colour at a place on the scale, 0 … 1."""
    place = min(max(share, 0.0), 1.0) * (len(_VIRIDIS) - 1)
    index = min(int(place), len(_VIRIDIS) - 2)
    first, second = (
        np.array([int(each[i : i + 2], 16) for i in (1, 3, 5)]) for each in (_VIRIDIS[index], _VIRIDIS[index + 1])
    )
    red, green, blue = np.rint(first + (place - index) * (second - first)).astype(int).tolist()
    return f"#{red:02x}{green:02x}{blue:02x}"


def value_figures(mesh: MeshTopology, page: PageLayout, values: PictureValues) -> Iterator[str]:
    """Write the numbers on PUCs (whose bodies are coloured already) and cells, with their scale at the top right."""
    for puc, value in values.pucs.items():
        x, y = page.centre(puc)[0]
        yield _text(x, y + 3.5, values.figure(value), 10, fill=values.colours(value)[1])
    for cell, value in values.cells.items():
        x, y = page.px(mesh.puc_centres[list(mesh.faces[cell])].mean(axis=0))
        colour, ink = values.colours(value)
        told = xml_text(f"cell {cell}: {value:.4g} {values.unit}")
        radius = _DISC * page.scale
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill="{colour}"><title>{told}</title></circle>'
        yield _text(x, y + 4.5, values.figure(value), 13, fill=ink)
    yield from _scale(page, values)


def _scale(page: PageLayout, values: PictureValues) -> Iterator[str]:
    left, width = page.width - MARGIN - _SCALE_WIDTH, _SCALE_WIDTH / _STEPS
    for step in range(_STEPS):
        colour = colour_at((step + 0.5) / _STEPS)
        yield f'<rect x="{left + step * width:.1f}" y="30" width="{width + 0.5:.1f}" height="14" fill="{colour}"/>'
    for share, anchor in ((0.0, "start"), (0.5, "middle"), (1.0, "end")):
        yield _text(left + share * _SCALE_WIDTH, 57, values.figure(values.at(share)), 11, anchor=anchor)
    told = f"{values.name}, {values.unit}{' (logarithmic)' if values.logarithmic else ''}"
    yield _text(left + _SCALE_WIDTH, 23, told, 12, anchor="end")


def _text(x: float, y: float, text: str, size: int, *, fill: str = _INK, anchor: str = "middle") -> str:
    style = f'font-size="{size}" fill="{fill}" text-anchor="{anchor}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{xml_text(text)}</text>'
