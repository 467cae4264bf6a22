"""Lexer: splits one unit (single command) of a SCPI message into header and parameters."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

from lumion_hw.emulator.scpi import errors
from lumion_hw.emulator.scpi.errors import ScpiError
from lumion_hw.emulator.scpi.framing import block_end

_NON_PRINTABLE = re.compile(rb"[^\x20-\x7e\t]")
# Mnemonics begin with a letter (IEEE 488.2, 7.6.1.2), except 0NM of Yokogawa: unknown ones are undefined headers.
_HEADER = re.compile(
    r"(?:(?P<star>\*[A-Za-z]+)|(?P<root>:)?(?P<path>[A-Za-z]\w*(?::\d*[A-Za-z]\w*)*))(?P<query>\??)", re.ASCII
)
_HEADER_CHARACTERS = re.compile(r"[\w:*?]*", re.ASCII)
_NUMBER = re.compile(r"(?P<mantissa>[+-]?(?:\d+\.?\d*|\.\d+))(?:[ \t]*[eE][ \t]*(?P<exponent>[+-]?\d+))?", re.ASCII)
_SUFFIX = re.compile(r"[A-Za-z/%][\w./%-]*", re.ASCII)
_ADDRESS = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}", re.ASCII)
_WORD = re.compile(r"[A-Za-z]\w*", re.ASCII)
_BASES = {"H": 16, "Q": 8, "B": 2}


@dataclass(frozen=True)
class CommandHeader:
    """A SCPI command header as received.

    Attributes:
        mnemonics: The words between the colons; a single word starting with ``*`` for a common command.
        absolute: Whether the header began with a colon.
        query: Whether the header ended with ``?``.
    """

    mnemonics: tuple[str, ...]
    absolute: bool
    query: bool

    @property
    def common(self) -> bool:
        """Whether this is a common command of IEEE 488.2."""
        return self.mnemonics[0].startswith("*")


class TokenKind(enum.Enum):
    """Type of a received SCPI parameter."""

    NUMBER = "number"
    WORD = "word"
    STRING = "string"
    BLOCK = "block"
    EXPRESSION = "expression"
    ADDRESS = "address"


@dataclass(frozen=True)
class Token:
    """One SCPI parameter as received.

    Attributes:
        text: Mantissa of a number, the word, the content of a string or of an expression in parentheses, or a network
            address of four numbers (not part of IEEE 488.2).
        exponent: Decimal exponent of a number.
        suffix: Upper-case unit of a number, ``""`` if none was sent.
        data: Content of a block.
    """

    kind: TokenKind
    text: str = ""
    exponent: int = 0
    suffix: str = ""
    data: bytes = b""


@dataclass(frozen=True)
class Unit:
    """One SCPI unit (single command): the header, and the unparsed parameters."""

    header: CommandHeader
    parameters: tuple[bytes, ...]


def parse_unit(raw: bytes, limit: int) -> Unit | None:
    """Split one SCPI unit (single command) into header and parameters; ``None`` for white space alone.

    Raises ``ScpiError`` -101 for bytes that are not printable ASCII, -102 for a malformed header.

    Args:
        raw: The unit, without the separators around it.
        limit: Longest block in bytes.
    """
    text = raw.lstrip(b" \t")  # white space at the end may belong to a block
    if not text:
        return None
    head = re.split(rb"[ \t]", text, maxsplit=1)[0]
    parameters = _split_parameters(text[len(head) :], limit)
    if _NON_PRINTABLE.search(head) or any(
        _NON_PRINTABLE.search(parameter) for parameter in parameters if not parameter.startswith(b"#")
    ):
        raise ScpiError(errors.INVALID_CHARACTER)
    return Unit(_parse_header(head.decode("ascii")), tuple(parameters))


def _parse_header(text: str) -> CommandHeader:
    if not _HEADER_CHARACTERS.fullmatch(text):
        raise ScpiError(errors.INVALID_CHARACTER)
    match = _HEADER.fullmatch(text)
    if match is None:
        raise ScpiError(errors.SYNTAX_ERROR)
    if match["star"]:
        return CommandHeader((match["star"],), absolute=False, query=bool(match["query"]))
    return CommandHeader(tuple(match["path"].split(":")), absolute=bool(match["root"]), query=bool(match["query"]))


def _split_parameters(text: bytes, limit: int) -> list[bytes]:
    if not text.strip(b" \t"):
        return []
    fields: list[bytes] = []
    start = position = quote = depth = 0
    while position < len(text):
        byte = text[position : position + 1]
        next_position = position + 1
        if quote:
            quote = 0 if text[position] == quote else quote
        elif byte == b"#":
            # A # that does not start a block is an ordinary character here; the parser rejects it later.
            next_position = max(next_position, block_end(text, position, limit) or next_position)
        elif byte in (b'"', b"'"):
            quote = text[position]
        elif byte in (b"(", b")"):
            depth = max(depth + (1 if byte == b"(" else -1), 0)
        elif byte == b"," and not depth:
            fields.append(text[start:position])
            start = next_position
        position = next_position
    fields.append(text[start:])
    return [_strip(field) for field in fields]


def _strip(field: bytes) -> bytes:
    """Strip white space around a parameter, but not at the end of a block."""
    field = field.lstrip(b" \t")
    return field if field.startswith(b"#") else field.rstrip(b" \t")


def parse_token(raw: bytes) -> Token:
    """Parse one SCPI parameter. Raises ``ScpiError`` if it is malformed."""
    first = raw[:1]
    if first == b"#":
        return _parse_hash(raw)
    text = raw.decode("ascii")
    if first in (b'"', b"'"):
        return _parse_string(text)
    if _ADDRESS.fullmatch(text):
        return Token(TokenKind.ADDRESS, text)
    if first.isdigit() or first in (b"+", b"-", b"."):
        return _parse_number(text)
    if first.isalpha():
        if not _WORD.fullmatch(text):
            raise ScpiError(errors.INVALID_CHARACTER_DATA)
        return Token(TokenKind.WORD, text)
    if first == b"(":
        # Expression data (IEEE 488.2 section 7.7.7.2), such as a list of channels; its user parses the content.
        if not text.endswith(")"):
            raise ScpiError(errors.SYNTAX_ERROR)
        return Token(TokenKind.EXPRESSION, text[1:-1])
    raise ScpiError(errors.SYNTAX_ERROR)


def _parse_string(text: str) -> Token:
    quote = text[0]
    inner = text[1:-1]
    if len(text) < 2 or text[-1] != quote or quote in inner.replace(quote * 2, ""):
        raise ScpiError(errors.SYNTAX_ERROR)
    return Token(TokenKind.STRING, inner.replace(quote * 2, quote))


def _parse_hash(raw: bytes) -> Token:
    base = _BASES.get(raw[1:2].decode("latin-1").upper())
    if base is not None:
        try:
            return Token(TokenKind.NUMBER, str(_integer(raw[2:].strip(b" \t"), base)))
        except ValueError:
            raise ScpiError(errors.INVALID_CHARACTER_IN_NUMBER) from None
    padded = b" " + raw  # a block follows white space or a comma
    end = block_end(padded, 1, len(raw))
    if end is None or end == 1 or padded[end:].strip(b" \t"):
        raise ScpiError(errors.SYNTAX_ERROR)
    return Token(TokenKind.BLOCK, data=padded[3 + int(raw[1:2]) : end])


def _integer(digits: bytes, base: int) -> int:
    if not digits.isalnum():
        raise ValueError(digits)
    # 255 digits: IEEE 488.2 section 7.7.2.4.1, as for the mantissa of a decimal number.
    if len(digits) > 255:
        raise ScpiError(errors.TOO_MANY_DIGITS)
    return int(digits, base)


def _parse_number(text: str) -> Token:
    match = _NUMBER.match(text)
    if match is None:
        raise ScpiError(errors.NUMERIC_DATA_ERROR)
    if sum(character.isdigit() for character in match["mantissa"].lstrip("+-0.")) > 255:
        raise ScpiError(errors.TOO_MANY_DIGITS)
    return Token(
        TokenKind.NUMBER, match["mantissa"], _exponent(match["exponent"] or "0"), _parse_suffix(text[match.end() :])
    )


def _exponent(text: str) -> int:
    digits = text.lstrip("+-").lstrip("0") or "0"
    # 32000: IEEE 488.2 section 7.7.2.4.1. The length is checked first, because int() is slow for long input.
    if len(digits) > 5 or int(digits) > 32000:
        raise ScpiError(errors.EXPONENT_TOO_LARGE)
    return -int(digits) if text.startswith("-") else int(digits)


def _parse_suffix(remainder: str) -> str:
    suffix = remainder.lstrip(" \t")
    if not suffix:
        return ""
    if not _SUFFIX.fullmatch(suffix):
        raise ScpiError(errors.INVALID_SEPARATOR if remainder != suffix else errors.INVALID_CHARACTER_IN_NUMBER)
    # 12 characters: IEEE 488.2 section 7.7.3.4.
    if len(suffix) > 12:
        raise ScpiError(errors.SUFFIX_TOO_LONG)
    return suffix.upper()
