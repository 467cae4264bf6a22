"""What notebooks show of an object: small tables and pictures, escaped, without scripts or anything from elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lumion_hw.files.shown import xml_text

_MOST_ROWS = 40


def html_pairs(title: str, pairs: Mapping[str, object]) -> str:
    """Return a small table of names and values; values that are ``None`` or empty are left out."""
    rows = [(name, value) for name, value in pairs.items() if value not in (None, "")]
    return html_table(title, (), rows)


def html_table(title: str, headers: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table with its title; of many rows the first, and how many there are."""
    head = f"<tr>{''.join(f'<th>{xml_text(each)}</th>' for each in headers)}</tr>" if headers else ""
    body = "".join(f"<tr>{''.join(f'<td>{_cell(cell)}</td>' for cell in row)}</tr>" for row in rows[:_MOST_ROWS])
    rest = f"<p>{_MOST_ROWS} of {len(rows)}</p>" if len(rows) > _MOST_ROWS else ""
    return f"<div><strong>{xml_text(title)}</strong><table>{head}{body}</table>{rest}</div>"


def html_picture(title: str, svg: str) -> str:
    """Return a picture under its title. The SVG is this program's own, which escapes what it writes."""
    return f'<div style="max-width:60em"><strong>{xml_text(title)}</strong>{svg}</div>'


def _cell(value: object) -> str:
    """Return a value for a cell: short numbers, a dash for nothing."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return xml_text(f"{value:.4g}" if isinstance(value, float) else value)
