"""A page of text, tables and pictures, as one HTML file or as Markdown with separate pictures."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lumion_hw.files.escaping import markdown, xml_text
from lumion_hw.files.own_files import CREATOR


@dataclass(frozen=True)
class ReportTable:
    """A table of a report; in its rows ``None`` is an empty cell, ``True`` is "yes" and ``False`` "NO"."""

    headers: Sequence[str]
    rows: Sequence[Sequence[object]]
    caption: str = ""


@dataclass(frozen=True)
class Picture:
    """A picture of a report; ``name`` is that of the picture file, without suffix."""

    name: str
    svg: str
    caption: str


Block = str | ReportTable | Picture
"""A paragraph, a table or a picture."""


@dataclass(frozen=True)
class Section:
    """A part of a page with a heading; a ``folded`` section is closed at first."""

    title: str
    blocks: Sequence[Block] = ()
    folded: bool = False


@dataclass(frozen=True)
class Page:
    """A report page; ``lead`` are the blocks between the first paragraphs (``summary``) and the sections."""

    title: str
    summary: Sequence[str]
    sections: Sequence[Section]
    lead: Sequence[Block] = ()

    @property
    def pictures(self) -> dict[str, str]:
        """All pictures of the page, as SVG by name."""
        blocks = [*self.lead, *(block for section in self.sections for block in section.blocks)]
        return {block.name: block.svg for block in blocks if isinstance(block, Picture)}


# The browser chooses the colours, except for pictures, which need a light background.
_CSS = """
:root { color-scheme: light dark; }
body { font: 15px/1.45 system-ui, 'Segoe UI', 'DejaVu Sans', Helvetica, Arial, sans-serif; max-width: 75rem;
  margin: 2rem auto; padding: 0 1rem; background: Canvas; color: CanvasText; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.25rem; margin-top: 2.2rem; border-bottom: 1px solid #8886; }
p.lead { font-size: 1.1rem; } summary { cursor: pointer; }
summary h2 { display: inline-block; margin: .4rem 0; border: none; }
nav ul { columns: 3; padding-left: 1.2rem; } a { color: LinkText; }
.wide { overflow-x: auto; } table { border-collapse: collapse; margin: .6rem 0; font-size: .92em; }
caption { text-align: left; font-weight: 600; padding: .2rem 0; }
th, td { text-align: left; padding: .18rem .8rem .18rem 0; border-bottom: 1px solid #8884; vertical-align: top; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
td.no { font-weight: 700; color: #d32f2f; }
figure { margin: 1rem 0; break-inside: avoid; } figure img { background: #fff; width: 100%; max-width: 72rem; }
figcaption { font-size: .92em; opacity: .85; }
@media print { :root { color-scheme: light; } body { margin: 0; font-size: 10pt; } nav { display: none; }
  h2 { break-after: avoid; } tr { break-inside: avoid; } }
"""


def html_text(page: Page) -> str:
    """Return a page as one HTML document without scripts and external resources."""
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en">',
        f'<head><meta charset="utf-8"><meta name="generator" content="{CREATOR}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{xml_text(page.title)}</title>",
        f"<style>{_CSS}</style></head>",
        "<body>",
        f"<h1>{xml_text(page.title)}</h1>",
        *(f'<p class="lead">{xml_text(paragraph)}</p>' for paragraph in page.summary),
        *(line for block in page.lead for line in _html_block(block)),
        "<nav><ul>",
        *(f'<li><a href="#{_anchor(part.title)}">{xml_text(part.title)}</a></li>' for part in page.sections),
        "</ul></nav>",
    ]
    for section in page.sections:
        anchor, heading = _anchor(section.title), f"<h2>{xml_text(section.title)}</h2>"
        # Browsers open a closed <details> by themselves when a link leads into it.
        tag, heading = ("details", f"<summary>{heading}</summary>") if section.folded else ("section", heading)
        parts.append(f'<{tag} id="{anchor}">{heading}')
        parts += [line for block in section.blocks for line in _html_block(block)]
        parts.append(f"</{tag}>")
    return "\n".join([*parts, "</body></html>", ""])


def _anchor(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def _html_block(block: Block) -> Iterator[str]:
    if isinstance(block, str):
        yield f"<p>{xml_text(block)}</p>"
    elif isinstance(block, Picture):
        data = base64.b64encode(block.svg.encode()).decode()
        caption = xml_text(block.caption)
        yield f'<figure><img alt="{caption}" src="data:image/svg+xml;base64,{data}">'
        yield f"<figcaption>{caption}</figcaption></figure>"
    else:
        yield from _html_table(block)


def _html_table(table: ReportTable) -> Iterator[str]:
    no = ' class="no"'
    numeric = [_is_numeric([row[column] for row in table.rows]) for column in range(len(table.headers))]
    styles = [' class="number"' if is_number else "" for is_number in numeric]
    yield '<div class="wide"><table>'
    if table.caption:
        yield f"<caption>{xml_text(table.caption)}</caption>"
    heads = (f"<th{style}>{xml_text(head)}</th>" for style, head in zip(styles, table.headers, strict=True))
    yield f"<thead><tr>{''.join(heads)}</tr></thead><tbody>"
    for row in table.rows:
        cells = (
            f"<td{no if cell is False else style}>{xml_text(cell_text(cell))}</td>"
            for style, cell in zip(styles, row, strict=True)
        )
        yield f"<tr>{''.join(cells)}</tr>"
    yield "</tbody></table></div>"


def _is_numeric(column: Sequence[object]) -> bool:
    present = [cell for cell in column if cell is not None]
    return bool(present) and all(isinstance(cell, int | float) and not isinstance(cell, bool) for cell in present)


def cell_text(cell: object) -> str:
    """Return the text of a table cell: a number with four digits, yes or NO, or a dash."""
    if cell is None:
        return "–"
    if isinstance(cell, bool):
        return "yes" if cell else "NO"
    if isinstance(cell, float):
        return f"{cell:.0f}" if cell.is_integer() and abs(cell) < 1e15 else f"{cell:.4g}"
    return str(cell)


def markdown_text(page: Page, folder: str) -> str:
    """Return a page as Markdown with pictures in a folder."""
    lines = [
        f"<!-- {CREATOR} -->",
        f"# {markdown(page.title)}",
        "",
        *(line for paragraph in page.summary for line in (markdown(paragraph), "")),
        *(line for block in page.lead for line in (*_markdown_block(block, folder), "")),
    ]
    for section in page.sections:
        heading = f"## {markdown(section.title)}"
        lines += [f"<details><summary>{markdown(section.title)}</summary>", ""] if section.folded else [heading, ""]
        for block in section.blocks:
            lines += [*_markdown_block(block, folder), ""]
        lines += ["</details>", ""] if section.folded else []
    return "\n".join(lines)


def _markdown_block(block: Block, folder: str) -> Iterator[str]:
    if isinstance(block, str):
        yield markdown(block)
    elif isinstance(block, Picture):
        caption = markdown(block.caption)
        yield from (f"![{caption}]({folder}/{block.name}.svg)", "", caption)
    else:
        if block.caption:
            yield from (f"**{markdown(block.caption)}**", "")
        yield "| " + " | ".join(map(markdown, block.headers)) + " |"
        yield "|" + "---|" * len(block.headers)
        for row in block.rows:
            yield "| " + " | ".join(markdown(cell_text(cell)) for cell in row) + " |"
