"""Draw the mesh and its circuits as SVG, for a light background.

Colours are the palette of Okabe and Ito, safe for colour-blind readers.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from xml.sax.saxutils import quoteattr

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lumion_hw.errors import ConfigError
from lumion_hw.files.escaping import xml_text
from lumion_hw.files.own_files import CREATOR
from lumion_hw.mesh.layout.cells import CELL_KINDS, NO_CHANNEL, PUC
from lumion_hw.mesh.layout.topology import EXIT_XOR, MeshTopology, State
from lumion_hw.mesh.picture.field import checked_field_db, field_lines, scale_steps
from lumion_hw.mesh.picture.geometry import MARGIN, PORT_RADIUS, RAIL, Curve, PageLayout
from lumion_hw.mesh.picture.symbols import FAINT, FAULT, GUIDE, INK, Symbol, SymbolSize, heater_svg
from lumion_hw.mesh.picture.values import PictureValues, value_figures

_ROW_HEIGHT = 25.0  # px
_LETTER_WIDTH = 6.7  # px at size 11
_NAME_LETTERS = 22
_NARROW, _WIDE, _POWER_RANGE_DB = 1.6, 7.0, 30.0

_KEY_SCALE = 62.0  # px per PUC length
# Seven colours and eight dashes have no common factor, so the first 56 circuits all look different.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#000000", "#56b4e9", "#e69f00")
_DASHES = ("", "10 3.5", "3 2.5", "16 3 3 3", "22 4", "6 3", "12 3 3 3 3 3", "4 6")
_DARK_GUIDE = 'stroke-dasharray="2.5 2" stroke-width="1"'
_SIGN: dict[str | None, str] = {"bar": " =", "cross": " ×", None: ""}


@dataclass(frozen=True)
class PicturePath:
    """One circuit to draw.

    Attributes:
        label: Name in the legend, such as ``srv1/nic0 → srv4/nic1``.
        source: Port where the light enters.
        pucs: PUCs on the path, in order.
        colour: CSS colour; by default a palette colour.
        loss_db: Loss for the legend, in dB.
        source_name: Name written at the source port; the label when empty.
        target_name: Name written at the target port; the label when empty.
        power_dbm: Power before the first PUC, between PUCs, and after the last PUC; ``None`` where unknown. Sets the
            line width.
    """

    label: str
    source: int
    pucs: Sequence[int]
    colour: str | None = None
    loss_db: float | None = None
    source_name: str = ""
    target_name: str = ""
    power_dbm: Sequence[float | None] = ()


@dataclass(frozen=True)
class _Circuit:
    """A circuit to draw: its path, the entry and exit PUC-port at each PUC, and its line style."""

    path: PicturePath
    index: int
    entering: tuple[int, ...]
    leaving: tuple[int, ...]
    target: int

    @property
    def colour(self) -> str:
        """Colour of the path, or else the colour for the number of the circuit."""
        return self.path.colour or _COLOURS[self.index % len(_COLOURS)]

    @property
    def ends(self) -> tuple[tuple[int, str], tuple[int, str]]:
        """Source and target port, each with the name to write there (shortened if necessary)."""
        source, target = self.path.source_name or self.path.label, self.path.target_name or self.path.label
        return (self.path.source, _shortened(source, _NAME_LETTERS)), (self.target, _shortened(target, _NAME_LETTERS))

    def stroke(self, width_px: float) -> str:
        """Return the SVG attributes of the circuit's line: colour, width in px and dashes."""
        dash = _DASHES[self.index % len(_DASHES)]
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        return f'fill="none" stroke={quoteattr(self.colour)} stroke-width="{width_px:g}"{dashed}'


def mesh_svg(
    mesh: MeshTopology,
    *,
    states: Mapping[int, State] | None = None,
    paths: Sequence[PicturePath] = (),
    title: str = "",
    failed: Collection[int] = (),
    parked: Collection[int] = (),
    ports_labelled: bool = True,
    field_db: ArrayLike | None = None,
    field_range_db: float = 60.0,
    values: PictureValues | None = None,
    unlit: Collection[int] = (),
    heater_channels: Sequence[int] = (),
    fibres: Collection[int] | None = None,
) -> str:
    """Return an SVG picture of a mesh, its states and its circuits.

    Elements have the ids ``puc-<number>``, ``port-<number>``, ``joint-<number>`` (row of ``MeshTopology.joints``) and
    ``path-<index>``. The width is 1200 px up to about 100 PUCs, and larger for larger meshes.

    Args:
        mesh: The mesh.
        states: State of each PUC; PUCs without a state are drawn with open rails.
        paths: Circuits to draw.
        title: Heading; the mesh's label when empty.
        failed: PUCs to mark as failed.
        parked: PUCs to mark as parked: no circuit uses them; they guide stray light out of the mesh.
        ports_labelled: Whether to write port numbers.
        field_db: Power in dB of the light that enters each PUC-port, shape ``(4 n_pucs,)``, ``-inf`` for no light.
        field_range_db: Range of the colour scale in dB; weaker light is not drawn.
        values: Numbers to write on PUCs and cells; they set the colours.
        unlit: PUCs to mark as without light.
        heater_channels: Drive channel of every arm, at index 2·PUC + arm; ``NO_CHANNEL`` for an arm without a heater.
        fibres: Ports with a fibre or a detector; ``None`` for all that the mesh may have.

    Raises:
        ConfigError: A path does not follow the light in these states, a failed or unlit PUC does not exist, the field
            has the wrong shape or contains NaN, or values name elements that do not exist.
    """
    _check_marks(mesh, values, failed=failed, unlit=unlit)
    fibres = set(mesh.fibre_ports if fibres is None else fibres)
    marks = _Marks(states or {}, set(failed), set(parked), set(unlit), fibres, values, heater_channels)
    circuits = [_follow(mesh, index, path, marks.states) for index, path in enumerate(paths)]
    page = PageLayout(mesh, [(port, _name_width(name)) for circuit in circuits for port, name in circuit.ends])
    explanations, height = _explain(mesh, page, marks, circuits)
    parts = [
        *_opening(page.width, height, title or f"Mesh {mesh.label}", _description(mesh, circuits)),
        *_joints(mesh, page, marks),
        *(() if field_db is None else _field(mesh, page, checked_field_db(mesh, field_db), field_range_db)),
        *_cells(mesh, page, marks),
        *(() if values is None else value_figures(mesh, page, values)),
        *_lines(mesh, page, circuits),
        *_numbers(mesh, page, marks),
        *_ports(mesh, page, marks.fibres, ports_labelled),
        *(line for circuit in circuits for line in _names(page, circuit)),
        *explanations,
        "</svg>\n",
    ]
    return "\n".join(parts)


def _check_marks(mesh: MeshTopology, values: PictureValues | None, **marked: Collection[int]) -> None:
    if values is not None:
        values.check(mesh)
    for word, pucs in marked.items():
        if unknown := sorted(puc for puc in pucs if not 0 <= puc < mesh.n_pucs):
            raise ConfigError(f"{word} PUCs {unknown} do not exist", hint=f"This mesh has PUCs 0 to {mesh.n_pucs - 1}.")


def _explain(
    mesh: MeshTopology, page: PageLayout, marks: _Marks, circuits: Sequence[_Circuit]
) -> tuple[list[str], float]:
    """Return the key of symbols and the list of circuits below the mesh, and the height of the whole page."""
    key, key_rows = _key(mesh, page, marks)
    circuits_top = page.mesh_bottom + MARGIN + _ROW_HEIGHT * (key_rows - 1)
    legend = [line for circuit in circuits for line in _legend(circuit, circuits_top)]
    return [*key, *legend], circuits_top + _ROW_HEIGHT * (len(circuits) + 1) + MARGIN / 2


def _opening(width: float, height: float, heading: str, description: str) -> list[str]:
    heading = xml_text(heading)
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" '
        "font-family=\"'DejaVu Sans', 'Segoe UI', Helvetica, Arial, sans-serif\">",
        f"<!-- {CREATOR} -->",
        f"<title>{heading}</title>",
        f"<desc>{xml_text(description)}</desc>",
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        _text(MARGIN, 40, heading, size=20, attributes='font-weight="600"', escaped=True),
    ]


def _follow(mesh: MeshTopology, index: int, path: PicturePath, states: Mapping[int, State]) -> _Circuit:
    # A path that does not fit the states would give a picture that is wrong and looks right.
    trace = mesh.trace(path.source, states)
    if trace.pucs != tuple(path.pucs):
        raise ConfigError(
            f"path {path.label!r}: light from port {path.source} passes PUCs {list(trace.pucs)} in these states, "
            f"not {list(path.pucs)}",
            hint="Give states and paths that come from the same routing.",
        )
    node = int(mesh.port_puc_port[path.source])
    entering: list[int] = []
    leaving: list[int] = []
    while node >= 0:
        entering.append(node)
        passes = CELL_KINDS[mesh.cell_kinds[node // 4]].passes
        leaving.append(node ^ EXIT_XOR[states[node // 4] if passes == "any" else passes])
        node = int(mesh.mate[leaving[-1]])
    return _Circuit(path, index, tuple(entering), tuple(leaving), trace.port)


def _description(mesh: MeshTopology, circuits: Sequence[_Circuit]) -> str:
    text = [f"{c.path.label}: port {c.path.source} to port {c.target} over {len(c.path.pucs)} PUCs" for c in circuits]
    return "; ".join([f"{mesh.topology.capitalize()} mesh of {mesh.n_pucs} PUCs and {mesh.n_ports} ports", *text]) + "."


def _text(x: float, y: float, text: str, *, size: float, attributes: str = "", escaped: bool = False) -> str:
    fill = "" if "fill=" in attributes else f'fill="{INK}" '
    # Text that is escaped already must not be escaped twice.
    inner = text if escaped else xml_text(text)
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" {fill}{attributes}>{inner}</text>'


def _shortened(text: str, letters: int) -> str:
    return text if len(text) <= letters else text[: letters - 1] + "…"


def _name_width(name: str) -> float:
    return _LETTER_WIDTH * len(name) + 14


def _svg_curves(curves: Sequence[Curve]) -> str:
    start = f"M{curves[0][0][0]:.1f} {curves[0][0][1]:.1f}"
    return start + "".join("C" + " ".join(f"{x:.1f} {y:.1f}" for x, y in curve[1:]) for curve in curves)


def _joints(mesh: MeshTopology, page: PageLayout, marks: _Marks) -> Iterator[str]:
    dark, ends = f" {_DARK_GUIDE}", _dark_ends(mesh, marks)
    yield f'<g fill="none" stroke="{GUIDE}" stroke-width="1.5">'
    for index, (first, second) in enumerate(mesh.joints.tolist()):
        style = dark if ends & {first, second} else ""
        yield f'<path id="joint-{index}" d="{_svg_curves([page.joint_curve(first, second)])}"{style}/>'
    for port in _visible_ports(mesh):
        style = "" if port in marks.fibres else dark
        yield f'<path d="{_svg_curves([page.port_curve(port)])}"{style}/>'
    yield "</g>"


def _dark_ends(mesh: MeshTopology, marks: _Marks) -> set[int]:
    """Return the PUC-ports at waveguides without light: of unlit PUCs, and from there along cells without couplers."""
    dark = {4 * puc + end for puc in marks.unlit for end in range(4)}
    pending = [*dark, *(int(mesh.port_puc_port[p]) ^ 2 for p in _visible_ports(mesh) if p not in marks.fibres)]
    pending = [p for p in pending if p in dark or CELL_KINDS[mesh.cell_kinds[p // 4]].passes == "bar"]
    while pending:
        dark.add(puc_port := pending.pop())
        neighbour = int(mesh.mate[puc_port])
        if neighbour >= 0 and neighbour not in dark and CELL_KINDS[mesh.cell_kinds[neighbour // 4]].passes == "bar":
            pending.append(neighbour ^ 2)
    return dark


def _field(mesh: MeshTopology, page: PageLayout, field: NDArray[np.float64], range_db: float) -> Iterator[str]:
    yield '<g fill="none">'
    for curve, colour, width, text in field_lines(mesh, page, field, range_db):
        yield (
            f'<path class="field" d="{_svg_curves([curve])}" stroke="{colour}" stroke-width="{width:.1f}">'
            f"<title>{text}</title></path>"
        )
    yield "</g>"
    steps = scale_steps(field, range_db)
    for index, (colour, text) in enumerate(steps):
        x = page.width - MARGIN - 70.0 * (len(steps) - index)
        yield f'<rect x="{x:.0f}" y="30" width="14" height="14" fill="{colour}"/>'
        yield _text(x + 18, 41, f"≥ {text}", size=10, attributes=f'fill="{FAINT}"')


@dataclass(frozen=True)
class _Marks:
    """Marks of a drawing: states, faults, values and drive channels of PUCs, and the ports with a fibre."""

    states: Mapping[int, State]
    failed: Set[int]
    parked: Set[int]
    unlit: Set[int]
    fibres: Set[int]
    values: PictureValues | None
    channels: Sequence[int]

    def symbol(self, mesh: MeshTopology, puc: int) -> Symbol:
        """Return the symbol of a PUC with its marks."""
        value = None if self.values is None else self.values.pucs.get(puc)
        return Symbol(
            CELL_KINDS[mesh.cell_kinds[puc]],
            self.states.get(puc),
            failed=puc in self.failed,
            parked=puc in self.parked,
            unlit=puc in self.unlit,
            fill=None if self.values is None or value is None else self.values.colours(value)[0],
            channels=self.channels[2 * puc : 2 * puc + 2],
            rails=(not _is_unused(mesh, 4 * puc), not _is_unused(mesh, 4 * puc + 1)),
        )

    def text(self, puc: int, kind: str) -> str:
        """Return the tooltip of a PUC."""
        if self.values is not None and puc in self.values.pucs:
            value = f"{self.values.pucs[puc]:.4g}"
            return f"PUC {puc}: " + (
                f"{value} {self.values.unit}" if self.values.unit else f"{self.values.name} {value}"
            )
        state = self.states.get(puc) or "no state"
        tooltip = state if kind == PUC else CELL_KINDS[kind].description
        if kind != PUC and CELL_KINDS[kind].passes == "any":
            tooltip = f"{state}, {tooltip}"
        marks = (("failed", self.failed), ("parked", self.parked), ("no light", self.unlit))
        text = f"PUC {puc}: {tooltip}" + "".join(f", {word}" for word, marked in marks if puc in marked)
        arms = zip(("upper", "lower"), self.channels[2 * puc : 2 * puc + 2], strict=False)
        return text + "".join(f", channel {channel} ({arm})" for arm, channel in arms if channel != NO_CHANNEL)


def _cells(mesh: MeshTopology, page: PageLayout, marks: _Marks) -> Iterator[str]:
    size = SymbolSize.of(page.scale, page.rail)
    for puc in range(mesh.n_pucs):
        (x, y), angle = page.centre(puc)
        text = xml_text(marks.text(puc, mesh.cell_kinds[puc]))
        yield f'<g id="puc-{puc}" transform="translate({x:.1f} {y:.1f}) rotate({angle:.1f})"><title>{text}</title>'
        yield marks.symbol(mesh, puc).svg(size)
        yield "</g>"


def _numbers(mesh: MeshTopology, page: PageLayout, marks: _Marks) -> Iterator[str]:
    states, failed, parked = marks.states, marks.failed, marks.parked
    labels = [(puc, row) for puc in range(mesh.n_pucs) for row in _numbered_rows(mesh, marks, puc)]
    for puc, row in labels:
        (x, y), side = page.number_position(puc, row)
        used = puc in states and puc not in parked
        colour = FAULT if puc in failed else INK if used else FAINT
        style = f'fill="{colour}"' + ' font-weight="600"' * (used or puc in failed)
        style += "" if side else ' text-anchor="middle"'
        sign = _SIGN[states.get(puc)]
        text = f"{puc} ({sign.strip()})" if puc in parked and sign else f"{puc}{sign}"
        yield _text(x, y + 3.5, text, size=10, attributes=style)


def _numbered_rows(mesh: MeshTopology, marks: _Marks, puc: int) -> tuple[int, ...]:
    """Return the rails (-1 upper, 1 lower) above which a PUC's number is written: each rail of a phase shifter."""
    rows = marks.symbol(mesh, puc).rows
    return rows[:1] if CELL_KINDS[mesh.cell_kinds[puc]].passes != "bar" else rows


def _port_disc(x: float, y: float, *, fibre: bool) -> str:
    style = f'stroke="{INK}" stroke-width="1.3"' if fibre else f'stroke="{GUIDE}" stroke-dasharray="2.5 2"'
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{PORT_RADIUS}" fill="#ffffff" {style}/>'


def _ports(mesh: MeshTopology, page: PageLayout, fibres: Collection[int], labelled: bool) -> Iterator[str]:
    for port in _visible_ports(mesh):
        x, y = page.port_position(port)
        fibre = port in fibres
        text = f"port {port} ({mesh.port_name(port)}){'' if fibre else ', no fibre'}"
        yield f'<g id="port-{port}"><title>{text}</title>'
        yield _port_disc(x, y, fibre=fibre)
        if labelled:
            fill = INK if fibre else FAINT
            yield _text(x, y + 3.6, str(port), size=10, attributes=f'fill="{fill}" text-anchor="middle"')
        yield "</g>"


def _is_unused(mesh: MeshTopology, puc_port: int) -> bool:
    return int(mesh.port_at[puc_port]) in mesh.unused_ports


def _visible_ports(mesh: MeshTopology) -> list[int]:
    return [port for port in range(mesh.n_ports) if port not in mesh.unused_ports]


def _lines(mesh: MeshTopology, page: PageLayout, circuits: Sequence[_Circuit]) -> Iterator[str]:
    powers_dbm = [power for circuit in circuits for power in circuit.path.power_dbm if power is not None]
    # One reference for all circuits, so that their line widths can be compared.
    strongest_dbm = max(powers_dbm, default=0.0)
    for circuit in circuits:
        yield from _line(mesh, page, circuit, strongest_dbm)


def _line(mesh: MeshTopology, page: PageLayout, circuit: _Circuit, strongest_dbm: float) -> Iterator[str]:
    entry_curve, exit_curve = page.port_curve(circuit.path.source), page.port_curve(circuit.target)
    passes = [page.puc_curve(p, q) for p, q in zip(circuit.entering, circuit.leaving, strict=True)]
    joints = [page.joint_curve(q, p) for q, p in zip(circuit.leaving, circuit.entering[1:], strict=False)]
    curves = [entry_curve, passes[0]]
    for joint, following in zip(joints, passes[1:], strict=True):
        curves += [joint, following]
    # The curve of a port leads into the mesh; light that leaves runs along it backwards.
    curves.append((exit_curve[3], exit_curve[2], exit_curve[1], exit_curve[0]))
    direction = _svg_curves(curves)
    pucs = " ".join(map(str, circuit.path.pucs))
    yield f'<g id="path-{circuit.index}" data-pucs="{pucs}"><title>{xml_text(circuit.path.label)}</title>'
    # A white edge under the line shows which circuit lies on top where two cross.
    yield f'<path d="{direction}" fill="none" stroke="#ffffff" stroke-width="7.5"/>'
    if circuit.path.power_dbm:
        yield from _power_segments(circuit, curves, strongest_dbm)
    else:
        yield f'<path d="{direction}" {circuit.stroke(4.2)}/>'
    yield from (_arrow_head(curve, circuit.colour) for curve in (curves[0], *passes[::2], curves[-1]))
    yield "</g>"


def _power_segments(circuit: _Circuit, curves: Sequence[Curve], strongest_dbm: float) -> Iterator[str]:
    for hop, power_dbm in enumerate(circuit.path.power_dbm):
        # curves: lead-in, PUC, joint, PUC, …, lead-out
        segment = curves[2 * hop : 2 * hop + 2]
        text = "not known" if power_dbm is None else f"{power_dbm:.1f} dBm"
        yield (
            f'<path data-hop="{hop}" d="{_svg_curves(segment)}" '
            f"{circuit.stroke(power_width(power_dbm, strongest_dbm))}>"
            f"<title>{xml_text(circuit.path.label)}, {text}</title></path>"
        )


def power_width(power_dbm: float | None, strongest_dbm: float) -> float:
    """Return a line width in px: 7 at the strongest power in the picture, 1.6 if 30 dB weaker or unknown."""
    if power_dbm is None:
        return _NARROW
    fraction = 1.0 - min(max(strongest_dbm - power_dbm, 0.0), _POWER_RANGE_DB) / _POWER_RANGE_DB
    return round(_NARROW + fraction * (_WIDE - _NARROW), 1)


def _arrow_head(curve: Curve, colour: str, size: float = 7.5) -> str:
    # Point and direction of a cubic Bézier curve at t.
    t = 0.62
    a, b, c, d = curve
    tip = (1 - t) ** 3 * a + 3 * t * (1 - t) ** 2 * b + 3 * t**2 * (1 - t) * c + t**3 * d
    x, y = tip
    direction = (1 - t) ** 2 * (b - a) + 2 * t * (1 - t) * (c - b) + t**2 * (d - c)
    angle = math.degrees(math.atan2(direction[1], direction[0]))
    return (
        f'<path d="M{size:g} 0L{-0.7 * size:g} {0.85 * size:g}L{-0.3 * size:g} 0L{-0.7 * size:g} {-0.85 * size:g}Z" '
        f'transform="translate({x:.1f} {y:.1f}) rotate({angle:.0f})" fill={quoteattr(colour)} '
        'stroke="#ffffff" stroke-width="1.2"/>'
    )


def _names(page: PageLayout, circuit: _Circuit) -> Iterator[str]:
    for port, name in circuit.ends:
        (x, y), angle, flipped = page.name_position(port)
        width = _name_width(name)
        left = -width if flipped else 0.0
        yield f'<g transform="translate({x:.1f} {y:.1f}) rotate({angle:.1f})">'
        yield (
            f'<rect x="{left:.1f}" y="-9.5" width="{width:.1f}" height="19" rx="5" fill="#ffffff" '
            f'stroke={quoteattr(circuit.colour)} stroke-width="1.8"/>'
        )
        yield _text(left + width / 2, 4, name, size=11, attributes='text-anchor="middle"')
        yield "</g>"


def _key_entries(mesh: MeshTopology, page: PageLayout, marks: _Marks) -> list[tuple[str, str]]:
    kinds = {name: CELL_KINDS[name] for name in mesh.cell_kinds}
    puc, size = CELL_KINDS[PUC], SymbolSize.of(_KEY_SCALE, RAIL)
    legend: list[tuple[Symbol, str]] = []
    valued = set() if marks.values is None else set(marks.values.pucs)
    stated = [marks.states.get(cell) for cell in np.flatnonzero(mesh.interferes).tolist() if cell not in valued]
    if "bar" in stated:
        legend.append((Symbol(puc, "bar"), "= bar: keeps its rail"))
    if "cross" in stated:
        legend.append((Symbol(puc, "cross"), "× cross: changes rail"))
    if None in stated and (marks.values is None or marks.states):
        legend.append((Symbol(puc), "no state given" if marks.states else "interferometer"))
    # One example of each simple element that the mesh has.
    shifters = [kind for kind in kinds.values() if kind.passes == "bar" and any(kind.heated)]
    legend += [(Symbol(kind), "phase shifter") for kind in shifters[:1]]
    legend += [(Symbol(kind), name) for name, kind in kinds.items() if name in ("coupler", "crossing")]
    if marks.parked:
        legend.append((Symbol(puc, "bar", parked=True), "(=) (×) parked"))
    if marks.failed:
        legend.append((Symbol(puc, failed=True), "failed"))
    if marks.unlit:
        legend.append((Symbol(puc, unlit=True), "no light"))
    entries = [(symbol.svg(size), text) for symbol, text in legend]
    if len(marks.channels) and SymbolSize.of(page.scale, page.rail).has_visible_heaters:
        entries.append((heater_svg(0.0, 9.0, 6.0, 3), "heater, drive channel"))
    entries.append((_port_disc(0, 0, fibre=True), "port"))
    if not marks.fibres >= set(_visible_ports(mesh)):
        entries.append((_port_disc(0, 0, fibre=False), "port without fibre"))
    return entries


def _key(mesh: MeshTopology, page: PageLayout, marks: _Marks) -> tuple[list[str], int]:
    x, row, parts = MARGIN, 0, []
    for drawing, text in _key_entries(mesh, page, marks):
        length = 42 + 7.0 * len(text) + 26
        if x > MARGIN and x + length > page.width:
            x, row = MARGIN, row + 1
        y = page.mesh_bottom + MARGIN + row * _ROW_HEIGHT
        parts.append(f'<g transform="translate({x + 18:.1f} {y:.1f})">{drawing}</g>')
        parts.append(_text(x + 42, y + 4, text, size=12, attributes=f'fill="{FAINT}"'))
        x += length
    return parts, row + 1


def _legend(circuit: _Circuit, top: float) -> Iterator[str]:
    path = circuit.path
    y = top + _ROW_HEIGHT * (circuit.index + 1) + 4
    loss = "" if path.loss_db is None else f"{path.loss_db:.1f} dB"
    hops = f"{len(path.pucs)} PUC" + "s" * (len(path.pucs) != 1)
    line = np.array([[MARGIN, y], [MARGIN + 30, y], [MARGIN + 55, y], [MARGIN + 84, y]])
    yield f'<path d="M{MARGIN:g} {y:g}H{MARGIN + 84:g}" {circuit.stroke(4.2)}/>'
    yield _arrow_head((line[0], line[1], line[2], line[3]), circuit.colour)
    yield _text(MARGIN + 98, y + 4, _shortened(path.label, 44), size=13, attributes='font-weight="600"')
    yield _text(490, y + 4, f"port {path.source} → port {circuit.target}", size=12)
    yield _text(700, y + 4, hops, size=12, attributes='text-anchor="end"')
    yield _text(780, y + 4, loss, size=12, attributes='text-anchor="end"')
    pucs = _shortened(" ".join(map(str, path.pucs)), 56)
    yield _text(810, y + 4, pucs, size=11, attributes=f'fill="{FAINT}"')
