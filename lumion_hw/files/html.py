"""HTML representations for notebooks: small tables and figures, escaped, without scripts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lumion_hw.files.escaping import xml_text

_MAX_ROWS = 40


def html_pairs(title: str, pairs: Mapping[str, object]) -> str:
    """Return an HTML table of names and values; empty values are omitted."""
    rows = [(name, value) for name, value in pairs.items() if value not in (None, "")]
    return html_table(title, (), rows)


def html_table(title: str, headers: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return an HTML table with a title; of a long table only the first rows."""
    head = f"<tr>{''.join(f'<th>{xml_text(text)}</th>' for text in headers)}</tr>" if headers else ""
    body = "".join(f"<tr>{''.join(f'<td>{_cell(cell)}</td>' for cell in row)}</tr>" for row in rows[:_MAX_ROWS])
    omitted = f"<p>{_MAX_ROWS} of {len(rows)}</p>" if len(rows) > _MAX_ROWS else ""
    return f"<div><strong>{xml_text(title)}</strong><table>{head}{body}</table>{omitted}</div>"


def html_picture(title: str, svg: str) -> str:
    """Return an SVG figure with a title. The SVG must come from this program."""
    return f'<div style="max-width:60em"><strong>{xml_text(title)}</strong>{svg}</div>'


def _cell(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return xml_text(f"{value:.4g}" if isinstance(value, float) else value)
