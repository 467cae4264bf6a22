"""Bus behaviour of an emulated CMIS module: pages, roll-over, lengths, access rights, flags, no acknowledgement."""

from __future__ import annotations

import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.emulator.transponders.cmis import PROFILES, CmisModule, LinearView, ModuleOnBus, ModuleQuirks
from lumion_hw.emulator.transponders.i2c_bridge import I2cBridge
from lumion_hw.errors import ConfigError
from lumion_hw.sessions.module.registers import I2cDevice, ModuleAbsentError, NotRespondingError
from lumion_hw.standards.cmis import byte_access
from tests.emulator.transponders.cmis_testbench import Host, lit, ready


def awake(profile: str = "400zr", **options) -> Host:
    host = Host(profile, **options)
    host.wait(0.6)
    return host


# Pages ----------------------------------------------------------------------------------------------------------------


def test_the_module_is_one_i2c_device_with_a_name() -> None:
    device: I2cDevice = CmisModule.from_profile("400zr", clock=VirtualClock(), seed=3, device="zr-a")
    assert device.name == "zr-a"


def test_a_page_is_mapped_by_writing_bank_and_page_together() -> None:
    host = awake()
    assert host.select(0x12) == 0x12
    assert host.module.read(128, 1)[0] >> 4 == 7  # grid 75 GHz


def test_an_unbanked_page_is_mapped_by_its_number_alone() -> None:
    host = awake()
    host.module.write(127, b"\x04")
    assert host.module.read(127, 1) == b"\x04"
    assert host.module.read(128, 1)[0] & 0xA0 == 0xA0  # 75 and 100 GHz


@pytest.mark.parametrize("page", [0x05, 0x15, 0x16, 0x22, 0x50, 0xA0, 0xFF])
def test_page_select_falls_back_to_00h_when_the_page_is_not_there(page: int) -> None:
    host = awake()
    assert host.select(page) == 0x00
    assert host.module.read(128, 1) == b"\x18"


def test_page_select_falls_back_when_the_bank_is_not_there() -> None:
    host = awake()
    assert host.select(0x10, bank=1) == 0x00
    assert host.select(0x02, bank=1) == 0x02  # unbanked: the bank is ignored


def test_the_bank_alone_maps_nothing() -> None:
    host = awake()
    host.select(0x11)
    host.module.write(126, b"\x05")
    assert host.module.read(126, 2) == b"\x05\x11"
    assert host.module.read(128, 1) == b"\x11"  # still the data path states


def test_a_coherent_module_keeps_34h_and_35h_and_a_dr4_does_not() -> None:
    for name, there in (("400zr", True), ("zr-plus-high-power", True), ("400g-dr4", False)):
        host = awake(name)
        assert [host.select(page) == page for page in (0x34, 0x35, 0x04, 0x12)] == [there] * 4


def test_silent_refusal_of_a_page_is_an_option() -> None:
    host = awake(quirks=ModuleQuirks(refuses_page_silently=True))
    assert host.select(0x50) == 0x50
    assert host.module.read(128, 4) == bytes(4)


# Roll-over and lengths -----------------------------------------------------------------------------------------------


def test_reads_roll_over_inside_their_half() -> None:
    host = awake()
    lower = host.module.read(0, 2)
    assert host.module.read(126, 4)[2:] == lower
    host.select(0x00)
    assert host.module.read(254, 4)[2:] == host.module.read(128, 2)


def test_writes_roll_over_inside_their_half() -> None:
    host = awake()
    host.select(0x03)
    host.module.write(254, b"\x01\x02\x03")
    assert host.module.read(254, 2) == b"\x01\x02"
    assert host.module.read(128, 1) == b"\x03"


def test_more_than_eight_bytes_are_not_acknowledged_and_not_written() -> None:
    host = awake()
    host.select(0x03)
    host.module.write(128, bytes(range(1, 9)))
    with pytest.raises(NotRespondingError, match="the limit is 8 bytes"):
        host.module.write(128, bytes(9))
    assert host.module.read(128, 9) == bytes(range(1, 9)) + b"\x00"


def test_lenient_modules_take_long_writes() -> None:
    host = awake(quirks=ModuleQuirks(lenient_writes=True))
    host.select(0x03)
    host.module.write(128, bytes(range(128)))
    assert host.module.read(128, 128) == bytes(range(128))


def test_the_cdb_page_takes_a_whole_message_at_once() -> None:
    host = awake()
    host.select(0x9F)
    host.module.write(130, bytes(range(126)))
    assert host.module.read(136, 120) == bytes(range(6, 126))


def test_extended_payload_pages_take_what_is_advertised() -> None:
    host = awake("zr-plus-high-power")
    longest = 8 * (host.read(0x01, 164)[0] + 1)
    assert host.select(0xA0) == 0xA0
    host.module.write(128, bytes([7]) * longest)
    assert host.module.read(128, longest) == bytes([7]) * longest
    assert host.select(0xAF) == 0xAF  # sixteen pages: code 7


def test_impossible_accesses_are_programming_errors() -> None:
    host = awake()
    with pytest.raises(ValueError, match="byte address 256"):
        host.module.read(256, 1)
    with pytest.raises(ValueError, match="byte address -1"):
        host.module.write(-1, b"")


# Access rights -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "profile", ["400zr", *(pytest.param(name, marks=pytest.mark.long) for name in PROFILES if name != "400zr")]
)
def test_no_read_only_or_reserved_bit_can_be_written(profile: str) -> None:
    """Write ones and zeros to every byte of every page; bits that are not writable keep their value."""
    host = awake(profile)
    pages = [None, *(page for page in range(256) if host.select(page) == page and not 0xA0 <= page < 0xB0)]
    for page in pages:
        if page is not None:
            host.select(page)
        access = byte_access(page)
        first = 0 if page is None else 128
        for offset in range(128):
            byte = first + offset
            if byte in (26, 126, 127) and page is None:
                continue
            fixed = ~access.writable[offset] & ~access.clear_on_read[offset] & 0xFF
            before = host.module.read(byte, 1)[0]
            for value in (0xFF, 0x00):
                if page == 0x9F and byte == 129:
                    continue
                host.module.write(byte, bytes([value]))
                after = host.module.read(byte, 1)[0]
                assert after & fixed == before & fixed, (page, byte)
                assert after & access.reads_zero[offset] == 0, (page, byte)


def test_a_control_that_is_not_advertised_cannot_be_set() -> None:
    host = awake()
    assert host.get("tx_polarity_flip_supported") is False
    host.write(0x10, 129, 0xFF)
    assert host.read(0x10, 129) == b"\x00"
    host.write(0x10, 130, 0xFF)
    assert host.read(0x10, 130) == b"\xff"


def test_triggers_and_passwords_read_as_zero() -> None:
    host = ready()
    host.write(0x10, 143, 0xFF)
    assert host.read(0x10, 143, 2) == b"\x00\x00"
    host.module.write(122, b"\x00\x00\x10\x11")
    assert host.module.read(118, 8) == bytes(8)


def test_two_modules_share_nothing() -> None:
    clock = VirtualClock()
    one, other = Host(clock=clock, seed=1), Host(clock=clock, seed=2)
    clock.sleep(1.0)
    image = other.module.image()
    one.write(0x10, 130, 0xFF)
    one.write(0x03, 128, *b"12345678")
    one.select(0x12)
    assert other.module.image() == image


# Clear on read -------------------------------------------------------------------------------------------------------


def test_a_read_clears_exactly_the_flag_bytes_it_covers() -> None:
    host = ready()
    host.write(0x10, 128, 0x00)
    host.wait(20.5)
    host.select(0x11)
    assert host.module.read(135, 19)[12:14] == b"\x01\x01"  # Rx LOS and LOL at 147 and 148; 134 is not read
    assert host.module.read(134, 1) == b"\xff"
    assert host.module.read(134, 1) == b"\x00"


def test_a_condition_that_lasts_sets_its_flag_again_and_an_event_does_not() -> None:
    host = ready()
    host.write(0x10, 128, 0x00)
    host.wait(20.5)
    host.select(0x11)
    first, second = host.module.read(128, 128), host.module.read(128, 128)
    assert (first[134 - 128], second[134 - 128]) == (0xFF, 0x00)  # DPStateChanged is an event
    assert (first[147 - 128], second[147 - 128]) == (0x01, 0x01)  # the input is still dark


def test_a_flag_is_gone_after_the_read_when_its_condition_is_over() -> None:
    host = lit()
    assert host.lanes("rx_lol_flag") == 0x01  # set before the receiver locked
    assert host.lanes("rx_lol_flag") == 0x00


def test_reading_around_flags_leaves_them() -> None:
    host = awake()
    host.module.read(0, 8)
    host.module.read(14, 50)
    assert host.module.read(8, 1) == b"\x01"  # ModuleStateChanged, once
    assert host.module.read(8, 1) == b"\x00"


# No acknowledgement -------------------------------------------------------------------------------------------------


def test_nothing_answers_during_management_initialisation() -> None:
    host = Host()
    with pytest.raises(NotRespondingError, match="initialising"):
        host.module.read(0, 1)
    host.wait(0.49)
    with pytest.raises(NotRespondingError):
        host.module.write(26, b"\x00")
    host.wait(0.02)
    assert host.module.read(0, 2) == b"\x18\x52"


def test_a_pulled_module_is_absent_and_comes_back_like_new() -> None:
    host = lit()
    host.module.unplug()
    assert host.sent[-1].enabled is False
    with pytest.raises(ModuleAbsentError, match="0x50"):
        host.module.read(0, 1)
    host.wait(5)
    host.module.plug()
    with pytest.raises(NotRespondingError):
        host.module.read(0, 1)
    host.wait(0.6)
    assert host.raw("module_state") == 1
    assert host.module.read(26, 1) == b"\x40"


def test_hold_off_after_page_changes_and_eeprom_writes_is_an_option() -> None:
    host = awake(quirks=ModuleQuirks(page_change_s=0.010, nv_write_s=0.080))
    module = host.module
    module.write(127, b"\x03")
    with pytest.raises(NotRespondingError, match="in hold-off"):
        module.read(128, 1)
    host.wait(0.0101)
    module.write(128, b"x")
    host.wait(0.079)
    with pytest.raises(NotRespondingError):
        module.read(128, 1)
    host.wait(0.002)
    assert module.read(128, 1) == b"x"


def test_every_access_is_logged_with_its_time() -> None:
    host = awake()
    host.select(0x10)
    host.module.write(130, b"\x01")
    last = host.module.log[-1]
    assert (last.operation, last.page, last.offset, last.data) == ("write", 0x10, 130, b"\x01")
    assert last.at_s == pytest.approx(100.6)


# Other interfaces -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offset", "page", "byte"),
    [(128, 0x00, 128), (256, 0x01, 128), (2176, 0x10, 128), (2504, 0x12, 200), (6912, 0x35, 128), (20480, 0x9F, 128)],
)
def test_the_linear_file_has_every_byte_where_the_facts_say(offset: int, page: int, byte: int) -> None:
    host = awake()
    view = LinearView(host.module)
    linear = view.read(offset, 4)
    assert host.module.read(127, 1)[0] == page
    assert linear == host.module.read(byte, 4)


def test_the_linear_file_runs_from_the_lower_memory_into_page_00h() -> None:
    host = awake()
    data = LinearView(host.module).read(0, 256)
    assert data[0] == data[128] == 0x18
    assert data[129:145] == b"LUMION EMU      "


def test_the_linear_file_writes_in_pieces_of_eight() -> None:
    host = awake()
    view = LinearView(host.module)
    view.write(3 * 128 + 128, bytes(range(100)))
    assert view.read(3 * 128 + 128, 100) == bytes(range(100))


class Wire:
    """A host behind the SC18IM700 bridge, message by message."""

    def __init__(self, host: Host) -> None:
        self.clock = host.clock
        self.bridge = I2cBridge("bridge", host.clock, [ModuleOnBus(host.module)], baud=115200)
        self.line = self.bridge.connect()

    def send(self, message: bytes) -> bytes:
        self.line.receive(message)
        self.clock.sleep(0.2)
        return self.line.transmit()

    def status(self) -> int:
        return self.send(b"R\x0aP")[0]


def test_behind_the_bridge_a_write_arrives_as_it_was_sent() -> None:
    wire = Wire(awake())
    wire.send(b"S\xa0\x03\x7e\x00\x10P")
    wire.send(b"S\xa0\x02\x82\x55P")
    assert wire.send(b"S\xa0\x01\x82S\xa1\x02P") == b"\x55\x00"
    assert wire.status() == 0xF0


def test_behind_the_bridge_a_read_without_address_goes_on_where_the_last_ended() -> None:
    wire = Wire(awake())
    assert wire.send(b"S\xa0\x01\x00S\xa1\x01P") == b"\x18"
    assert wire.send(b"S\xa1\x01P") == b"\x52"


def test_behind_the_bridge_reads_clear_flags_byte_by_byte() -> None:
    wire = Wire(awake())
    assert wire.send(b"S\xa0\x01\x08S\xa1\x01P") == b"\x01"
    assert wire.send(b"S\xa0\x01\x08S\xa1\x01P") == b"\x00"


def test_behind_the_bridge_too_long_a_write_is_not_acknowledged() -> None:
    wire = Wire(awake())
    wire.send(b"S\xa0\x02\x7f\x03P")
    wire.send(b"S\xa0\x0a\x80" + b"123456789" + b"P")
    assert wire.status() == 0xF2
    assert wire.send(b"S\xa0\x01\x80S\xa1\x02P") == bytes(2)


def test_behind_the_bridge_only_0x50_answers_and_only_when_it_is_awake() -> None:
    host = Host()
    wire = Wire(host)
    wire.send(b"S\xa0\x01\x00P")
    assert wire.status() == 0xF1
    host.wait(1.0)
    wire.send(b"S\xa2\x01\x00P")
    assert wire.status() == 0xF1
    wire.send(b"S\xa0\x01\x00P")
    assert wire.status() == 0xF0


# Names ---------------------------------------------------------------------------------------------------------------


def test_an_sfp_profile_names_the_class_that_emulates_it() -> None:
    with pytest.raises(ConfigError, match=r"SFF-8472.*lumion_hw\.emulator\.transponders\.sfp\.SfpModule"):
        CmisModule.from_profile("10gbase-er", clock=VirtualClock())


def test_an_unknown_profile_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"400zr, zr-plus-high-power, 800zr, 400g-dr4, .*, aec, 10gbase-er"):
        CmisModule.from_profile("1600zr", clock=VirtualClock())


def test_behind_the_bridge_an_address_alone_moves_the_pointer_and_is_no_part_of_the_next_write() -> None:
    """Hosts poll for the end of a hold-off with an address byte and STOP."""
    module = CmisModule.from_profile("400zr", clock=VirtualClock(), warm=True)
    bus = ModuleOnBus(module)

    def transaction(read: int, *written: int) -> bytes:
        if written or not read:
            assert bus.i2c_start(0x50, False, 0.0)
            assert all(bus.i2c_write(value) for value in written)
        data = b""
        if read:
            assert bus.i2c_start(0x50, True, 0.0)
            data = bytes(bus.i2c_read() for _ in range(read))
        bus.i2c_stop(0.0)
        return data

    transaction(0, 127, 0x02)
    transaction(0, 127)
    assert transaction(1) == b"\x02"
    transaction(0, 127)
    assert transaction(2, 126) == b"\x00\x02"
    transaction(0, 127, 0x00)
    assert transaction(1, 127) == b"\x00"
