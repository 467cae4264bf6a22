"""Draw matrices side by side as SVG: amplitude of an element as the side of a square, phase as colour."""

from __future__ import annotations

import colorsys
import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from lumion_hw.errors import ConfigError
from lumion_hw.files.escaping import xml_text

Complex = NDArray[np.complex128]

_INK, _PAPER, _GRID = "#1d2733", "#ffffff", "#c9d1da"
_PANEL, _GAP, _MARGIN, _TITLE = 300.0, 60.0, 40.0, 84.0  # px
_KEY_RADIUS = 22.0  # px
_ROOT = '<svg xmlns="http://www.w3.org/2000/svg" width="{w:.0f}" height="{h:.0f}" viewBox="0 0 {w:.0f} {h:.0f}"'


def matrices_svg(wanted: Complex, measured: Complex, title: str = "Matrix", rounds: Sequence[float] = ()) -> str:
    """Return a picture of a wanted matrix, a measured one, and their difference.

    Both are drawn with a norm of 1 per column on average, so that loss does not hide the likeness. The difference is
    enlarged by the factor in its title.

    Args:
        wanted: Shape ``(outputs, inputs)``.
        measured: Same shape, with port phases as in the wanted matrix.
        title: Title of the picture.
        rounds: Fidelity before the first correction and after each one; with two or more, they are drawn too.

    Raises:
        ConfigError: The shapes differ, or an element is not finite.
    """
    if wanted.shape != measured.shape or not np.isfinite([*wanted.flat, *measured.flat]).all():
        raise ConfigError(
            f"cannot draw matrices of the shapes {wanted.shape} and {measured.shape}",
            hint="Give two matrices of the same shape with finite elements.",
        )
    target, real = (matrix / np.linalg.norm(matrix) * math.sqrt(matrix.shape[1]) for matrix in (wanted, measured))
    # The common phase has no meaning.
    overlap = np.vdot(target, real)
    real = real * np.exp(-1j * np.angle(overlap))
    difference = real - target
    largest = float(np.abs(target).max())
    # A power of ten, or 2 or 5 times one, that fills the panel.
    factor = _round_factor(largest / max(float(np.abs(difference).max()), 1e-6))
    panels = (
        ("target", target),
        ("measured", real),
        (f"difference, {factor:g} times enlarged", factor * difference),
    )
    has_rounds = len(rounds) > 1
    columns = len(panels) + has_rounds
    width = 2 * _MARGIN + columns * _PANEL + (columns - 1) * _GAP
    height = _TITLE + _PANEL + _MARGIN + 44.0
    parts = [
        _ROOT.format(w=width, h=height) + ' font-family="sans-serif" role="img">',
        "<!-- lumion-hw -->",
        f"<title>{xml_text(title)}</title>",
        f'<rect width="100%" height="100%" fill="{_PAPER}"/>',
        f'<text x="{_MARGIN}" y="34" font-size="19" font-weight="bold" fill="{_INK}">{xml_text(title)}</text>',
        *_phase_key(width),
    ]
    for number, (name, matrix) in enumerate(panels):
        parts += _panel(_MARGIN + number * (_PANEL + _GAP), name, matrix, largest)
    if has_rounds:
        parts += _rounds_panel(_MARGIN + len(panels) * (_PANEL + _GAP), rounds)
    return "\n".join([*parts, "</svg>", ""])


def _round_factor(ratio: float) -> float:
    decade = 10.0 ** math.floor(math.log10(max(ratio, 1.0)))
    return max(step * decade for step in (1.0, 2.0, 5.0) if step * decade <= max(ratio, 1.0))


def _panel(left: float, name: str, matrix: Complex, largest: float) -> Iterator[str]:
    n_out, n_in = matrix.shape
    cell = _PANEL / max(n_out, n_in)
    yield f'<text x="{left:.1f}" y="{_TITLE - 12:.1f}" font-size="15" fill="{_INK}">{xml_text(name)}</text>'
    for row, column in np.ndindex(n_out, n_in):
        value = complex(matrix[row, column])
        side = cell * 0.94 * min(abs(value) / largest, 1.0)
        x, y = left + column * cell, _TITLE + row * cell
        yield f'<rect x="{x:.1f}" y="{y:.1f}" width="{cell:.1f}" height="{cell:.1f}" fill="none" stroke="{_GRID}"/>'
        yield (
            f'<rect x="{x + 0.5 * (cell - side):.1f}" y="{y + 0.5 * (cell - side):.1f}" width="{side:.1f}" '
            f'height="{side:.1f}" fill="{_colour(math.atan2(value.imag, value.real))}"><title>output {row}, input '
            f"{column}: {abs(value):.3f}, phase {math.atan2(value.imag, value.real):.3f} rad</title></rect>"
        )
    bottom = _TITLE + n_out * cell
    for axis, count in (("input", n_in), ("output", n_out)):
        for number in _labelled(count):
            middle = (number + 0.5) * cell
            x, y = (left + middle, bottom + 16.0) if axis == "input" else (left - 10.0, _TITLE + middle + 4.0)
            yield f'<text x="{x:.1f}" y="{y:.1f}" font-size="11" text-anchor="middle" fill="{_INK}">{number}</text>'
    yield (
        f'<text x="{left + 0.5 * n_in * cell:.1f}" y="{bottom + 36:.1f}" font-size="12" text-anchor="middle" '
        f'fill="{_INK}">input</text>'
    )
    middle = _TITLE + 0.5 * n_out * cell
    yield (
        f'<text x="{left - 24:.1f}" y="{middle:.1f}" font-size="12" text-anchor="middle" fill="{_INK}" '
        f'transform="rotate(-90 {left - 24:.1f} {middle:.1f})">output</text>'
    )


def _rounds_panel(left: float, rounds: Sequence[float]) -> Iterator[str]:
    """Yield the missing fidelity of each round on a logarithmic scale."""
    missing = [math.log10(max(1.0 - value, 1e-9)) for value in rounds]
    low, high = math.floor(min(missing)), max(math.ceil(max(missing)), math.floor(min(missing)) + 1)
    bottom, step = _TITLE + _PANEL, _PANEL / max(len(rounds) - 1, 1)
    yield f'<text x="{left:.1f}" y="{_TITLE - 12:.1f}" font-size="15" fill="{_INK}">1 − fidelity</text>'
    for decade in range(low, high + 1):
        y = bottom - (decade - low) / (high - low) * _PANEL
        yield f'<path d="M{left:.1f} {y:.1f}h{_PANEL:.1f}" stroke="{_GRID}"/>'
        yield (
            f'<text x="{left - 8:.1f}" y="{y + 4:.1f}" font-size="11" text-anchor="end" fill="{_INK}">'
            f"{10.0**decade:g}</text>"
        )
    points = [
        (left + number * step, bottom - (value - low) / (high - low) * _PANEL) for number, value in enumerate(missing)
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    yield f'<polyline points="{line}" fill="none" stroke="{_INK}" stroke-width="1.5"/>'
    for number, ((x, y), value) in enumerate(zip(points, rounds, strict=True)):
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{_INK}"><title>{value:.5f}</title></circle>'
        yield (
            f'<text x="{x:.1f}" y="{bottom + 16:.1f}" font-size="11" text-anchor="middle" fill="{_INK}">{number}</text>'
        )
    yield (
        f'<text x="{left + 0.5 * _PANEL:.1f}" y="{bottom + 36:.1f}" font-size="12" text-anchor="middle" fill="{_INK}">'
        "round of refinement</text>"
    )


def _labelled(count: int) -> Sequence[int]:
    return range(0, count, max(1, count // 8))


def _phase_key(width: float) -> Iterator[str]:
    """Yield a wheel of colours by phase."""
    x, y, steps = width - _MARGIN - _KEY_RADIUS - 30.0, 30.0, 24
    for step in range(steps):
        ends = [2.0 * math.pi * (step + half) / steps for half in (-0.55, 0.55)]
        points = " ".join(
            f"{x + _KEY_RADIUS * math.cos(end):.1f},{y - _KEY_RADIUS * math.sin(end):.1f}" for end in ends
        )
        yield f'<polygon points="{x:.1f},{y:.1f} {points}" fill="{_colour(2.0 * math.pi * step / steps)}"/>'
    for text, right, down in (("0", _KEY_RADIUS + 9.0, 4.0), ("π", -_KEY_RADIUS - 9.0, 4.0)):
        yield (
            f'<text x="{x + right:.1f}" y="{y + down:.1f}" font-size="12" text-anchor="middle" fill="{_INK}">'
            f"{text}</text>"
        )
    yield f'<text x="{x - 50:.1f}" y="34" font-size="12" text-anchor="end" fill="{_INK}">phase</text>'


def _colour(phase_rad: float) -> str:
    red, green, blue = colorsys.hls_to_rgb((phase_rad / (2.0 * math.pi)) % 1.0, 0.5, 0.7)
    return f"#{round(255 * red):02x}{round(255 * green):02x}{round(255 * blue):02x}"
