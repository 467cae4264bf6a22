"""Symbols of cells in a mesh picture: interferometers, phase shifters, couplers and crossings, with their heaters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from lumion_hw.mesh.layout.cells import NO_CHANNEL, CellKind
from lumion_hw.mesh.layout.topology import State
from lumion_hw.mesh.picture.geometry import EDGE, HALF_BODY

INK, FAINT, GUIDE, BODY, BORDER, FAULT = "#1d2733", "#66727f", "#9aa6b2", "#f1f4f7", "#c3ccd5", "#b3261e"
_HEATER, _HEATER_EDGE = "#fbe0c3", "#c9741f"
_HEATER_HEIGHT, _NARROW_HEATER_HEIGHT = 12.0, 7.4  # px
_LETTER_WIDTH = 0.66  # of the font size
_STUB_LENGTH = 0.55
"""Half length of a heater, as a fraction of half the body."""
_NARROW_PITCH_PX = 11.0
"""Smallest distance in px of a rail from the axis at which heaters are drawn."""


@dataclass(frozen=True)
class SymbolSize:
    """Half the length and height of the body, and the distance of the rails from the axis, in px."""

    half: float
    high: float
    rail: float

    @property
    def has_visible_heaters(self) -> bool:
        """Whether there is room for a heater on each arm."""
        return self.rail >= _NARROW_PITCH_PX

    @classmethod
    def of(cls, scale: float, rail: float) -> SymbolSize:
        """Return the sizes for a scale in px per PUC length and a distance of the rails in PUC lengths."""
        return cls(HALF_BODY * scale, (rail + EDGE) * scale, rail * scale)


@dataclass(frozen=True)
class Symbol:
    """One cell to draw.

    Attributes:
        state: State of the cell; ``None`` draws open rails.
        failed: Whether the cell is marked as failed.
        parked: Whether the cell only guides stray light.
        unlit: Whether no light reaches the cell.
        fill: Colour of the body; ``None`` for the usual one.
        channels: Drive channels of the upper and the lower heater, ``NO_CHANNEL`` for none; empty if not known.
        rails: Whether the upper and the lower waveguide exist; for cells without couplers.
    """

    kind: CellKind
    state: State | None = None
    failed: bool = False
    parked: bool = False
    unlit: bool = False
    fill: str | None = None
    channels: Sequence[int] = ()
    rails: tuple[bool, bool] = (True, True)

    @property
    def has_body(self) -> bool:
        """Whether a box is drawn around the rails."""
        return self.kind.interferes or self.failed or self.parked or self.unlit or self.fill is not None

    @property
    def rows(self) -> tuple[int, ...]:
        """Sides (-1 upper, 1 lower) of the rails that belong to the cell: of a phase shifter those with a heater."""
        heated = tuple(side for arm, side in enumerate((-1, 1)) if self._has_heater(arm))
        return heated if heated and not self.kind.has_couplers and self.kind.passes == "bar" else (-1, 1)

    def _has_heater(self, arm: int) -> bool:
        return self.kind.heated[arm] and not (self.channels and self.channels[arm] == NO_CHANNEL)

    def svg(self, size: SymbolSize) -> str:
        """Return the symbol as SVG elements."""
        parts = [*self._body(size), self._rails(size)]
        if size.has_visible_heaters or not self.kind.has_couplers:
            parts += self._heaters(size)
        drawing = "".join(parts)
        return f'<g opacity="0.5">{drawing}</g>' if self.unlit else drawing

    def _body(self, size: SymbolSize) -> Iterator[str]:
        half, high = size.half, size.high
        if not self.has_body:
            return
        edge = f'stroke="{BORDER}"'
        if self.failed:
            edge = f'stroke="{FAULT}" stroke-width="2"'
        elif self.unlit:
            edge = f'stroke="{FAINT}" stroke-dasharray="6 3"'
        elif self.parked:
            edge = f'stroke="{GUIDE}" stroke-dasharray="2 3"'
        fill = self.fill or ("#ffffff" if self.unlit else BODY)
        margin = high - size.rail
        top, bottom = self.rows[0] * size.rail - margin, self.rows[-1] * size.rail + margin
        yield (
            f'<rect x="{-half:.1f}" y="{top:.1f}" width="{2 * half:.1f}" height="{bottom - top:.1f}" rx="4" '
            f'fill="{fill}" {edge}/>'
        )
        if self.failed:
            hatch = _hatch(half, top, bottom)
            yield f'<path d="{hatch}" stroke="{FAULT}" stroke-width="1.1" opacity="0.65"/>'

    def _rails(self, size: SymbolSize) -> str:
        half, rail = size.half, size.rail
        passes = self.kind.passes
        state = self.state if passes == "any" else passes
        if state is not None:
            # In cross, each rail runs from its own side to the other one.
            turn = 1 if state == "bar" else -1
            d = "".join(
                f"M{-half:.1f} {r * rail:.1f}C0 {r * rail:.1f} 0 {turn * r * rail:.1f} {half:.1f} {turn * r * rail:.1f}"
                for r, exists in zip((-1, 1), self.rails, strict=True)
                if exists
            )
        elif self.kind.interferes:
            d = "".join(
                f"M{s * half:.1f} {r * rail:.1f}H{s * half * _STUB_LENGTH:.1f}" for s in (-1, 1) for r in (-1, 1)
            )
        else:
            # A coupler: both waveguides approach each other.
            d = "".join(
                f"M{-half:.1f} {r * rail:.1f}C{-half / 2:.1f} {r * rail:.1f} {-half / 2:.1f} {r * 2:.1f} 0 {r * 2:.1f}"
                f"C{half / 2:.1f} {r * 2:.1f} {half / 2:.1f} {r * rail:.1f} {half:.1f} {r * rail:.1f}"
                for r in (-1, 1)
            )
        return f'<path d="{d}" fill="none" stroke="{GUIDE}" stroke-width="1.5"/>'

    def _heaters(self, size: SymbolSize) -> Iterator[str]:
        half, high = _STUB_LENGTH * size.half, 0.5 * min(_HEATER_HEIGHT, max(_NARROW_HEATER_HEIGHT, 0.65 * size.rail))
        for arm, side in enumerate((-1, 1)):
            if self._has_heater(arm):
                yield heater_svg(side * size.rail, half, high, self.channels[arm] if self.channels else None)


def heater_svg(y: float, half: float, high: float, channel: int | None) -> str:
    """Return a heater as SVG, with its drive channel (``c5``, unlike PUC 5) on it; other arguments in px."""
    heater = (
        f'<rect class="heater" x="{-half:.1f}" y="{y - high:.1f}" width="{2 * half:.1f}" height="{2 * high:.1f}" '
        f'rx="2" fill="{_HEATER}" stroke="{_HEATER_EDGE}" stroke-width="0.8"/>'
    )
    if channel is not None:
        text = f"c{channel}"
        size = min(8.5, 2.0 * half / (_LETTER_WIDTH * len(text)))
        style = f'font-size="{size:.3g}" fill="{FAINT}" text-anchor="middle"'
        heater += f'<text x="0" y="{y + 0.36 * size:.1f}" {style}>{text}</text>'
    return heater


def _hatch(half: float, top: float, bottom: float) -> str:
    lines = []
    for start in np.arange(-half - (bottom - top) + 6.0, half, 6.0):
        # From the lower edge to the upper one, cut at the left and right edges.
        left, right = max(start, -half), min(start + bottom - top, half)
        lines.append(f"M{left:.1f} {bottom - (left - start):.1f}L{right:.1f} {bottom - (right - start):.1f}")
    return "".join(lines)
