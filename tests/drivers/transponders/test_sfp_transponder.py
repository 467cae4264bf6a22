"""The SFP driver against a module written down from SFF-8472: memory, control bit, and delays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.drivers.transponders.sfp import Flag, SfpTransponder
from lumion_hw.drivers.transponders.sfp_diagnostics import CalibrationKind
from lumion_hw.errors import (
    ConnectError,
    DeviceError,
    FrameError,
    IdentityError,
    LumionError,
    NotSupportedError,
    OutOfRangeError,
    VerifyError,
)
from lumion_hw.interfaces import Transponder, TransponderIdentity
from lumion_hw.sessions.module.registers import ModuleAbsentError, NotRespondingError
from tests.drivers.transponders.sfp_memories import A0H, A2H, CONSTANTS, IDENTITY, MONITORS, seal

ON_DBM, RX_DBM = 1.0, -10.0


class Module:
    """A module's two memories, reached without a bus; the transmitter follows its control bit after a delay."""

    name = "slot 1"

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.memory = {
            A0H: bytearray(IDENTITY + bytes(160)),
            A2H: bytearray(CONSTANTS + MONITORS + bytes(146)),
        }
        self.laser_delay_s = 0.05
        self.absent_until_s = 0.0
        self.obeys = True
        self.is_open = False
        self.writes: list[tuple[int, int, bytes]] = []
        self.on_read: Callable[[int, int], None] = lambda device, offset: None
        self._switched_s = 0.0
        self._lit = True

    def open(self) -> None:
        self.is_open = True

    def close(self) -> None:
        self.is_open = False

    @contextmanager
    def transaction(self) -> Iterator[None]:
        yield

    def read(self, device: int, offset: int, length: int) -> bytes:
        if self.clock.now() < self.absent_until_s:
            raise ModuleAbsentError("no module", device="sfp1", address=self.name)
        self.on_read(device, offset)
        if device == A2H:
            self._follow()
        return bytes(self.memory[device][offset : offset + length])

    def write(self, device: int, offset: int, data: bytes) -> None:
        self.writes.append((device, offset, data))
        assert (device, offset, len(data)) == (A2H, 110, 1)
        if self.obeys:
            self.memory[A2H][110] = (self.memory[A2H][110] & ~0x48) | (data[0] & 0x48)
            self._switched_s = self.clock.now()

    def _follow(self) -> None:
        if self.clock.now() >= self._switched_s + self.laser_delay_s:
            self._lit = not self.memory[A2H][110] & 0xC0
        self.memory[A2H][102:104] = MONITORS[6:8] if self._lit else b"\x00\x00"

    def seal(self) -> None:
        """Make the check sums right again after a change."""
        seal(self.memory)


@pytest.fixture
def module(clock: VirtualClock) -> Module:
    return Module(clock)


@pytest.fixture
def sfp(module: Module, clock: VirtualClock) -> SfpTransponder:
    driver = SfpTransponder(module, clock, device="sfp1", expected_serial="EMU0000001")
    driver.open()
    return driver


def test_the_identity_is_read_in_full(sfp: SfpTransponder) -> None:
    as_interface: Transponder = sfp
    assert as_interface.identify() == TransponderIdentity(
        vendor="LUMION EMU",
        part_number="EMU-10G-ER",
        revision="A0",
        serial="EMU0000001",
        date_code="260101",
        technology="10GBASE-ER",
        wavelength_nm=1550.0,
    )
    assert sfp.calibration_kind is CalibrationKind.INTERNAL
    assert sfp.capabilities.cooled
    assert sfp.capabilities.rx_power_is_average


@pytest.mark.parametrize(
    ("codes", "technology"),
    [
        ("20", "10GBASE-LR"),
        ("10", "10GBASE-SR"),
        ("00", "unknown (transceiver codes 0000000000000000)"),
    ],
)
def test_the_technology_is_named_as_far_as_known(
    module: Module, clock: VirtualClock, codes: str, technology: str
) -> None:
    module.memory[A0H][3:4] = bytes.fromhex(codes)
    module.seal()
    with SfpTransponder(module, clock, device="sfp1") as sfp:
        assert sfp.identify().technology == technology
    assert not module.is_open


def test_a_module_still_starting_is_waited_for(module: Module, clock: VirtualClock) -> None:
    module.absent_until_s = 0.3
    SfpTransponder(module, clock, device="sfp1").open()
    assert 0.3 <= clock.now() < 0.4


def test_an_empty_slot_is_an_absent_module_and_the_registers_are_released(module: Module, clock: VirtualClock) -> None:
    module.absent_until_s = 1e9
    with pytest.raises(ModuleAbsentError):
        SfpTransponder(module, clock, device="sfp1").open()
    assert clock.now() == pytest.approx(2.0, abs=0.1)
    assert not module.is_open


def test_another_serial_number_is_refused_and_both_are_named(module: Module, clock: VirtualClock) -> None:
    with pytest.raises(IdentityError, match=r"serial EMU0000002; found .*EMU-10G-ER with serial EMU0000001"):
        SfpTransponder(module, clock, device="sfp1", expected_serial="EMU0000002").open()
    assert not module.is_open


def test_what_is_no_sfp_is_refused(module: Module, clock: VirtualClock) -> None:
    module.memory[A0H][0] = 0x18  # QSFP-DD
    module.seal()
    with pytest.raises(IdentityError, match="identifier 0x18"):
        SfpTransponder(module, clock, device="sfp1").open()


@pytest.mark.parametrize(("device", "offset", "name"), [(A0H, 70, "CC_EXT"), (A2H, 30, "CC_DMI")])
def test_check_sums_by_which_values_are_scaled_are_demanded(
    module: Module, clock: VirtualClock, device: int, offset: int, name: str
) -> None:
    module.memory[device][offset] ^= 0x01
    with pytest.raises(DeviceError, match=f"wrong checksum {name} in the module's memory.*accept_wrong_checksums"):
        SfpTransponder(module, clock, device="sfp1").open()
    with SfpTransponder(module, clock, device="sfp1", accept_wrong_checksums=True) as sfp:
        assert [words.partition(" ")[0] for words in sfp.warnings] == [name]


def test_a_wrong_cc_base_is_a_warning_as_long_as_it_is_there(module: Module, clock: VirtualClock) -> None:
    module.memory[A0H][20] ^= 0x01
    with SfpTransponder(module, clock, device="sfp1", expected_serial="EMU0000001") as sfp:
        assert sfp.warnings == ("CC_BASE is wrong: kind, vendor and wavelength may be wrong",)
        assert sfp.identify().vendor == "MUMION EMU"
        assert sfp.monitors().temperature_c == 45.0
        module.seal()
        sfp.identify()
        assert sfp.warnings == ()


def test_a_module_is_dumped_whole(sfp: SfpTransponder, module: Module) -> None:
    image = sfp.dump()
    assert (image.a0, image.a2) == (bytes(module.memory[A0H]), bytes(module.memory[A2H]))
    assert image.source == "LUMION EMU EMU-10G-ER EMU0000001"


def test_a_bus_that_garbles_is_told_from_a_bad_memory(module: Module, clock: VirtualClock) -> None:
    reads = [0]

    def garble(device: int, offset: int) -> None:
        reads[0] += 1
        module.memory[A0H][20] = reads[0]

    module.on_read = garble
    with pytest.raises(FrameError, match="second reading differs"):
        SfpTransponder(module, clock, device="sfp1").open()


def test_an_address_change_is_not_supported(module: Module, clock: VirtualClock) -> None:
    module.memory[A0H][92] |= 0x04
    module.seal()
    with pytest.raises(NotSupportedError, match="address change"):
        SfpTransponder(module, clock, device="sfp1").open()


def test_monitors_are_in_the_units_of_the_field(sfp: SfpTransponder, clock: VirtualClock) -> None:
    monitors = sfp.monitors()
    assert monitors.temperature_c == 45.0
    assert monitors.supply_v == pytest.approx(3.3)
    assert monitors.tx_bias_ma == pytest.approx(85.0)  # A604h = 42500 x 2 uA
    assert monitors.tx_power_dbm == pytest.approx(1.0, abs=0.001)  # 312Dh = 12589 x 0.1 uW = 1.2589 mW
    assert monitors.rx_power_dbm == pytest.approx(-10.0)  # 03E8h = 100 uW
    assert monitors.timestamp_s == clock.now()


def test_no_light_is_no_number(sfp: SfpTransponder, module: Module) -> None:
    module.memory[A2H][104:106] = b"\x00\x00"
    assert sfp.monitors().rx_power_dbm is None


def test_light_beyond_the_scale_is_an_error_not_a_number(sfp: SfpTransponder, module: Module) -> None:
    module.memory[A2H][104:106] = b"\xff\xff"
    with pytest.raises(OutOfRangeError, match="rx_power"):
        sfp.monitors()


def test_values_not_yet_valid_are_waited_for(sfp: SfpTransponder, module: Module, clock: VirtualClock) -> None:
    module.memory[A2H][110] |= 0x01
    valid_at = clock.now() + 0.5

    def become_valid(device: int, offset: int) -> None:
        if clock.now() >= valid_at:
            module.memory[A2H][110] &= ~0x01

    module.on_read = become_valid
    assert sfp.monitors().timestamp_s >= valid_at


def test_values_that_never_become_valid_are_an_error(sfp: SfpTransponder, module: Module, clock: VirtualClock) -> None:
    module.memory[A2H][110] |= 0x01
    started = clock.now()
    with pytest.raises(DeviceError, match="not valid after 1 s"):
        sfp.monitors()
    assert clock.now() - started == pytest.approx(1.0, abs=0.15)


def test_thresholds_are_those_of_the_module(sfp: SfpTransponder) -> None:
    thresholds = sfp.thresholds()
    temperature = thresholds["temperature"]
    assert (temperature.high_alarm, temperature.low_alarm) == (75.0, -10.0)
    assert (temperature.high_warning, temperature.low_warning) == (70.0, -5.0)
    assert thresholds["supply"].high_alarm == pytest.approx(3.63)
    assert thresholds["tx_bias"].low_warning == pytest.approx(30.0)
    assert thresholds["tx_power"].high_warning == pytest.approx(4.0, abs=0.001)
    assert thresholds["tx_power"].low_warning == pytest.approx(-4.7, abs=0.001)
    assert thresholds["rx_power"].low_alarm == pytest.approx(-20.0)
    assert thresholds["rx_power"].low_warning == pytest.approx(-15.8, abs=0.01)


def test_disabling_sets_one_bit_and_sees_the_light_go_out(
    sfp: SfpTransponder, module: Module, clock: VirtualClock
) -> None:
    module.memory[A2H][110] |= 0x08  # RS(0) select is kept
    started = clock.now()
    sfp.disable()
    assert module.writes == [(A2H, 110, b"\x48")]
    assert clock.now() - started < 0.5
    assert sfp.monitors().tx_power_dbm is None
    assert sfp.status().tx_disabled


def test_enabling_waits_until_the_power_is_in_its_window(
    sfp: SfpTransponder, module: Module, clock: VirtualClock
) -> None:
    sfp.disable()
    module.laser_delay_s = 20.0  # a cooled laser
    started = clock.now()
    sfp.enable()
    assert 20.0 <= clock.now() - started < 20.2
    assert module.writes[-1] == (A2H, 110, b"\x00")
    assert sfp.monitors().tx_power_dbm == pytest.approx(ON_DBM, abs=0.001)
    assert not sfp.status().tx_disabled


def test_a_transmitter_that_is_on_is_only_looked_at_and_one_that_is_off_is_switched_off_again(
    sfp: SfpTransponder, module: Module
) -> None:
    sfp.enable()
    assert module.writes == []
    assert sfp.monitors().tx_power_dbm == pytest.approx(ON_DBM, abs=0.001)
    for _ in range(2):
        sfp.disable()
    assert module.writes == [(A2H, 110, b"\x40")] * 2


@pytest.mark.parametrize(("option", "patience_s"), [(0x06, 90.0), (0x02, 2.0)], ids=["cooled", "uncooled"])
def test_a_laser_that_does_not_start_is_given_up_in_its_own_time(
    module: Module, clock: VirtualClock, option: int, patience_s: float
) -> None:
    module.memory[A0H][64] = option
    module.seal()
    sfp = SfpTransponder(module, clock, device="sfp1")
    sfp.open()
    sfp.disable()
    module.laser_delay_s = 1e9
    started = clock.now()
    with pytest.raises(DeviceError, match="did not start within"):
        sfp.enable()
    assert clock.now() - started == pytest.approx(patience_s, abs=0.3)


def test_a_pin_that_keeps_the_laser_off_is_named(sfp: SfpTransponder, module: Module, clock: VirtualClock) -> None:
    module.memory[A2H][110] |= 0x80
    clock.sleep(0.1)
    assert sfp.monitors().tx_power_dbm is None
    with pytest.raises(DeviceError, match="TX_DISABLE pin is high"):
        sfp.enable()


def test_a_latched_fault_is_cleared_by_switching_off_and_on(
    sfp: SfpTransponder, module: Module, clock: VirtualClock
) -> None:
    module.memory[A2H][110] |= 0x04

    def clear_after_toggle(device: int, offset: int) -> None:
        if len(module.writes) == 2:
            module.memory[A2H][110] &= ~0x04

    module.on_read = clear_after_toggle
    sfp.enable()
    assert [data for _, _, data in module.writes] == [b"\x40", b"\x00"]
    assert not sfp.status().tx_fault


def test_a_fault_that_stays_is_reported_soon_not_after_the_warm_up(
    sfp: SfpTransponder, module: Module, clock: VirtualClock
) -> None:
    module.memory[A2H][110] |= 0x04
    started = clock.now()
    with pytest.raises(DeviceError, match="TX_FAULT"):
        sfp.enable()
    assert clock.now() - started < 1.0


def test_a_transmitter_that_ignores_the_bit_is_noticed(sfp: SfpTransponder, module: Module) -> None:
    module.obeys = False
    with pytest.raises(VerifyError, match=r"A2h:110\.6.*wrote 1, read back 0"):
        sfp.disable()


def test_a_transmitter_that_keeps_shining_is_noticed(sfp: SfpTransponder, module: Module) -> None:
    module.laser_delay_s = 1e9
    with pytest.raises(VerifyError, match=r"still emits light .* read back 1\.0 dBm"):
        sfp.disable()


@pytest.mark.parametrize(
    ("options", "bit", "lost"),
    [(0x1A, 0, False), (0x1A, 1, True), (0x1C, 1, False), (0x1C, 0, True), (0x1E, 1, True)],
    ids=["LOS, light", "LOS, dark", "inverted, light", "inverted, dark", "both bits mean LOS"],
)
def test_loss_of_signal_means_the_same_for_every_module(
    module: Module, clock: VirtualClock, options: int, bit: int, lost: bool
) -> None:
    module.memory[A0H][65] = options
    module.memory[A2H][110] = bit << 1
    module.seal()
    sfp = SfpTransponder(module, clock, device="sfp1")
    sfp.open()
    assert sfp.status().rx_los is lost


def test_status_bits_are_live(sfp: SfpTransponder, module: Module) -> None:
    status = sfp.status()
    assert (status.rx_los, status.tx_fault, status.tx_disabled, status.data_ready) == (False, False, False, True)
    module.memory[A2H][110] |= 0x81
    status = sfp.status()
    assert (status.tx_disabled, status.data_ready) == (True, False)


def test_flags_are_kept_by_the_driver_though_the_module_forgets_them(
    sfp: SfpTransponder, module: Module, clock: VirtualClock
) -> None:
    module.memory[A2H][112:118] = bytes.fromhex("0040" + "0000" + "8040")  # RxPwr LA; Temp HW and RxPwr LW
    first = sfp.flags()
    seen_s = clock.now()
    assert first == (
        Flag("rx_power_low", False, seen_s, seen_s),
        Flag("rx_power_low", True, seen_s, seen_s),
        Flag("temperature_high", False, seen_s, seen_s),
    )
    module.memory[A2H][112:118] = bytes(6)
    clock.sleep(5.0)
    assert sfp.flags() == first
    sfp.clear_flags()
    assert sfp.flags() == ()


def test_a_flag_seen_once_and_not_again_does_not_count(sfp: SfpTransponder, module: Module) -> None:
    module.memory[A2H][112] = 0x80
    reads = [0]

    def vanish(device: int, offset: int) -> None:
        reads[0] += offset == 112
        if reads[0] == 2:
            module.memory[A2H][112] = 0

    module.on_read = vanish
    assert sfp.flags() == ()


def test_a_flag_asserted_again_keeps_its_first_time(sfp: SfpTransponder, module: Module, clock: VirtualClock) -> None:
    module.memory[A2H][112] = 0x80
    (first,) = sfp.flags()
    clock.sleep(3.0)
    (again,) = sfp.flags()
    assert again.first_seen_s == first.first_seen_s
    assert again.last_seen_s == first.last_seen_s + 3.0


@pytest.mark.parametrize(
    ("clear", "call"),
    [
        (0x40, lambda sfp: sfp.enable()),
        (0x40, lambda sfp: sfp.disable()),
        (0x20, lambda sfp: sfp.status()),
        (0x10, lambda sfp: sfp.status()),
        (0x80, lambda sfp: sfp.flags()),
    ],
)
def test_what_the_module_does_not_announce_is_not_supported(
    module: Module, clock: VirtualClock, clear: int, call: Callable[[SfpTransponder], object]
) -> None:
    module.memory[A0H][93] &= ~clear
    module.seal()
    sfp = SfpTransponder(module, clock, device="sfp1")
    sfp.open()
    with pytest.raises(NotSupportedError, match="does not announce"):
        call(sfp)


def test_without_diagnostics_there_is_no_0x51_and_that_is_normal(module: Module, clock: VirtualClock) -> None:
    module.memory[A0H][92] = 0x00
    module.seal()

    def refuse(device: int, offset: int) -> None:
        if device == A2H:
            raise NotRespondingError("no 0x51", device="sfp1", address="slot 1")

    module.on_read = refuse
    sfp = SfpTransponder(module, clock, device="sfp1")
    sfp.open()
    with pytest.raises(NotSupportedError, match="diagnostics"):
        sfp.monitors()


def test_diagnostics_that_are_not_announced_are_used_only_on_request(module: Module, clock: VirtualClock) -> None:
    module.memory[A0H][92] = 0x28
    module.seal()
    sfp = SfpTransponder(module, clock, device="sfp1", assume_diagnostics=True)
    sfp.open()
    assert sfp.monitors().temperature_c == 45.0


@pytest.mark.parametrize(
    ("offset", "constant", "message"),
    [
        pytest.param(68, "7FC00000", "rx_power is not a number with the calibration constants", id="Rx power, NaN"),
        pytest.param(68, "47C35000", "rx_power is .*SFF-8472 range 0 to 6.5535 mW", id="Rx power, 1e5"),
        pytest.param(84, "0400", "temperature is 180 degC, outside the SFF-8472 range -128", id="temperature, slope 4"),
    ],
)
def test_monitors_with_damaged_constants_are_an_error(
    module: Module, clock: VirtualClock, offset: int, constant: str, message: str
) -> None:
    module.memory[A0H][92] = 0x58  # externally calibrated
    module.memory[A2H][offset : offset + len(constant) // 2] = bytes.fromhex(constant)
    module.seal()
    sfp = SfpTransponder(module, clock, device="sfp1")
    sfp.open()
    with pytest.raises(DeviceError, match=message):
        sfp.monitors()


def test_tuning_is_not_supported(sfp: SfpTransponder) -> None:
    with pytest.raises(NotSupportedError, match="fixed"):
        sfp.tune(193.1)


def test_another_module_plugged_in_meanwhile_is_read_anew(module: Module, clock: VirtualClock) -> None:
    sfp = SfpTransponder(module, clock, device="sfp1")
    sfp.open()
    module.memory[A0H][68:78] = b"EMU0000002"
    module.memory[A2H][0:2] = bytes.fromhex("5000")  # temperature alarm at 80 degC
    module.seal()
    assert sfp.identify().serial == "EMU0000002"
    assert sfp.thresholds()["temperature"].high_alarm == 80.0


@pytest.mark.parametrize("call", [SfpTransponder.enable, SfpTransponder.disable])
def test_a_module_swapped_while_open_is_not_switched(
    module: Module, clock: VirtualClock, call: Callable[[SfpTransponder], None]
) -> None:
    sfp = SfpTransponder(module, clock, device="sfp1")
    sfp.open()
    before = bytes(module.memory[A2H])
    module.memory[A0H][68:78] = b"EMU0000002"
    module.seal()
    with pytest.raises(IdentityError, match="with serial EMU0000002: the module was replaced"):
        call(sfp)
    assert bytes(module.memory[A2H])[110] == before[110]
    sfp.identify()
    call(sfp)


def test_before_opening_and_after_closing_nothing_works(module: Module, clock: VirtualClock) -> None:
    sfp = SfpTransponder(module, clock, device="sfp1")
    with pytest.raises(ConnectError, match="not open"):
        sfp.monitors()
    sfp.open()
    sfp.close()
    sfp.close()
    with pytest.raises(LumionError, match="not open"):
        sfp.status()
