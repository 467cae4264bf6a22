"""The decoder on images of its own: what it reads, and what it says when a module contradicts itself."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from lumion_hw.clock import VirtualClock
from lumion_hw.drivers.transponders.cmis_decoder import decode_image
from lumion_hw.drivers.transponders.decoded import DecodedModule, Severity
from lumion_hw.drivers.transponders.dump_decoder import decode_file
from lumion_hw.errors import ConfigError
from lumion_hw.interfaces import Quality
from lumion_hw.standards.cmis.image import MemoryImage, parse_image
from tests.drivers.transponders.cmis_peer import Peer, signed, text
from tests.effort import examples

SHARED = Path(os.environ.get("LUMION_SHARED", Path(__file__).parents[4] / "shared")) / "data" / "cmis_dumps"
DUMPS = sorted(SHARED.glob("*.json"))


def image(peer: Peer) -> MemoryImage:
    return MemoryImage({(0, None): bytes(peer.lower)} | {(0, page): bytes(half) for page, half in peer.pages.items()})


@pytest.fixture
def peer() -> Peer:
    return Peer(VirtualClock())


def decoded(peer: Peer, change: Callable[[Peer], object] = lambda _: None, *, sums: bool = True) -> DecodedModule:
    change(peer)
    if sums:
        peer.checksum()
    return decode_image(image(peer))


def bad(module: DecodedModule) -> list[tuple[str, str]]:
    return [(item.address, item.kind) for item in module.findings if item.severity is not Severity.NOTE]


def test_a_sound_module_has_nothing_wrong_with_it(peer: Peer) -> None:
    module = decoded(peer)
    assert bad(module) == []
    assert (module.form_factor, module.revision, module.flat) == ("QSFP-DD", "5.2", False)
    assert module.identity.serial == "SN0001"
    assert module.checksums == {"00h:222": True, "01h:255": True, "02h:255": True, "04h:255": True}
    assert [item.number for item in module.applications] == [1, 2]


def test_values_come_with_words(peer: Peer) -> None:
    module = decoded(peer)
    words = {
        ("temperature", None): "45 degC",
        ("supply", None): "3.3 V",
        ("max_duration_dp_init", None): "at most 60 s",
        ("power_class", None): "class 8",
        ("max_power", None): "20 W",
        ("rx_power", 1): "0.1585 mW (-8.00 dBm)",
        ("rx_power", 2): "",  # a module of one media lane
        ("tx_bias", 1): "85 mA",
        ("current_frequency", 1): "193.100000 THz",
        ("application_media_interface", 1): "400ZR, DWDM, amplified",
        ("aux2", None): "50 degC laser temperature",
        ("module_state", None): "ready",
        ("vendor_name", None): "LUMION TEST",
        ("cmis_revision", None): "5.2",
        ("pm_osnr_avg", None): "34 dB",
    }
    assert {key: module.field(*key).description for key in words} == words
    assert module.thresholds["rx_power"] == (
        "1 mW (0.00 dBm)",
        "0.01 mW (-20.00 dBm)",
        "0.7943 mW (-1.00 dBm)",
        "0.0263 mW (-15.80 dBm)",
    )


def test_samples_are_called_by_what_they_measure(peer: Peer) -> None:
    found = {item.name: (item.value, item.unit) for item in decoded(peer).samples}
    assert found["osnr"] == (34.0, "dB")
    assert found["rx_total_power"] == (-8.0, "dBm")
    assert found["type 238"] == (7.0, "")


def test_what_is_not_advertised_has_no_value(peer: Peer) -> None:
    aux1 = decoded(peer).field("aux1")
    assert (aux1.value, aux1.quality, aux1.raw) == (None, Quality.NOT_SUPPORTED, "0000")


def test_a_wrong_check_sum_is_marked(peer: Peer) -> None:
    module = decoded(peer, lambda p: p.put(0, 130, b"X"), sums=False)
    assert bad(module) == [("00h:222", "checksum")]
    assert module.checksums["00h:222"] is False
    for name in ("page_00h_checksum", "vendor_name", "max_power"):
        assert module.field(name).quality is Quality.CHECKSUM_WRONG
    assert module.field("vendor_name").description == "LXMION TEST"  # to look at, not to work with
    assert module.field("vendor_nv").quality is Quality.OK  # 00h:223-255 are under no check sum
    assert module.field("rx_power", 1).quality is Quality.OK


def test_damage_of_page_01h_reaches_what_is_read_with_it(peer: Peer) -> None:
    module = decoded(peer, lambda p: p.put(1, 160, b"\x0f"), sums=False)  # the bias is told to count twice
    assert module.damage
    assert module.field("tx_bias", 1).quality is Quality.CHECKSUM_WRONG
    assert module.field("temperature").quality is Quality.CHECKSUM_WRONG  # 01h:159 says that there is one
    assert module.field("inactive_firmware_major").quality is Quality.OK  # 01h:128-129 are under no check sum
    assert module.field("vendor_name").quality is Quality.OK


@cache
def sound() -> tuple[MemoryImage, dict[tuple[str, int | None], object]]:
    peer = Peer(VirtualClock())
    peer.checksum()
    known = image(peer)
    return known, {(item.name, item.index): item.value for item in decode_image(known).fields}


@examples(20)
@given(st.sampled_from([(0, 128, 222), (1, 130, 255), (2, 128, 255), (4, 128, 255)]), st.data())
def test_no_field_changed_by_a_flipped_bit_stays_ok(page: tuple[int, int, int], data: st.DataObject) -> None:
    known, values = sound()
    number, first, last = page
    half = bytearray(known.halves[0, number])
    half[data.draw(st.integers(first, last)) - 128] ^= 1 << data.draw(st.integers(0, 7))
    damaged = decode_image(MemoryImage({**known.halves, (0, number): bytes(half)}))
    assert damaged.damage
    for item in damaged.fields:
        assert item.quality is not Quality.OK or item.value == values[item.name, item.index]


@pytest.mark.parametrize(("code", "bias_ma"), [(0, 85.0), (1, 170.0), (2, 340.0)])
def test_a_bias_is_times_its_multiplier_and_so_are_its_limits(peer: Peer, code: int, bias_ma: float) -> None:
    module = decoded(peer, lambda p: p.put(1, 160, bytes([0x07 | code << 3])))  # 42500 counts of 2 uA
    bias, limit = module.field("tx_bias", 1), module.field("tx_bias_high_alarm_threshold")
    assert (bias.value, bias.unit, bias.quality) == (bias_ma, "mA", Quality.OK)
    assert bias.description == f"{bias_ma:g} mA"
    assert isinstance(limit.value, float)
    assert limit.value == pytest.approx(int(limit.raw, 16) * 2e-3 * (1 << code))


def test_a_reserved_multiplier_leaves_no_bias(peer: Peer) -> None:
    module = decoded(peer, lambda p: p.put(1, 160, b"\x1f"))
    for field in (module.field("tx_bias", 1), module.field("tx_bias_low_alarm_threshold")):
        assert (field.value, field.description, field.quality) == (None, "", Quality.INCONSISTENT)


@pytest.mark.parametrize(
    ("revision", "code", "words"),
    [(0x53, 0x00, "100 km"), (0x53, 0x40, "200 km"), (0x53, 0x80, "400 km"), (0x54, 0xC0, "1000 km"), (0x52, 0x00, "")],
)
def test_long_fibres_have_a_second_multiplier_since_5_3(peer: Peer, revision: int, code: int, words: str) -> None:
    def change(p: Peer) -> None:
        p.put(None, 1, bytes([revision]))
        p.put(1, 132, b"\xc2")  # multiplier code 3, base 2
        p.put(1, 137, bytes([code]))

    length = decoded(peer, change).field("smf_length_base")
    assert length.description == words
    assert length.quality is (Quality.OK if words else Quality.INCONSISTENT)


def test_lanes_that_a_module_does_not_have_are_no_errors(peer: Peer) -> None:
    def four_lanes(p: Peer) -> None:
        p.put(None, 86, bytes.fromhex("111c8401"))  # 400GAUI-8 to 400GBASE-DR4
        p.put(None, 90, b"\xff\x00\x00\x00")
        p.put(1, 176, b"\x01")
        for lane in range(1, 9):
            p.put(0x12, 168 + 4 * (lane - 1), (193_100_000 if lane < 5 else 5).to_bytes(4, "big"))
            p.put(0x12, 128 + lane - 1, b"\x70" if lane < 5 else b"\xf0")

    module = decoded(peer, four_lanes)
    assert not [item for item in module.findings if item.address.startswith("12h")]
    assert module.field("current_frequency", 4).value == 193_100_000
    absent = module.field("current_frequency", 5)
    assert (absent.value, absent.quality) == (None, Quality.NOT_SUPPORTED)
    marked = decoded(peer, lambda p: p.put(0, 210, b"\x0e"))  # lanes 2 to 4 too, and dark
    assert marked.field("current_frequency", 4).quality is Quality.NOT_SUPPORTED
    assert marked.field("media_lane_unsupported", 4).value is True


def test_host_lanes_that_a_module_does_not_have_are_no_errors(peer: Peer) -> None:
    def four_lanes(p: Peer) -> None:
        p.put(None, 86, bytes.fromhex("0f184401"))  # 200GAUI-4 to 200GBASE-FR4
        p.put(None, 90, b"\xff\x00\x00\x00")
        p.put(1, 176, b"\x01")
        p.put(0x11, 130, bytes(2))  # states of lanes 5 to 8
        p.put(0x11, 206, bytes(8))

    module = decoded(peer, four_lanes)
    assert not [item for item in module.findings if item.address.startswith("11h")]
    assert module.field("data_path_state", 4).quality is Quality.OK
    assert module.field("data_path_state", 5).quality is Quality.NOT_SUPPORTED


def test_observables_of_cmis_5_3(peer: Peer) -> None:
    listed = bytes.fromhex("001b 0021 0f4d 0f53 0054 0064".replace(" ", ""))
    samples = bytes.fromhex("0007 0009 6590 bb80 ff38 0003".replace(" ", ""))
    peer.put(0x20, 128, listed)
    peer.put(0x24, 128, samples)
    found = {item.name: (item.lane, item.value, item.unit) for item in decoded(peer).samples}
    assert found["sewmax_min_media"] == (1, 7.0, "symbols")
    assert found["sewmax_current_media"] == (1, 9.0, "symbols")
    assert found["supply_2v6"] == (16, pytest.approx(2.6), "V")
    assert found["supply_12v"] == (16, pytest.approx(12.0), "V")  # 48000 counts of 250 uV
    assert found["els_input_power"] == (1, -2.0, "dBm")
    assert found["vendor-specific type 100"] == (1, 3.0, "")


def test_codes_of_vendors_are_called_so(peer: Peer) -> None:
    def change(p: Peer) -> None:
        p.put(None, 87, b"\xc6")
        p.put(None, 90, b"\x59")

    module = decoded(peer, change)
    assert module.applications[0].media_interface == "0xC6 (vendor-specific)"
    assert module.applications[1].host_interface == "0x59 (reserved)"


@pytest.mark.parametrize(
    ("change", "severity", "where", "kind", "field"),
    [
        (lambda p: p.put(None, 14, b"\x7f\xff"), "error", "00h:14-15", "impossible", ("temperature", None)),
        (lambda p: p.put(None, 16, b"\xff\xff"), "error", "00h:16-17", "impossible", ("supply", None)),
        (lambda p: p.put(None, 1, b"\x05"), "warning", "00h:1", "impossible", ("cmis_revision", None)),
        (lambda p: p.put(None, 3, b"\x0f"), "error", "00h:3.3-1", "reserved", ("module_state", None)),
        (lambda p: p.put(0, 128, b"\x19"), "error", "00h:128", "contradiction", ("identifier_copy", None)),
        (lambda p: p.put(0, 182, b"261301  "), "warning", "00h:182-189", "impossible", ("date_code", None)),
        (lambda p: p.put(0, 148, b"ZR\x01400"), "warning", "00h:148-163", "text", ("part_number", None)),
        (lambda p: p.put(0, 201, b"\x00"), "warning", "00h:201", "impossible", ("max_power", None)),
        (lambda p: p.put(0, 212, b"\x0a"), "error", "00h:212", "contradiction", ("media_technology", None)),
        (lambda p: p.put(1, 144, b"\x5f"), "warning", "01h:144.3-0", "reserved", ("max_duration_dp_init", None)),
        (lambda p: p.put(1, 160, b"\x1f"), "warning", "01h:160.4-3", "reserved", ("bias_scale", None)),
        (lambda p: p.put(1, 138, b"\x00\x10"), "warning", "01h:138-139", "impossible", ("nominal_wavelength", None)),
        (lambda p: p.put(1, 146, b"\x00\x46"), "error", "01h:146", "contradiction", ("module_temperature_max", None)),
        (lambda p: p.put(None, 89, b"\x03"), "error", "00h:89", "impossible", ("application_host_lane_options", 1)),
        (lambda p: p.put(None, 88, b"\x91"), "error", "00h:88", "impossible", ("application_host_lane_count", 1)),
        (lambda p: p.put(None, 122, b"\x00\x00\x10\x11"), "warning", "00h:122-125", "contradiction", None),
        (
            lambda p: p.put(2, 132, b"\xf0\x00"),
            "warning",
            "02h:128-129",
            "contradiction",
            ("temperature_high_alarm_threshold", None),
        ),
        (lambda p: p.put(2, 192, bytes(8)), "warning", "02h:192-193", "contradiction", None),
        (lambda p: p.put(4, 158, signed(120) + signed(-69)), "error", "04h:158-159", "contradiction", None),
        (lambda p: p.put(4, 198, signed(100)), "error", "04h:198-199", "contradiction", ("min_output_power", None)),
        (lambda p: p.put(0x11, 128, b"\x18"), "error", "11h:128", "reserved", ("data_path_state", 1)),
        (lambda p: p.put(0x11, 202, b"\x19"), "warning", "11h:202", "reserved", ("config_status", 1)),
        (lambda p: p.put(0x11, 206, b"\x50"), "error", "11h:206", "contradiction", ("active_app_sel", 1)),
        (lambda p: p.put(0x11, 208, b"\x2e"), "error", "11h:208", "contradiction", ("active_data_path_id", 3)),
        (lambda p: p.put(0x12, 168, b"\x00\x00\x00\x05"), "error", "12h:168", "impossible", ("current_frequency", 1)),
        (lambda p: p.put(0x12, 128, b"\xf0"), "error", "12h:128", "reserved", ("grid", 1)),
        (lambda p: p.put(0x35, 160, signed(999)), "error", "35h:158-159", "contradiction", ("pm_osnr_avg", None)),
        (lambda p: p.put(0x34, 136, bytes(8)), "warning", "34h:136-143", "contradiction", None),
        (lambda p: p.put(0x34, 144, b"\xff"), "error", "34h:144-151", "impossible", None),
        (lambda p: p.put(0x24, 134, b"\xff\xff"), "error", "24h:134", "impossible", None),
        (lambda p: p.put(0, 210, b"\x01"), "warning", "00h:210", "contradiction", ("media_lane_unsupported", 1)),
        (lambda p: p.put(1, 142, b"\x20"), "warning", "01h:142.6", "contradiction", None),
        (lambda p: p.put(None, 2, b"\x80"), "error", "00h:2.7", "contradiction", None),
        (lambda p: p.put(1, 150, b"\xc8"), "warning", "00h:16-17", "outside_limits", None),
        (lambda p: p.put(None, 3, b"\x03") or p.dp_state(4), "error", "11h:128", "contradiction", None),
        (lambda p: p.put(None, 41, b"\x01"), "warning", "00h:41", "contradiction", ("fault_cause", None)),
    ],
)
def test_what_cannot_be_is_said_and_not_repeated(
    peer: Peer,
    change: Callable[[Peer], object],
    severity: str,
    where: str,
    kind: str,
    field: tuple[str, int | None] | None,
) -> None:
    module = decoded(peer, change)
    assert (severity, where, kind) in [(item.severity.value, item.address, item.kind) for item in module.findings]
    if field is not None:
        doubted = module.field(*field)
        assert (doubted.value, doubted.description, doubted.quality) == (None, "", Quality.INCONSISTENT)
        assert doubted.raw


def test_findings_stand_worst_first(peer: Peer) -> None:
    def change(p: Peer) -> None:
        p.put(None, 14, b"\x7f\xff")
        p.put(0, 201, b"\x00")
        p.put(None, 29, b"\x01")

    module = decoded(peer, change)
    severities = [item.severity.value for item in module.findings]
    assert severities == sorted(severities, key=["error", "warning", "note"].index)
    assert "unknown bits are set in bytes 29 (01h)" in [item.message for item in module.findings]


def test_a_cable_with_a_flat_memory(peer: Peer) -> None:
    def flatten(p: Peer) -> None:
        p.lower[2] = 0x80
        p.put(None, 85, b"\x03" + bytes.fromhex("1d018801"))
        p.put(0, 212, b"\x0a")
        p.put(0, 202, b"\x42")  # 2 m
        p.pages = {0: p.pages[0], 1: bytearray(128), 2: bytearray(128), 4: bytearray(128)}

    flatten(peer)
    peer.checksum()
    only = MemoryImage({(0, None): bytes(peer.lower), (0, 0): bytes(peer.pages[0])})
    module = decode_image(only)
    assert bad(module) == []
    assert module.flat
    assert module.identity.technology == "copper cable (copper cable, unequalized)"
    assert module.field("cable_length_base").description == "2 m"


@pytest.mark.parametrize(
    ("identifier", "words"), [(0x11, "SFF-8636"), (0x06, "XFP"), (0x5A, "reserved"), (0x00, "unspecified")]
)
def test_what_is_no_cmis_memory_is_refused_by_name(peer: Peer, identifier: int, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        decoded(peer, lambda p: p.put(None, 0, bytes([identifier])))


def test_a_vendor_with_its_own_identifier_is_decoded_if_all_else_fits(peer: Peer) -> None:
    def change(p: Peer) -> None:
        p.put(None, 0, b"\x9a")
        p.put(0, 128, b"\x9a")

    assert decoded(peer, change).form_factor == "0x9A (vendor-specific)"
    peer.put(0, 130, b"?")
    with pytest.raises(ConfigError, match="byte 0 is 9Ah"):
        decode_image(image(peer))


@pytest.mark.parametrize("identifier", [0x91, 0xFF, 0x06])
def test_an_unknown_identifier_names_those_of_all_standards(identifier: int) -> None:
    memory = bytes([identifier, *range(1, 128), identifier, *range(129, 256)])
    expected = r"expected 02h, 03h \(SFF-8472\) or 0Ch, 0Dh, 11h \(SFF-8636\) or 18h, 19h, 1Bh, .*, 80h \(CMIS\)"
    with pytest.raises(ConfigError, match=f"byte 0 is {identifier:02X}h, .*; {expected}") as refused:
        decode_file(memory)
    assert "not a CMIS memory" not in str(refused.value)


@given(st.sampled_from([None, 0x03, 0x18, 0x19]), st.binary(min_size=299, max_size=299))
def test_300_random_bytes_are_no_sound_module(identifier: int | None, data: bytes) -> None:
    first = b"" if identifier is None else bytes([identifier])
    with contextlib.suppress(ConfigError):
        assert decode_file(first + data).damage


def test_a_truncated_dump_is_decoded_as_far_as_it_goes(peer: Peer) -> None:
    data = bytes(peer.lower) + bytes(peer.pages[0])
    module = decode_file(data[:200], "half.bin")
    assert ("00h", "truncated") in bad(module)
    assert module.identity.vendor == "LUMION TEST"
    assert module.field("vendor_name").value == "LUMION TEST"
    with pytest.raises(KeyError):
        module.field("max_power")
    assert "00h:222" not in module.checksums


def test_without_the_first_byte_there_is_nothing_to_say() -> None:
    with pytest.raises(ConfigError, match="lower memory is missing"):
        decode_file(json.dumps({"lower": "", "pages": {}}).encode())


def test_flags_that_were_not_read_are_not_decoded(peer: Peer) -> None:
    known = image(peer)
    unread = MemoryImage(known.halves, {(0, 0x11): frozenset(range(134, 154))})
    with pytest.raises(KeyError):
        decode_image(unread).field("rx_los_flag", 1)
    assert decode_image(known).field("rx_los_flag", 1).value is False


@examples(30)
@given(st.binary(min_size=128, max_size=128 * 4), st.sampled_from([0x18, 0x19, 0x1E]))
def test_no_bytes_make_the_decoder_fail(data: bytes, identifier: int) -> None:
    decode_file(bytes([identifier]) + data[1:])


@examples(30)
@given(st.data())
def test_no_page_makes_the_decoder_fail(data: st.DataObject) -> None:
    peer = Peer(VirtualClock())
    page = data.draw(st.sampled_from(sorted(peer.pages)))
    peer.pages[page] = bytearray(data.draw(st.binary(min_size=128, max_size=128)))
    for item in decode_image(image(peer)).fields:
        assert item.quality in (Quality.OK, Quality.CHECKSUM_WRONG) or item.value is None


@pytest.mark.skipif(not DUMPS, reason="the dumps of real modules are not part of the repository")
@pytest.mark.parametrize("path", DUMPS, ids=lambda path: path.stem)
def test_real_dumps_are_decoded_and_survive_their_file(path: Path) -> None:
    data = path.read_bytes()
    module = decode_file(data, path.name)
    assert module.form_factor in ("QSFP-DD", "OSFP")
    again = decode_image(parse_image(json.dumps(parse_image(data).to_document()).encode()))
    assert again.findings == module.findings


@pytest.mark.skipif(not DUMPS, reason="the dumps of real modules are not part of the repository")
def test_real_dumps_are_wrong_where_they_are_known_to_be() -> None:
    found = {path.stem: bad(decode_file(path.read_bytes())) for path in DUMPS}
    anonymised = ("00h:222", "checksum")
    assert anonymised in found["cmis_flatmem"]
    assert anonymised in found["cmis_credo_800g_aec"]
    assert found["cmis_arista_400g_xdr4"] == []
    assert ("00h:1", "impossible") in found["cmis_400g_cr8"]  # revision 0.5


def test_the_texts_of_the_peer_are_as_long_as_the_standard_says() -> None:
    assert len(text("x", 16)) == 16
