"""Forms in which other tools print the memory of a module, and the reader of these forms.

Sources: the posted dumps in tests/standards/module_text_samples.py, and the output routines of mstflint (mlxlink).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from lumion_hw.errors import ConfigError
from lumion_hw.standards.cmis.image import MemoryImage
from lumion_hw.standards.module_text.blocks import Block, Space, assemble
from lumion_hw.standards.module_text.lines import COPY_HINT, DumpLine, lines_of, text_of
from lumion_hw.standards.sff8472.image import SfpImage

_LINEAR, _MAP, _OTHER = Space("linear"), Space("map"), Space("other")
_END = r"(?![^\s,|])"
_UNREADABLE = frozenset({"XX", "xx", "--", "??"})
_BYTE = r"(?:[0-9A-Fa-f]{2}|XX|xx|--|\?\?)"
_I = re.IGNORECASE
_ALMOST_ROW = re.compile(r"(?:(?<!\S)(?:[0-9A-Fa-f]{4}|[0-9A-Fa-f]{2}|XX)[ ,]+){4,}")
_FAILURE = re.compile(r"(?:failed to read: )?(?P<reason>(?:(?<=to read: )|failed to read).+)", _I)
_TOKEN = re.compile(r"([,\s]*)([^,\s]+)")
_HEX = re.compile(r"[0-9A-Fa-f]+")
_COLUMN = 3  # characters per byte
_MAX_SQUEEZED = 1 << 20
_MAX_TEXT = 1 << 21  # all pages of four banks as text are about half of this
_MAX_FOUND = 20  # characters of a damaged row in messages

Opens = Callable[[re.Match[str]], Space]


@dataclass(frozen=True)
class TextForm:
    """One form of text.

    Attributes:
        name: Command that prints the form.
        row: Pattern of a row, with the groups ``at`` (offset) and ``data``.
        mark: Pattern of a line that identifies the form; ``None`` if its rows do.
        base: Base of the offsets.
        width: Bytes in a complete row; 0 if rows of any one length are possible.
        group: Hexadecimal digits that may stand without a space, as in ``0304``.
        gap: More spaces than this separate the bytes from the column of characters; 0 if there is no such column.
        bars: Whether the column of characters stands between bars.
        whole: Whether all lines must be rows.
        opens: Patterns of lines that begin a block, each with a function that returns the meaning of its offsets.
        heading: Pattern of the column headings of a block.
        owner: Pattern of a line that names the port of the module.
        default: Meaning of the offsets before the first line of ``opens``.
        refusal: Why this form cannot be read; empty if it can.
        advice: What to do instead of using a refused form.
    """

    name: str
    row: re.Pattern[str]
    mark: re.Pattern[str] | None = None
    base: int = 16
    width: int = 16
    group: int = 2
    gap: int = 0
    bars: bool = False
    whole: bool = False
    opens: tuple[tuple[re.Pattern[str], Opens], ...] = ()
    heading: re.Pattern[str] | None = None
    owner: re.Pattern[str] | None = None
    default: Space = _LINEAR
    refusal: str = ""
    advice: str = ""

    def count_rows(self, lines: Sequence[DumpLine]) -> int:
        """Return the number of lines that are rows of this form; 0 if the text has a different form."""
        if self.mark is not None and not any(self.mark.search(line.text) for line in lines):
            return 0
        count = sum(self.row.match(line.text) is not None for line in lines)
        return 0 if self.whole and count < len(lines) else count


def _page(match: re.Match[str]) -> Space:
    return Space("page", int(match["page"], 16), int(match["bank"] or 0))


def _mellanox(match: re.Match[str]) -> Space:
    page = int(match["page"], 0)
    if match["first"] and int(match["first"]):
        return Space("upper", page)
    return Space("map", page) if page or not match["first"] else Space("lower")


def _bus_address(match: re.Match[str]) -> Space:
    return {0x50: _MAP, 0x51: Space("a2")}.get(int(match["address"], 16), _OTHER)


def _netlink(match: re.Match[str]) -> Space:
    words = dict(re.findall(r"\b(page|bank|i2c) +(0x[0-9a-f]+|\d+)", match[0], _I))
    numbers = {key: int(value, 0) for key, value in words.items()}
    if numbers.get("i2c") == 0x51:
        return Space("a2")
    return Space("map", numbers["page"], numbers.get("bank", 0)) if "page" in numbers else _LINEAR


def _row(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, _I)


_OFFSET_8 = r"^\s*(?P<at>[0-9a-f]{8})"
_PROMPT_I2CDUMP = re.compile(r"\bi2cdump\b.*\b(?P<address>0x[0-9a-f]{2})\b", _I)

FORMS: tuple[TextForm, ...] = (
    TextForm(
        "sfputil show eeprom-hexdump",
        _row(_OFFSET_8 + rf"\s+(?P<data>{_BYTE}{_END}.*)$"),
        mark=re.compile(r"^\s*(?:Lower page 0h|Upper page (?:0x)?[0-9a-f]+h|A[02]h dump)", _I),
        gap=2,
        bars=True,
        opens=(
            (re.compile(r"^\s*Lower page 0h", _I), lambda _: Space("lower")),
            (re.compile(r"^\s*Upper page (?:0x)?(?P<page>[0-9a-f]{1,2})h(?: bank (?P<bank>\d))?", _I), _page),
            (re.compile(r"^\s*A0h dump", _I), lambda _: Space("a0")),
            (re.compile(r"^\s*A2h dump \(upper 128 bytes\) page 0?[01]h", _I), lambda _: Space("a2")),
            (re.compile(r"^\s*A2h dump \(upper 128 bytes\)", _I), lambda _: _OTHER),
            (re.compile(r"^\s*A2h dump", _I), lambda _: Space("a2")),
        ),
        owner=re.compile(r"EEPROM hexdump for (?:port|module) (?P<owner>\S+)", _I),
    ),
    TextForm(
        "mlxlink --cable --dump",
        _row(rf"^\s*(?P<at>\d{{1,3}})\s*:\s*(?P<data>{_BYTE}[ ,].*)$"),
        mark=re.compile(r"^\s*Page:? *(?:0x)?[0-9a-f]+", _I),
        base=10,
        width=0,
        opens=(
            (
                re.compile(r"^\s*Page:? *(?P<page>0x[0-9a-f]{1,2}|\d{1,3})\b(?:.*Offset: *(?P<first>\d+))?", _I),
                _mellanox,
            ),
        ),
        default=_MAP,
    ),
    TextForm(
        "mlxlink --cable --read",
        _row(r"^\s*page\[(?P<page>\d+)\]\.Byte\[(?P<at>\d{1,3})\]\s*:\s*0x(?P<data>[0-9a-f]{2})\s*$"),
        base=10,
        width=1,
        default=Space("map", 0),
    ),
    TextForm(
        "i2cdump in word mode",
        _row(r"^\s*(?P<at>[0-9a-f]{2}):(?P<data>(?: [0-9a-fX]{4}){2,})"),
        mark=re.compile(r"^\s*0,8\s+1,9\s+2,a", _I),
        refusal="words, whose bytes may belong to different readings",
        advice="Use 'i2cdump -y BUS 0x50 b'.",
    ),
    TextForm(
        "i2cdump",
        _row(rf"^\s*(?:-- |// |# )?(?P<at>[0-9a-f]{{2}}): ?(?P<data>\s*{_BYTE}{_END}.*)$"),
        gap=3,
        opens=(
            (_PROMPT_I2CDUMP, _bus_address),
            (re.compile(r"^\W*0  1  2  3  4  5  6  7  8  9  a  b  c  d  e  f\s*$", _I), lambda _: _OTHER),
        ),
        heading=re.compile(r"0123456789abcdef\s*$", _I),
        default=_MAP,
    ),
    TextForm(
        "ethtool -m IF hex on",
        _row(r"^\s*0x(?P<at>[0-9a-f]{4,8}):\s*(?P<data>\S.*)$"),
        opens=((re.compile(r"\bethtool +(?:-m|--module-info) .*", _I), _netlink),),
        heading=re.compile(r"^\s*Offset\s+Values\s*$", _I),
    ),
    TextForm(
        "mlxcables --print_raw",
        _row(rf"^\s*(?P<at>\d{{3}}):\s*(?P<data>{_BYTE}{_END}.*)$"),
        base=10,
        width=0,
        default=Space("map", 0),
    ),
    TextForm("hexdump -C", _row(_OFFSET_8 + rf"\s+(?P<data>{_BYTE}{_END}.*)$"), width=0, gap=2, bars=True),
    TextForm(
        "xxd",
        _row(r"^(?:.*\bsfp EE: )?\s*(?P<at>[0-9a-f]{8}): ?(?P<data>\S.*)$"),
        width=0,
        group=64,
        gap=1,
    ),
    TextForm(
        "onlpdump",
        _row(rf"^\s*(?P<at>[0-9a-f]{{4}}): (?P<data>{_BYTE}{_END}.*)$"),
        gap=1,
        owner=re.compile(r"^\s*Port (?P<owner>\d+): ", _I),
        heading=re.compile(r"^\s*eeprom:\s*$", _I),
    ),
    TextForm("od -A x -t x1", _row(rf"^(?P<at>[0-9a-f]{{6}}) (?P<data>{_BYTE}{_END}.*)$"), gap=1),
    TextForm("od -t x1", _row(rf"^(?P<at>[0-7]{{7}}) (?P<data>{_BYTE} .*)$"), base=8, gap=1),
    TextForm("xxd -p", _row(r"^(?P<at>)(?P<data>(?:[0-9a-f]{2}){2,})$"), width=0, group=1 << 20, whole=True),
    TextForm(
        "hexdump without -C",
        _row(r"^(?P<at>[0-9a-f]{7})(?P<data>(?: +[0-9a-f]{4}){1,8})\s*$"),
        refusal="words, whose byte order depends on the computer",
        advice="Use 'hexdump -C'.",
    ),
    TextForm(
        "a decoded listing, as from 'sfputil show eeprom -d' or 'ethtool -m IF'",
        _row(r"^\s*(?P<at>)(?P<data>(?:Vendor (?:PN|Name|SN)|Identifier|Part number|SFP EEPROM)\b.*)"),
        mark=re.compile(r"SFP EEPROM (?:not )?detected|^\s*(?:Vendor (?:PN|Name)|Identifier|Part number)\s*:", _I),
        refusal="values that another program has decoded, and no bytes",
        advice="Use 'sfputil show eeprom-hexdump', or 'ethtool -m IF hex on'.",
    ),
)
"""All forms. If several fit equally many lines, the first is used."""


def image_from_text(data: bytes, source: str = "") -> MemoryImage | SfpImage | None:
    """Return the memory of a module in a text dump, or ``None`` if the bytes are no text.

    Bytes that are missing in the text, or shown as ``XX``, are unknown.

    Args:
        data: Bytes of a file.
        source: Name of the file, for messages.

    Raises:
        ConfigError: The text has no known form, is damaged, or contains several modules.
    """
    text = text_of(data)
    if text is None:
        return None
    if len(text) > _MAX_TEXT:
        message = f"{source or 'dump'}: a text of {len(text)} characters, more than the {_MAX_TEXT} of any module"
        raise ConfigError(message, hint="It is probably another kind of file.")
    lines = list(lines_of(text, source))
    form = _form_of(lines)
    if form is None:
        known = ", ".join(form.name for form in FORMS if not form.refusal)
        raise ConfigError(
            f"{source or 'dump'}: a text of unknown form; it begins with {lines[0].shown}",
            hint=f"A dump is JSON, raw bytes, or the output of {known}.",
        )
    if form.refusal:
        line = next(line for line in lines if form.row.match(line.text))
        raise line.error("bytes", f"{form.refusal} ({form.name})", form.advice)
    return assemble(_RowReader(form, lines).blocks(), source)


def _form_of(lines: Sequence[DumpLine]) -> TextForm | None:
    """Return the form of most rows, a form that can be read if there is one."""
    counts = {form.name: form.count_rows(lines) for form in FORMS}
    fitting = [form for form in FORMS if counts[form.name]]
    return max(fitting, key=lambda form: (not form.refusal, counts[form.name]), default=None)


@dataclass(frozen=True)
class _Row:
    """A row that was read: its line, its first offset, its bytes, and the offset after a complete row."""

    line: DumpLine
    at: int
    values: list[int | None]
    due: int

    @property
    def end(self) -> int:
        """Offset after the last byte that was read."""
        return self.at + len(self.values)


@dataclass
class _RowReader:
    """Reads the rows of one form into blocks."""

    form: TextForm
    lines: Sequence[DumpLine]
    _blocks: list[Block] = field(default_factory=list)
    _owner: str = ""
    _last: _Row | None = None  # last row of this block
    _squeezed: bool = False  # an asterisk after the last row
    _elided: bool = False  # other text after the last row
    _is_new: bool = False  # no row since the block began

    def blocks(self) -> list[Block]:
        """Return the blocks of all lines, in order; rows of another device or memory are skipped."""
        width = self.form.width or self._common_width()
        for line in self.lines:
            if self._opened(line):
                continue
            match = self.form.row.match(line.text)
            self._is_new = self._is_new and match is None
            if self._blocks and self._blocks[-1].space == _OTHER:
                continue
            if match is None:
                self._other(line)
            else:
                self._add(line, match, width)
        return self._blocks

    def _common_width(self) -> int:
        counts = [len(self._bytes(line, match, 0)) for line in self.lines if (match := self.form.row.match(line.text))]
        return max(set(counts), key=lambda count: (counts.count(count), count))

    def _opened(self, line: DumpLine) -> bool:
        """Begin a block if the line is a heading or command."""
        owner = self.form.owner.search(line.text) if self.form.owner else None
        if owner is not None:
            self._owner = owner["owner"]
            self._begin(self.form.default, line)
            return True
        for pattern, meaning in self.form.opens:
            match = pattern.search(line.text)
            if match is not None:
                self._begin(meaning(match), line)
                return True
        if self.form.heading is None or not self.form.heading.search(line.text):
            return False
        # A command before the headings says more about the block.
        if not self._is_new:
            self._begin(self.form.default, line)
        return True

    def _begin(self, space: Space, line: DumpLine) -> None:
        self._last, self._squeezed, self._is_new = None, False, True
        self._blocks.append(Block(space, line, self._owner))

    def _other(self, line: DumpLine) -> None:
        text = line.text.strip()
        if text == "*":
            self._squeezed = not self._elided  # people replace rows by dots
        elif self._blocks and (failure := _FAILURE.search(text)) is not None:
            self._blocks[-1].failure = self._blocks[-1].failure or failure["reason"].rstrip("!")
        elif self._last is not None and self.form.gap and re.fullmatch(r"[0-9a-f]{6,8}", text, _I):
            self._continue(int(text, self.form.base), line)  # hexdump prints the size at the end
            self._last = None
        elif _ALMOST_ROW.search(line.text):
            raise line.error(f"an offset and bytes as {self.form.name} prints them", line.shown)
        else:
            self._elided = True

    def _add(self, line: DumpLine, match: re.Match[str], width: int) -> None:
        page = match.groupdict().get("page")
        space = self.form.default if page is None else Space("map", int(page))
        # After the end of a dump, further rows belong to another dump.
        if not self._blocks or (page is not None and self._blocks[-1].space != space):
            self._begin(space, line)
        elif self._last is None and self._blocks[-1].cells:
            self._begin(self.form.default, line)
        block = self._blocks[-1]
        blanks = (len(match["data"]) - len(match["data"].lstrip())) // _COLUMN
        values = self._bytes(line, match, width - blanks)
        start = int(match["at"], self.form.base) if match["at"] else (self._last.end if self._last else 0)
        if self._last is not None:
            if len(self._last.values) and self._last.end < self._last.due:
                raise self._last.line.error(f"{width} bytes in the row", f"{len(self._last.values)}")
            self._continue(start, line)
        at = start + blanks
        block.cells.update(zip(range(at, at + len(values)), values, strict=True))
        self._last, self._elided = _Row(line, at, values, start + width), False

    def _continue(self, start: int, line: DumpLine) -> None:
        """Check that a row at an offset can follow the last row, and fill the rows in between after an asterisk."""
        last = self._last
        if last is None:
            return
        if start < last.end:
            raise line.error(f"an offset of at least {last.end:X}h after line {last.line.number}", f"offset {start:X}h")
        if self._squeezed:
            size = len(last.values)
            if start - last.at > _MAX_SQUEEZED or (start - last.at) % size:
                raise line.error(f"a multiple of {size} bytes for the asterisk", f"offset {start:X}h")
            repeated = ((at, last.values[(at - last.at) % size]) for at in range(last.end, start))
            self._blocks[-1].cells.update(repeated)
            self._squeezed = False

    def _bytes(self, line: DumpLine, match: re.Match[str], width: int) -> list[int | None]:
        """Return the bytes of a row. The column of characters is ignored. A width of 0 allows any number of bytes."""
        form, rest = self.form, match["data"]
        barred = form.bars and "|" in rest
        if barred:
            rest = rest[: rest.index("|")]
        values: list[int | None] = []
        while barred or not width or len(values) < width:
            token = _TOKEN.match(rest)
            if token is None or (form.gap and not barred and values and len(token[1]) > form.gap):
                rest = ""
                break
            read = self._read_token(token[2])
            if read is None:
                break
            values += read
            rest = rest[token.end() :]
        if width:
            self._check_row(line, values, rest, width, barred)
        return values

    def _check_row(self, line: DumpLine, values: list[int | None], rest: str, width: int, barred: bool) -> None:
        if len(values) > width:
            raise line.error(f"{width} bytes in the row", f"{len(values)}")
        is_complete = len(values) == width and self.form.gap and not barred
        if not values or (rest.strip(" ,\t") and not is_complete):
            hint = f"Bytes have two hexadecimal digits; unreadable bytes are XX. {COPY_HINT}"
            raise line.error(f"{width} bytes in the row", f"{len(values)}, then {rest.strip()[:_MAX_FOUND]!r}", hint)

    def _read_token(self, text: str) -> list[int | None] | None:
        if text in _UNREADABLE:
            return [None]
        if len(text) > self.form.group or len(text) % 2 or not _HEX.fullmatch(text):
            return None
        return [int(text[at : at + 2], 16) for at in range(0, len(text), 2)]
