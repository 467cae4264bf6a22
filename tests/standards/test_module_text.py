"""Text dumps of modules: posted dumps, every form of a random memory, and damaged text."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lumion_hw.drivers.transponders.dump_decoder import decode_file, decode_memory
from lumion_hw.errors import ConfigError
from lumion_hw.standards.cmis.image import LOWER, MemoryImage
from lumion_hw.standards.module_text import FORMS, image_from_text, text_of_image
from lumion_hw.standards.sff8472.image import SfpImage
from tests.every import for_every
from tests.standards import module_text_samples as posted

QSFP_DD, SFP = 0x18, 0x03


def seeds(n_always: int, n_long: int) -> list[Any]:
    """Return seeds of which all but the first ones belong to the long tests."""
    return [*range(n_always), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(n_always, n_long))]


def batches(n_always: int, n_long: int) -> list[Any]:
    """Return the same seeds for two tests that try many each."""
    return [range(n_always), pytest.param(range(n_always, n_long), marks=pytest.mark.long)]


def read(text: str | bytes) -> MemoryImage | SfpImage:
    image = image_from_text(text if isinstance(text, bytes) else text.encode("latin-1"), "dump.txt")
    assert image is not None
    return image


def paged(text: str) -> MemoryImage:
    image = read(text)
    assert isinstance(image, MemoryImage)
    return image


def sfp(text: str) -> SfpImage:
    image = read(text)
    assert isinstance(image, SfpImage)
    return image


# -- posted dumps


def test_i2cdump_of_both_devices_of_an_sfp() -> None:
    module = decode_memory(read(posted.I2CDUMP_SFP))
    assert (module.identity.vendor, module.identity.part_number) == ("OEM", "SFP-10G-T8")
    assert module.checksums == {"CC_BASE": True, "CC_EXT": True, "CC_DMI": True}
    # 4233h / 256 °C, 7FCAh · 0.1 mV, 0BB8h · 2 µA, 1392h · 0.1 µW = -3.00 dBm
    shown = {name: module.field(name).description for name in ("temperature", "supply", "tx_bias", "rx_power")}
    assert shown == {"temperature": "66.199 degC", "supply": "3.2714 V", "tx_bias": "6 mA", "rx_power": "-3.00 dBm"}


def test_redacted_bytes_are_unknown() -> None:
    image = sfp(posted.I2CDUMP_REDACTED)
    assert image.unknown == {"a0": frozenset(range(70, 80))}
    module = decode_memory(image)
    assert (module.identity.vendor, module.identity.serial) == ("Lantech", "")
    assert module.checksums == {"CC_BASE": True}  # CC_EXT covers the serial number
    assert not module.damage
    assert "70-79" in next(item.message for item in module.findings if item.kind == "unread")
    with pytest.raises(KeyError):
        module.field("serial_number")


def test_i2cdump_of_a_qsfp_takes_the_page_from_byte_127() -> None:
    image = paged(posted.I2CDUMP_QSFP)
    assert set(image.halves) == {LOWER, (0, 0)}
    assert (image.half(0) or b"")[20:36] == b"FINISAR CORP    "
    other = paged(posted.I2CDUMP_QSFP.replace("ff ff 00    ......", "ff ff 03    ......"))
    assert set(other.halves) == {LOWER, (0, 3)}


def test_sfputil_of_a_cmis_module() -> None:
    module = decode_memory(read(posted.SFPUTIL_CMIS))
    assert (module.identity.vendor, module.identity.part_number) == ("Hisense", "DEF8504-2C02-MB3")
    assert module.checksums == {"00h:222": True}
    # The second reading counts: 1A3Eh / 256 °C, 7EEAh · 0.1 mV; page 11h: 2844h and 1F29h · 0.1 µW.
    assert module.field("temperature").value == pytest.approx(26.2421875)
    assert module.field("supply").value == pytest.approx(3.2490)
    assert module.field("tx_power", 1).value == pytest.approx(1.0308)
    assert module.field("rx_power", 1).value == pytest.approx(0.7977)
    assert (module.field("tx_bias", 1).raw, module.field("tx_bias", 1).value) == ("0e56", None)  # page 01h has its unit
    assert module.field("data_path_state", 1).description == "activated"
    missing = next(item.message for item in module.findings if item.kind == "missing_page")
    assert missing == "pages 01h, 02h, 10h are not in the dump, but the module has them"


def test_sfputil_of_a_qsfp_and_of_an_sfp() -> None:
    image = paged(posted.SFPUTIL_QSFP)
    assert image.halves[LOWER][:3].hex() == "110800"
    assert not image.has(None, [48])
    assert image.remarks == ("lower: only 48 of 128 bytes", "00: only 32 of 128 bytes")
    finisar = decode_memory(read(posted.SFPUTIL_SFP))
    assert (finisar.identity.part_number, finisar.identity.serial) == ("FTLX8571D3BCL", "AUJ0RCJ")
    assert finisar.checksums["CC_BASE"]
    assert finisar.field("temperature_high_alarm").raw == "4e00"


def test_ethtool() -> None:
    image = paged(posted.ETHTOOL_QSFP)
    assert (image.half(3) or b"")[:4].hex() == "5000f600"  # high alarm of 80 °C in the decoded listing of the post
    assert not image.has(None, [32])
    netgear = decode_memory(read(posted.ETHTOOL_SFP))
    assert (netgear.identity.vendor, netgear.identity.part_number) == ("NETGEAR", "AGM734")


def test_hexdump_agrees_with_the_values_that_ethtool_decoded() -> None:
    module = decode_memory(read(posted.HEXDUMP_SFP))
    assert (module.identity.part_number, module.identity.serial) == ("SFP-2.5G-T", "SK2301110008")
    assert module.thresholds["tx_bias"] == ("15 mA", "1 mA", "13 mA", "2 mA")
    assert module.thresholds["temperature"] == ("95 degC", "-50 degC", "90 degC", "-45 degC")
    assert module.thresholds["rx_power"] == ("0.50 dBm", "-17.01 dBm", "0.00 dBm", "-16.52 dBm")
    assert (module.field("tx_bias").value, module.field("tx_power").description) == (6.0, "-3.01 dBm")
    assert sfp(posted.HEXDUMP_SFP).a0[128:] == bytes(128)  # the asterisk


def test_rows_replaced_by_dots_are_unknown_and_not_repeated() -> None:
    image = sfp(posted.HEXDUMP_ELIDED)
    assert image.has("a0", range(16))
    assert not any(image.has("a0", [offset]) for offset in range(16, 128))
    assert image.has("a2", range(16))


@pytest.mark.parametrize(
    ("text", "vendor", "part"),
    [
        (posted.XXD, "SERCOMM", "FGS202"),
        (posted.KERNEL_LOG, "TP-LINK", "TL-SM410U"),
        (posted.ONLPDUMP, "OEM", "DA-SFP-Plus-2m"),
    ],
)
def test_xxd_kernel_log_and_onlpdump(text: str, vendor: str, part: str) -> None:
    module = decode_memory(read(text))
    assert (module.identity.vendor, module.identity.part_number) == (vendor, part)
    assert module.checksums["CC_BASE"]


def test_mlxlink() -> None:
    image = paged(posted.MLXLINK)
    assert (image.halves[LOWER][:5].hex(), image.halves[0, 0x11][:4].hex()) == ("1e52040601", "44441111")
    values = "page[0].Byte[0]  : 0x0d\npage[0].Byte[1]  : 0x02\npage[0].Byte[130]  : 0x23\n"
    assert paged(values).has(0, [130])
    rows = "000: 0d 02 06 00 00 00 00 00\n008: 00 00 00 00 00 00 00 01\n"
    assert paged(rows).halves[LOWER][15] == 1


def test_256_bytes_of_a_paged_module_name_the_missing_pages() -> None:
    lower = bytes([QSFP_DD, 0x52, *bytes(126)])
    module = decode_file(lower + bytes([QSFP_DD]) + b"VENDOR".ljust(127))
    assert module.identity.vendor.startswith("VENDOR")
    assert any("pages 01h, 02h, 10h, 11h are not in the dump" in item.message for item in module.findings)


# -- every form of a random memory, written independently of the reader


def ascii_of(data: bytes) -> str:
    return "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in data)


def rows(data: bytes, width: int = 16) -> Iterator[tuple[int, bytes]]:
    return ((at, data[at : at + width]) for at in range(0, len(data), width))


def hexdump_c(data: bytes) -> str:
    lines, last = [], b""
    for at, part in rows(data):
        if part == last:
            lines += [] if lines[-1] == "*" else ["*"]
        else:
            lines.append(f"{at:08x}  {part[:8].hex(' ')}  {part[8:].hex(' ')}  |{ascii_of(part)}|")
        last = part
    return "\n".join([*lines, f"{len(data):08x}"])


LINEAR: dict[str, Callable[[bytes], str]] = {
    "ethtool -m IF hex on": lambda data: (
        "Offset\t\tValues\n------\t\t------\n"
        + "".join(f"0x{at:04x}:\t\t{part.hex(' ')} \n" for at, part in rows(data))
    ),
    "hexdump -C": hexdump_c,
    "xxd": lambda data: "\n".join(f"{at:08x}: {part.hex(' ', -2)}  {ascii_of(part)}" for at, part in rows(data)),
    "xxd -p": lambda data: "\n".join(part.hex() for _, part in rows(data, 30)),
    "onlpdump": lambda data: "eeprom:\n" + "\n".join(f"  {at:04x}: {part.hex(' ')} " for at, part in rows(data)),
    "od -A x -t x1": lambda data: "\n".join(f"{at:06x} {part.hex(' ')}" for at, part in rows(data)),
    "od -t x1": lambda data: "\n".join(f"{at:07o} {part.hex(' ')}" for at, part in rows(data)),
}


def i2cdump(device: bytes, address: int) -> str:
    heading = "     0  1  2  3  4  5  6  7  8  9  a  b  c  d  e  f    0123456789abcdef"
    lines = [f"{at:02x}: {part.hex(' ')}    {ascii_of(part)}" for at, part in rows(device)]
    return "\n".join([f"# i2cdump -y 5 {address:#04x} b", heading, *lines]) + "\n"


def mlxlink(data: bytes) -> str:
    text = ""
    for number, (_, half) in enumerate(rows(data, 128)):
        first = 128 if number else 0
        text += f"\nPage: {max(number - 1, 0):#x}, Offset: {first:03d}, Length: 0x80\n{'-' * 30}\n"
        text += "".join(f"{at + first:03d}    : {part.hex(',')}\n" for at, part in rows(half, 4))
    return text


def memory(seed: int, identifier: int, size: int) -> bytes:
    data = bytearray(random.Random(seed).randbytes(size))
    data[0] = identifier
    data[32:64] = bytes(32) if seed % 2 else data[32:64]  # for the asterisk
    return bytes(data)


@pytest.mark.parametrize("seed", seeds(6, 20))
@pytest.mark.parametrize("form", LINEAR)
def test_linear_forms(form: str, seed: int) -> None:
    size = 128 * (1 + seed % 5)
    data = memory(seed, QSFP_DD, size)
    image = paged(LINEAR[form](data))
    assert b"".join(image.halves.values()) == data
    assert (image.unknown, image.remarks) == ({}, ())
    device = memory(seed, SFP, 512 if seed % 3 else 256)
    assert sfp(LINEAR[form](device)) == SfpImage(device[:256], device[256:], "dump.txt")


@pytest.mark.parametrize("seed", seeds(6, 20))
def test_i2cdump_and_mlxlink(seed: int) -> None:
    data = memory(seed, QSFP_DD, 128 * 4)
    image = paged(mlxlink(data))
    assert [image.halves[half] for half in (LOWER, (0, 0), (0, 1), (0, 2))] == [part for _, part in rows(data, 128)]
    device = memory(seed, SFP, 512)
    assert sfp(i2cdump(device[:256], 0x50) + i2cdump(device[256:], 0x51)).a2 == device[256:]
    selected = bytearray(data[:256])
    selected[126:128] = 0, 0x11
    assert paged(i2cdump(bytes(selected), 0x50)).halves == {LOWER: selected[:128], (0, 0x11): selected[128:]}


def some_image(seed: int) -> MemoryImage:
    chance = random.Random(seed)
    halves = {LOWER: memory(seed, QSFP_DD, 128)}
    for half in ((0, 0x00), (0, 0x01), (0, 0x11), (1, 0x11))[: seed % 5]:
        halves[half] = chance.randbytes(128)
    unknown = {}
    for half, data in list(halves.items()):
        start = 0 if half == LOWER else 128
        lost = frozenset(chance.sample(range(start + 1, start + 128), chance.choice([0, 3])))
        kept = bytes(0 if start + at in lost else byte for at, byte in enumerate(data))
        halves[half] = kept
        unknown |= {half: lost} if lost else {}
    return MemoryImage(halves, unknown, "dump.txt")


@pytest.mark.parametrize("seed", seeds(15, 50))
def test_our_own_text_is_read_back(seed: int) -> None:
    image = some_image(seed)
    text = text_of_image(image, "Ethernet0")
    assert paged(text) == image
    assert text.startswith("EEPROM hexdump for port Ethernet0" if seed % 5 > 1 else "Offset\t\tValues")
    device = SfpImage(memory(seed, SFP, 256), memory(seed + 1, 7, 256), "dump.txt", unknown={"a2": frozenset({3, 200})})
    back = sfp(text_of_image(device))
    assert (back.a0, back.unknown) == (device.a0, device.unknown)


def test_pages_that_could_not_be_read_are_named() -> None:
    image = MemoryImage({LOWER: bytes([QSFP_DD, *bytes(127)]), (0, 0): bytes(128)}, unreadable={(0, 0x11): "no answer"})
    assert paged(text_of_image(image)).unreadable == {(0, 0x11): "no answer"}
    message = "Error: Failed to read EEPROM for page 11h, flat_offset 2304, page_offset 128, size 128!"
    sonic = posted.SFPUTIL_QSFP + f"\n        Upper page 11h\n        {message}\n"
    assert paged(sonic).unreadable == {(0, 0x11): message[7:-1]}


# -- damaged text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (posted.I2CDUMP_REDACTED.replace("10: 1e 0f", "10: 1e"), "line 4: expected 16 bytes in the row, found 15"),
        (
            posted.ETHTOOL_SFP.replace("4e 45 54", "4e 45 5"),
            "line 6: expected 16 bytes in the row, found 6, then '5 47",
        ),
        (posted.XXD.replace("00000030:", "00000010:"), "line 5: expected an offset of at least 30h"),
        (
            posted.SFPUTIL_QSFP + posted.SFPUTIL_QSFP.replace("Ethernet0", "Ethernet4"),
            "line 11: expected one module in the file ('Ethernet0', line 2), found a second one ('Ethernet4')",
        ),
        (posted.ETHTOOL_QSFP + posted.ETHTOOL_QSFP, "line 11: expected one dump in the file (it begins in line 1)"),
        (posted.HEXDUMP_SFP + posted.XXD, "as hexdump -C prints them, found '00000000: 0304"),
        (posted.DECODED, "found values that another program has decoded, and no bytes"),
        ("0000000 0403 1007 0000\n", "found words, whose byte order depends on the computer"),
        ("     0,8  1,9  2,a\n00: 0403 0007 0000\n", "found words, whose bytes may belong to different readings"),
        ("00 " * 700_000, "a text of 2100000 characters, more than the 2097152 of any module"),
        ("no such dump\n", "a text of unknown form; it begins with 'no such dump'"),
        (posted.ETHTOOL_QSFP.replace("0x0000:         11", "0x0000:         XX"), "byte 0 of the module is not"),
        (posted.MLXLINK.replace("128     ", "28      "), "expected offsets from 128 to 255 of an upper page"),
    ],
)
def test_damage_is_one_sentence_with_the_line(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert message in str(caught.value)
    assert caught.value.hint


def known_bytes(image: MemoryImage | SfpImage) -> dict[tuple[object, int], int]:
    if isinstance(image, SfpImage):
        parts = {"a0": (image.a0, 0), "a2": (image.a2, 0)}
        return {
            (key, at): byte for key, (data, _) in parts.items() for at, byte in enumerate(data) if image.has(key, [at])
        }
    return {
        (half, at): byte
        for half, data in image.halves.items()
        for at, byte in enumerate(data, 0 if half == LOWER else 128)
        if at not in image.unknown.get(half, frozenset())
    }


TEXTS = [text for name, text in vars(posted).items() if name.isupper() and name != "DECODED"] + [
    writer(memory(2, QSFP_DD, 384)) for writer in (*LINEAR.values(), mlxlink)
]


def _check_cut_text(seed: int) -> None:
    chance = random.Random(seed)
    text = chance.choice(TEXTS)
    at = chance.randrange(len(text))
    lines = text.splitlines(keepends=True)
    number = chance.randrange(len(lines)) if ":" in text or "  " in text else -1  # xxd -p has no offsets
    damaged = chance.choice(
        [
            text[:at],  # the end is missing
            "".join(lines[:number] + lines[number + 1 :] if number >= 0 else lines[:-1]),  # a line is missing
            text[:at] + chance.choice("gz#") + text[at + 1 :],  # a character is no digit
            text[:at] + text[at + 1 :],  # a character is missing
        ]
    )
    try:
        image = image_from_text(damaged.encode("latin-1"))
    except ConfigError:
        return
    if image is None:
        assert not damaged.strip()
        return
    good = known_bytes(read(text))
    wrong = {key for key, byte in known_bytes(image).items() if good.get(key, byte) != byte}
    # The post with two readings of the lower memory has two temperatures and supplies.
    assert wrong <= ({(LOWER, 15), (LOWER, 17)} if text == posted.SFPUTIL_CMIS else set())


@pytest.mark.parametrize("seeds", batches(100, 1000))
def test_cut_text_is_refused_or_leaves_bytes_unknown(seeds: range) -> None:
    for_every(seeds)(_check_cut_text)()


def _check_changed_text(seed: int) -> None:
    chance = random.Random(seed)
    text = list(chance.choice(TEXTS))
    for _ in range(chance.choice([1, 3, 30])):
        text[chance.randrange(len(text))] = chance.choice("0123456789abcdefX:|*\n xg\u00e9")
    with contextlib.suppress(ConfigError):
        image = image_from_text("".join(text).encode("latin-1"))
        assert image is not None
        decode_memory(image)


@pytest.mark.parametrize("seeds", batches(100, 1000))
def test_changed_text_raises_only_configuration_errors(seeds: range) -> None:
    for_every(seeds)(_check_changed_text)()


def test_text_of_other_encodings() -> None:
    expected = read(posted.XXD)
    assert read(posted.XXD.encode("utf-16")) == expected
    assert read(b"\xef\xbb\xbf" + posted.XXD.replace("\n", "\r\n").encode()) == expected
    assert image_from_text(bytes([QSFP_DD, *bytes(255)])) is None


def test_every_form_says_what_it_is_or_why_it_is_refused() -> None:
    assert all(form.name and bool(form.refusal) == bool(form.advice) for form in FORMS)
