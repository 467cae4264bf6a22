"""The LUMION mesh driver against canned replies on a wire: what it sends, what it refuses, what it will not believe."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

import firmware_protocol as fp
from lumion_hw.clock import VirtualClock
from lumion_hw.drivers.mesh.lumion.controller import LumionMeshController
from lumion_hw.errors import (
    BusyError,
    ConfigError,
    ConnectError,
    DeviceError,
    IdentityError,
    LimitError,
    LinkLost,
    LinkTimeout,
    NotSupportedError,
    SafetyError,
    VerifyError,
)
from lumion_hw.interfaces import ControllerLimits, MeshController
from lumion_hw.links.memory import MemoryLink
from tests.least_board import LEAST_BOARD
from tests.waiting import PATIENCE_S

READY = fp.OutputsState.READY
HELLO = replace(
    LEAST_BOARD,
    window=8,
    n_adc=3,
    dac_bits=14,
    adc_bits=16,
    n_banks=2,
    outputs_state=fp.OutputsState.BOOT,
    adc_full_scale=2_000_000,
    t_slow_ms=500,
    adc_scan_us=50,
    features=1 << fp.Feature.CLEAR_ONE,
    boot_id=77,
    active_generation=41,
)
LIMITS = ControllerLimits(
    heater_max_ma=np.array([20.0, 20.0, 10.0, 0.0]), heater_ohm=np.full(4, 1000.0), total_power_mw=400.9
)
# 65535 × 10 mA / 20 mA = 32767.5, a tie rounded to the even 32768: the same rounding as of currents.
CODE_MAX = [65535, 65535, 32768, 0]
Canned = "fp.Message | fp.Refusal | None"


class CannedBoard:
    """Answers every request by a function per command; a ``None`` is silence. It knows nothing by itself."""

    def __init__(self, clock: VirtualClock, hello: fp.HelloReply) -> None:
        self.clock = clock
        self.hello = hello
        self.requests: list[tuple[float, fp.AnyRequest]] = []
        self.hello_flags: list[int] = []
        self.gone = False
        self.delay_s = 0.0
        self.driven_crc32 = fp.table_crc32([0] * hello.n_dac)
        self.answers: dict[int, Callable[[fp.AnyRequest], fp.Message | fp.Refusal | None]] = {
            fp.Command.HELLO: lambda request: self.hello,
            fp.Command.PING: lambda request: fp.PingReply(0, 0, 0, READY, 1),
            fp.Command.CONFIG: self.configured,
            fp.Command.SET: self.latch,
            fp.Command.STAGE: lambda request: fp.StageReply(request.bank_generation, 1),  # type: ignore[union-attr]
            fp.Command.COMMIT: self.latch,
            fp.Command.ESTOP: lambda request: fp.EstopReply(1, 2, fp.OutputsState.SAFE),
            fp.Command.READBACK: self.checksum,
        }
        self._decoder = fp.Decoder(4096)
        self._out: list[tuple[float, bytes]] = []

    def latch(self, request: fp.AnyRequest) -> fp.Message:
        if isinstance(request, fp.SetRequest):
            self.driven_crc32 = fp.table_crc32(request.codes)
            return fp.SetReply(request.generation, 1, fp.table_crc32(request.codes), True, READY)
        assert isinstance(request, fp.CommitRequest)
        self.driven_crc32 = request.crc32
        return fp.CommitReply(request.generation, 1, request.crc32, True, READY)

    def configured(self, request: fp.AnyRequest) -> fp.Message:
        """The configuration of an APPLY becomes the active one, as section 7.1 has it in the reply."""
        assert isinstance(request, (fp.ConfigGlobalRequest, fp.ConfigLimitsRequest, fp.ConfigApplyRequest))
        crc32 = request.config_crc32 if isinstance(request, fp.ConfigApplyRequest) else 0
        return fp.ConfigReply(request.op, READY, self.hello.n_dac, crc32)

    def checksum(self, request: fp.AnyRequest) -> fp.Message:
        """What is driven, as far as its checksum: the table latched last."""
        assert isinstance(request, fp.ReadbackRequest)
        none = np.zeros(0, np.uint16)
        return fp.ReadbackReply(1, self.driven_crc32, 1, READY, 255, self.hello.n_dac, 0, none)

    def connect(self) -> CannedBoard:
        if self.gone:
            raise ConnectError("unplugged")
        return self

    def receive(self, data: bytes) -> None:
        if self.gone:
            raise LinkLost("unplugged")
        for frame in self._decoder.feed(data):
            assert isinstance(frame, fp.Frame)
            request = fp.decode_request(frame.command, frame.payload)
            self.requests.append((self.clock.now(), request))
            answer = self.answers[frame.command](request)
            if answer is None:
                continue
            status = answer.status if isinstance(answer, fp.Refusal) else 0
            reply = fp.Frame(
                fp.Kind.RSP, frame.command, frame.seq, frame.session, status=status, payload=answer.encode()
            )
            self._out.append((self.clock.now() + self.delay_s, fp.encode_frame(reply)))

    def transmit(self) -> bytes:
        if self.gone:
            raise LinkLost("unplugged")
        due = b"".join(wire for at, wire in self._out if at <= self.clock.now())
        self._out = [entry for entry in self._out if entry[0] > self.clock.now()]
        return due

    def next_event(self) -> float | None:
        return min((at for at, _ in self._out), default=None)

    def close(self) -> None:
        self._out.clear()

    def sent(self, kind: type[fp.AnyRequest]) -> list[fp.AnyRequest]:
        return [request for _, request in self.requests if isinstance(request, kind)]


@pytest.fixture
def board(clock: VirtualClock) -> CannedBoard:
    return CannedBoard(clock, HELLO)


@pytest.fixture
def driver(board: CannedBoard, clock: VirtualClock) -> Iterator[LumionMeshController]:
    link = MemoryLink(board.connect, clock, "memory://mesh0")
    made = LumionMeshController(link, clock, device="mesh0", expected_serial="FP-0007")
    yield made
    made.close()


def currents(*values: float) -> np.ndarray:  # type: ignore[type-arg]
    return np.array(values)


# --- attaching -------------------------------------------------------------------------------------------------------


def test_the_constructor_touches_nothing(driver: LumionMeshController, board: CannedBoard) -> None:
    as_interface: MeshController = driver
    assert as_interface is driver
    assert board.requests == []
    with pytest.raises(LinkLost, match="not been opened"):
        _ = driver.info


def test_opening_reads_identity_and_capabilities_and_drives_nothing(
    driver: LumionMeshController, board: CannedBoard
) -> None:
    driver.open()
    info = driver.info
    assert (info.serial, info.firmware, info.n_heaters, info.n_monitors) == ("FP-0007", "1.0.0", 4, 3)
    assert info.current_full_scale_ma == pytest.approx(20.0)
    assert info.current_step_ma == pytest.approx(4 * 20.0 / 65535)  # a 14-bit converter drives code >> 2
    assert (info.atomic, info.readback, info.watchdog, info.on_board_sweep) == (True, True, True, False)
    assert driver.boot_id == 77
    hello, readback = [request for _, request in board.requests]
    assert isinstance(hello, fp.HelloRequest)
    assert readback == fp.ReadbackRequest(fp.DRIVEN_TABLE, rb_flags=0)  # the checksum alone, section 6.1


def test_another_serial_number_is_an_identity_error_and_closes_the_link(
    driver: LumionMeshController, board: CannedBoard
) -> None:
    board.hello = replace(HELLO, serial="FP-0008")
    with pytest.raises(IdentityError, match=r"mesh0 @ memory://mesh0: .*'FP-0007'.*'FP-0008'"):
        driver.open()
    with pytest.raises(LinkLost, match="closed"):
        driver.faults()


def test_a_voltage_drive_controller_is_refused_instead_of_guessing_currents(
    driver: LumionMeshController, board: CannedBoard
) -> None:
    board.hello = replace(HELLO, drive=fp.Drive.VOLTAGE)
    with pytest.raises(NotSupportedError, match="voltages"):
        driver.open()


def test_a_controller_held_by_another_host_is_busy(driver: LumionMeshController, board: CannedBoard) -> None:
    board.answers[fp.Command.HELLO] = lambda request: fp.Refusal(fp.Status.BUSY, value=60_000, text="bench-b")
    with pytest.raises(BusyError, match="bench-b"):
        driver.open()


@pytest.mark.parametrize("take_over", [False, True])
def test_take_over_is_asked_for_only_when_told(board: CannedBoard, clock: VirtualClock, take_over: bool) -> None:
    link = MemoryLink(board.connect, clock, "memory://mesh0")
    with LumionMeshController(link, clock, device="mesh0", take_over=take_over):
        (hello,) = board.sent(fp.HelloRequest)
    assert isinstance(hello, fp.HelloRequest)
    assert hello.hello_flags == (fp.HelloFlag.TAKEOVER if take_over else 0)


# --- configuration ---------------------------------------------------------------------------------------------------


def test_limits_become_one_configuration_of_codes_ohms_and_the_off_policy(
    driver: LumionMeshController, board: CannedBoard
) -> None:
    driver.open()
    driver.configure(LIMITS)
    block, limits, apply = [request for _, request in board.requests[2:]]
    assert block == fp.ConfigGlobalRequest(fp.WatchdogPolicy.OFF, 2000, 0, 400)
    assert isinstance(limits, fp.ConfigLimitsRequest)
    assert limits.limits["code_max"].tolist() == CODE_MAX
    assert limits.limits["load_ohm"].tolist() == [1000] * 4
    assert limits.limits["trip_ua"].tolist() == [0] * 4
    assert apply == fp.ConfigApplyRequest(4, fp.config_crc32(block, limits.limits))


def test_optional_faults_are_enabled_where_the_board_has_their_sensors(
    driver: LumionMeshController, board: CannedBoard
) -> None:
    board.hello = replace(HELLO, features=1 << fp.Feature.EXTERNAL_LOOP | 1 << fp.Feature.CHANNEL_SENSE)
    driver.open()
    driver.configure(LIMITS)
    (block,) = board.sent(fp.ConfigGlobalRequest)
    assert isinstance(block, fp.ConfigGlobalRequest)
    assert block.fault_enable == fp.FaultSource.TOTAL_POWER.mask | fp.FaultSource.EXTERNAL_LOOP.mask


def test_limits_of_many_channels_travel_in_pieces_that_fit_the_frame(
    driver: LumionMeshController, board: CannedBoard
) -> None:
    board.hello = replace(HELLO, n_dac=144)
    driver.open()
    driver.configure(ControllerLimits(np.full(144, 5.0), np.full(144, 1000.0), 1000.0))
    pieces = board.sent(fp.ConfigLimitsRequest)
    # Section 2.4: 61 records fit MTU 512.
    assert [(piece.start, len(piece.limits)) for piece in pieces] == [(0, 61), (61, 61), (122, 22)]  # type: ignore[union-attr]


def crc_of(board: CannedBoard) -> int:
    (apply,) = board.sent(fp.ConfigApplyRequest)
    assert isinstance(apply, fp.ConfigApplyRequest)
    return apply.config_crc32


def test_a_controller_that_has_this_configuration_is_left_alone(
    driver: LumionMeshController, board: CannedBoard
) -> None:
    driver.open()
    driver.configure(LIMITS)
    board.hello = replace(HELLO, outputs_state=READY, config_crc32=crc_of(board))
    board.requests.clear()
    driver.open()
    driver.configure(LIMITS)
    assert [type(request) for _, request in board.requests] == [fp.HelloRequest, fp.ReadbackRequest]


def test_a_configuration_restored_from_flash_is_applied_because_the_board_is_still_in_boot(
    driver: LumionMeshController, board: CannedBoard
) -> None:
    driver.open()
    driver.configure(LIMITS)
    board.hello = replace(HELLO, outputs_state=fp.OutputsState.BOOT, config_crc32=crc_of(board))
    board.requests.clear()
    driver.open()
    assert len(board.sent(fp.ConfigApplyRequest)) == 1


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"heater_max_ma": currents(1, 1, 21, 1)}, r"channel 2.*requested 21 mA, limit 20 mA"),
        ({"heater_max_ma": currents(1, -1, 1, 1)}, r"channel 1.*requested -1 mA, limit 0 mA"),
        ({"heater_max_ma": currents(math.nan, 1, 1, 1)}, r"channel 0.*requested nan mA"),
        ({"heater_ohm": currents(1000, 1000, 0, 1000)}, r"channel 2.*requested 0 ohm, limit 1 ohm"),
        ({"heater_ohm": currents(1000, 70000, 1, 1)}, r"channel 1.*requested 70000 ohm, limit 65535 ohm"),
        ({"heater_ohm": currents(1000, math.nan, 1, 1)}, "channel 1"),
        ({"total_power_mw": 0.5}, r"total_power_mw.*limit 1 mW"),
        ({"total_power_mw": 5e6}, r"total_power_mw.*limit 4e\+06 mW"),
        ({"watchdog_s": 0.05}, r"watchdog_s.*limit 0.1 s"),
        ({"watchdog_s": 61.0}, r"watchdog_s.*limit 60 s"),
    ],
)
def test_limits_the_controller_cannot_express_are_refused_before_anything_is_sent(
    driver: LumionMeshController, board: CannedBoard, change: dict[str, object], text: str
) -> None:
    driver.open()
    with pytest.raises(LimitError, match=text):
        driver.configure(replace(LIMITS, **change))  # type: ignore[arg-type]
    assert board.sent(fp.ConfigGlobalRequest) == []


def test_a_channel_that_is_off_for_good_may_have_no_heater(driver: LumionMeshController, board: CannedBoard) -> None:
    driver.open()
    driver.configure(replace(LIMITS, heater_ohm=currents(1000, 1000, 1000, 0)))
    (limits,) = board.sent(fp.ConfigLimitsRequest)
    assert isinstance(limits, fp.ConfigLimitsRequest)
    assert limits.limits[3].tolist() == (0, 0, 0)


def test_arrays_of_the_wrong_size_are_refused(driver: LumionMeshController) -> None:
    driver.open()
    with pytest.raises(ConfigError, match=r"\(3,\).*4 heaters"):
        driver.configure(replace(LIMITS, heater_ohm=np.ones(3)))
    with pytest.raises(ConfigError, match=r"program.*\(5,\)"):
        driver.program(np.zeros(5))


def test_a_hardware_maximum_below_the_limit_is_told_in_milliampere(
    driver: LumionMeshController, board: CannedBoard
) -> None:
    board.answers[fp.Command.CONFIG] = lambda request: fp.Refusal(fp.Status.LIMIT, 1, None, 65535, 32768)
    driver.open()
    with pytest.raises(LimitError, match=r"CONFIG.*channel 1.*requested 20 mA, limit 10.0002 mA"):
        driver.configure(LIMITS)


def test_a_configuration_damaged_on_the_way_is_sent_once_more_and_then_reported(
    driver: LumionMeshController, board: CannedBoard
) -> None:
    plain = board.answers[fp.Command.CONFIG]

    def damaged(request: fp.AnyRequest) -> fp.Message | fp.Refusal | None:
        if isinstance(request, fp.ConfigApplyRequest):
            return fp.Refusal(fp.Status.CRC_MISMATCH, value=1, limit=2)
        return plain(request)

    board.answers[fp.Command.CONFIG] = damaged
    driver.open()
    with pytest.raises(VerifyError, match="CONFIG APPLY"):
        driver.configure(LIMITS)
    assert len(board.sent(fp.ConfigGlobalRequest)) == len(board.sent(fp.ConfigApplyRequest)) == 2


# --- programming -----------------------------------------------------------------------------------------------------


@pytest.fixture
def ready(driver: LumionMeshController, board: CannedBoard) -> LumionMeshController:
    """A configured driver, with the requests so far forgotten."""
    driver.open()
    driver.configure(LIMITS)
    board.requests.clear()
    return driver


def test_currents_become_the_nearest_codes_in_one_set(
    ready: LumionMeshController, board: CannedBoard, clock: VirtualClock
) -> None:
    ready.configure(replace(LIMITS, total_power_mw=500.0))  # 400 mW and 100 mW
    receipt = ready.program(currents(20.0, 0.0004, 10.0, 0.0))
    (request,) = board.sent(fp.SetRequest)
    assert isinstance(request, fp.SetRequest)
    # 0.0004 mA is 1.31 steps of 20 mA / 65535.
    assert request.codes.tolist() == [65535, 1, 32768, 0]
    assert (receipt.number, receipt.crc32) == (42, fp.table_crc32([65535, 1, 32768, 0]))
    assert receipt.timestamp_s == clock.now()


def test_generations_continue_after_what_the_board_drives_and_grow(ready: LumionMeshController) -> None:
    assert [ready.program(np.zeros(4)).number for _ in range(3)] == [42, 43, 44]


def test_the_generation_after_the_largest_is_one(driver: LumionMeshController, board: CannedBoard) -> None:
    board.hello = replace(HELLO, active_generation=0xFFFFFFFF)
    driver.open()
    assert driver.program(np.zeros(4)).number == 1


@pytest.mark.parametrize(
    ("table", "text"),
    [
        (currents(20.001, 0, 0, 0), r"channel 0.*requested 20.001 mA, limit 20 mA"),
        (currents(0, 0, 10.01, 0), r"channel 2.*requested 10.01 mA, limit 10 mA"),
        (currents(0, 0, 0, 0.001), r"channel 3.*requested 0.001 mA, limit 0 mA"),
        (currents(0, -0.001, 0, 0), r"channel 1.*requested -0.001 mA, limit 0 mA"),
        (currents(0, math.nan, 0, 0), r"channel 1.*requested nan mA"),
        (currents(math.inf, 0, 0, 0), r"channel 0.*requested inf mA"),
    ],
)
def test_a_current_outside_its_limits_is_refused_by_channel_before_anything_is_sent(
    ready: LumionMeshController,
    board: CannedBoard,
    table: np.ndarray,
    text: str,  # type: ignore[type-arg]
) -> None:
    with pytest.raises(LimitError, match=text) as caught:
        ready.program(table)
    assert board.requests == []
    assert caught.value.device == "mesh0"


def test_before_limits_are_given_the_full_scale_is_the_limit(driver: LumionMeshController) -> None:
    driver.open()
    with pytest.raises(LimitError, match="limit 20 mA"):
        driver.program(currents(0, 0, 0, 20.1))


def test_a_table_over_the_power_cap_is_told_in_milliwatt(ready: LumionMeshController, board: CannedBoard) -> None:
    board.answers[fp.Command.SET] = lambda request: fp.Refusal(fp.Status.LIMIT, None, None, 500, 400)
    with pytest.raises(LimitError, match="requested 500 mW, limit 400 mW"):
        ready.program(currents(20, 0, 0, 0))


def test_a_table_over_the_power_cap_is_refused_before_anything_is_sent(
    ready: LumionMeshController, board: CannedBoard
) -> None:
    with pytest.raises(LimitError, match="nothing was sent: requested 800 mW, limit 400 mW"):
        ready.program(currents(20, 20, 0, 0))
    assert board.requests == []
    # 20 mA in 1000 ohm are 400 mW, the cap itself; 0.04 mA elsewhere are 1.6 uW more.
    ready.program(currents(20, 0, 0, 0))
    with pytest.raises(LimitError, match="limit 400 mW"):
        ready.program(currents(20, 0.04, 0, 0))


@pytest.mark.parametrize(
    "wrong", [{"crc32": 0xBAD}, {"latched": False}, {"generation": 7}], ids=["crc", "armed", "generation"]
)
def test_a_table_the_controller_does_not_confirm_is_not_believed(
    ready: LumionMeshController, board: CannedBoard, wrong: dict[str, int]
) -> None:
    board.answers[fp.Command.SET] = lambda request: replace(board.latch(request), **wrong)  # type: ignore[type-var]
    with pytest.raises(VerifyError, match=r"setting 42. were not confirmed.*read back SetReply"):
        ready.program(np.zeros(4))


def test_a_set_whose_replies_were_all_lost_does_not_block_the_next_one(
    ready: LumionMeshController, board: CannedBoard
) -> None:
    board.answers[fp.Command.SET] = lambda request: None
    with pytest.raises(LinkTimeout):
        ready.program(np.zeros(4))
    board.answers[fp.Command.SET] = board.latch
    assert ready.program(np.zeros(4)).number == 43  # 42 may have been latched: a newer number cannot be stale


def test_a_table_larger_than_a_frame_is_staged_and_committed(driver: LumionMeshController, board: CannedBoard) -> None:
    board.hello = replace(HELLO, n_dac=304)
    driver.open()
    table = np.linspace(0, 20, 304)
    receipt = driver.program(table)
    first, second, commit = [request for _, request in board.requests[2:]]
    assert isinstance(first, fp.StageRequest)
    assert isinstance(second, fp.StageRequest)
    # Section 14: 304 codes at MTU 512 are STAGE 243 + STAGE 61 + COMMIT.
    assert [(part.start, len(part.codes)) for part in (first, second)] == [(0, 243), (243, 61)]
    codes = np.concatenate([first.codes, second.codes])
    assert codes.tolist() == np.rint(table / 20 * 65535).tolist()
    assert commit == fp.CommitRequest(42, first.bank_generation, fp.table_crc32(codes), 0, 304)
    assert receipt.crc32 == fp.table_crc32(codes)


def test_every_staged_table_opens_the_bank_anew(driver: LumionMeshController, board: CannedBoard) -> None:
    board.hello = replace(HELLO, n_dac=304)
    driver.open()
    for _ in range(2):
        driver.program(np.zeros(304))
    assert [request.bank_generation for request in board.sent(fp.CommitRequest)] == [1, 2]  # type: ignore[union-attr]
    driver.open()  # a new session finds empty banks
    driver.program(np.zeros(304))
    assert board.sent(fp.CommitRequest)[-1].bank_generation == 1  # type: ignore[union-attr]


def test_the_safe_state_names_what_is_latched(ready: LumionMeshController, board: CannedBoard) -> None:
    board.answers[fp.Command.SET] = lambda request: fp.Refusal(fp.Status.SAFE, value=fp.FaultSource.WATCHDOG.mask)
    with pytest.raises(SafetyError, match="WATCHDOG"):
        ready.program(np.zeros(4))


def test_an_unconfigured_controller_says_what_to_do(driver: LumionMeshController, board: CannedBoard) -> None:
    board.answers[fp.Command.SET] = lambda request: fp.Refusal(fp.Status.NOT_CONFIGURED)
    driver.open()
    with pytest.raises(DeviceError, match=r"configure\(\)"):
        driver.program(np.zeros(4))


# --- reading ---------------------------------------------------------------------------------------------------------


def give_codes(board: CannedBoard, table: np.ndarray, *crcs: int) -> None:  # type: ignore[type-arg]
    """Answer READBACK from a table; ``crcs`` are given one after the other, the last for ever."""
    said = list(crcs) or [fp.table_crc32(table)]

    def answer(request: fp.AnyRequest) -> fp.Message:
        assert isinstance(request, fp.ReadbackRequest)
        assert request.bank == 255
        if not request.rb_flags & fp.ReadbackFlag.CODES:
            return board.checksum(request)
        crc = said.pop(0) if len(said) > 1 else said[0]
        codes = table[request.start : request.start + request.count]
        return fp.ReadbackReply(42, crc, 1, READY, 255, len(table), request.start, codes)

    board.answers[fp.Command.READBACK] = answer


def test_the_driven_currents_are_read_back_in_milliampere(ready: LumionMeshController, board: CannedBoard) -> None:
    give_codes(board, np.array([65535, 13107, 0, 0], np.uint16))
    assert ready.read_back().tolist() == pytest.approx([20.0, 4.0, 0.0, 0.0])


def test_a_large_table_is_read_in_pieces_that_fit_the_board_s_frames(
    driver: LumionMeshController, board: CannedBoard
) -> None:
    board.hello = replace(HELLO, n_dac=304)
    table = np.arange(304, dtype=np.uint16) * 200
    give_codes(board, table)
    driver.open()
    assert np.rint(driver.read_back() / 20 * 65535).tolist() == table.tolist()
    # 20 bytes of reply and 2 per code in 496 bytes of payload: 238 codes.
    pieces = board.sent(fp.ReadbackRequest)[1:]
    assert [(r.start, r.count) for r in pieces] == [(0, 238), (238, 66)]  # type: ignore[union-attr]


def test_a_table_that_changed_while_it_was_read_is_read_again(ready: LumionMeshController, board: CannedBoard) -> None:
    table = np.array([1, 2, 3, 4], np.uint16)
    give_codes(board, table, 0xBAD, fp.table_crc32(table))
    ready.read_back()
    assert len(board.sent(fp.ReadbackRequest)) == 2


def test_codes_that_do_not_have_their_checksum_are_not_believed(
    ready: LumionMeshController, board: CannedBoard
) -> None:
    give_codes(board, np.zeros(4, np.uint16), 0xBAD)
    with pytest.raises(VerifyError, match="0x00000BAD"):
        ready.read_back()


def test_monitors_are_photocurrents_and_saturation_is_no_number(
    ready: LumionMeshController, board: CannedBoard, clock: VirtualClock
) -> None:
    board.answers[fp.Command.READ_ADC] = lambda request: fp.ReadAdcReply(9, 42, 0, np.array([0, 13107, 0xFFFF]))
    reading = ready.read_monitors(16)
    # Full scale 2 000 000 nA is 2 mA; 13107 / 65535 is one fifth.
    assert reading.photocurrent_ma[:2].tolist() == pytest.approx([0.0, 0.4])
    assert math.isnan(reading.photocurrent_ma[2])
    assert reading.saturated.tolist() == [False, False, True]
    assert (reading.generation, reading.timestamp_s) == (42, clock.now())
    assert board.sent(fp.ReadAdcRequest) == [fp.ReadAdcRequest(0, 3, 16)]


@pytest.mark.parametrize("n_avg", [0, 4097])
def test_an_average_the_board_cannot_make_is_refused(ready: LumionMeshController, n_avg: int) -> None:
    with pytest.raises(LimitError, match=f"requested {n_avg} scans"):
        ready.read_monitors(n_avg)


def test_a_controller_without_monitors_says_so(driver: LumionMeshController, board: CannedBoard) -> None:
    board.hello = replace(HELLO, n_adc=0, adc_bits=0)
    driver.open()
    with pytest.raises(NotSupportedError, match="no monitors"):
        driver.read_monitors()


# --- faults and stopping ---------------------------------------------------------------------------------------------


def test_faults_are_listed_oldest_first_however_many_frames_they_take(
    ready: LumionMeshController, board: CannedBoard
) -> None:
    records = [
        fp.FaultRecord(3, 10, fp.FaultSource.WATCHDOG, fp.FaultState.CLEARED, None, 2000, 2000),
        fp.FaultRecord(4, 11, fp.FaultSource.OVER_TEMPERATURE, fp.FaultState.PRESENT, 2, 8780, 8500),
        fp.FaultRecord(5, 12, 24, fp.FaultState.LATCHED),
    ]

    def two_at_a_time(request: fp.AnyRequest) -> fp.Message:
        assert isinstance(request, fp.FaultListRequest)
        wanted = [record for record in records if record.fault_id >= request.first_id][:2]
        return fp.FaultListReply(0, 5, fp.OutputsState.SAFE, tuple(wanted))

    board.answers[fp.Command.FAULT_LIST] = two_at_a_time
    first, second, third = ready.faults()
    assert (first.fault_id, first.source, first.latched, first.present) == (3, "WATCHDOG", False, False)
    assert (second.source, second.latched, second.present, second.channel) == ("OVER_TEMPERATURE", True, True, 2)
    assert (second.value, second.limit, second.extra) == (8780, 8500, {"tick": 11, "unit": "0.01 °C"})
    assert (third.source, third.latched, third.channel) == ("VENDOR_24", True, None)


@pytest.mark.parametrize("newest", [0, 9])
def test_a_fault_list_that_never_ends_is_cut(ready: LumionMeshController, board: CannedBoard, newest: int) -> None:
    same = (fp.FaultRecord(3, 10, 9, fp.FaultState.CLEARED),) if newest else ()
    board.answers[fp.Command.FAULT_LIST] = lambda request: fp.FaultListReply(0, newest, READY, same)
    assert [fault.fault_id for fault in ready.faults()] == ([3] if newest else [])


def test_clearing_a_fault_whose_cause_is_present_is_refused(ready: LumionMeshController, board: CannedBoard) -> None:
    board.answers[fp.Command.FAULT_CLEAR] = lambda request: fp.Refusal(fp.Status.INTERLOCK, 2, None, 8780, 8500)
    hot = fp.FaultRecord(4, 11, fp.FaultSource.OVER_TEMPERATURE, fp.FaultState.PRESENT, 2, 8780, 8500)
    newer = fp.FaultRecord(5, 12, fp.FaultSource.SUPPLY, fp.FaultState.PRESENT, None, 4500, 4750)
    kept: list[fp.FaultRecord] = [hot, newer]
    board.answers[fp.Command.FAULT_LIST] = lambda request: fp.FaultListReply(1, 5, fp.OutputsState.SAFE, tuple(kept))
    with pytest.raises(SafetyError, match=r"OVER_TEMPERATURE \(id 4\) on channel 2: 87.8 °C, limit 85 °C") as caught:
        ready.clear_fault(4)
    assert "SUPPLY" not in str(caught.value)
    board.answers[fp.Command.FAULT_LIST] = lambda request: None  # then what the refusal says has to do
    board.requests.clear()
    with pytest.raises(SafetyError, match=r"channel 2.*8780"):
        ready.clear_fault(4)
    assert board.sent(fp.FaultClearRequest) == [fp.FaultClearRequest(4)]


def test_outputs_off_is_the_emergency_stop(ready: LumionMeshController, board: CannedBoard) -> None:
    ready.outputs_off()
    assert board.sent(fp.EstopRequest) == [fp.EstopRequest()]


def test_a_stop_that_did_not_stop_is_not_believed(ready: LumionMeshController, board: CannedBoard) -> None:
    board.answers[fp.Command.ESTOP] = lambda request: fp.EstopReply(1, 2, READY)
    with pytest.raises(VerifyError, match=r"SAFE.*READY.*Disconnect"):
        ready.outputs_off()


def test_a_stop_nobody_answers_ends_with_the_patience_of_the_caller(
    driver: LumionMeshController, board: CannedBoard, clock: VirtualClock
) -> None:
    driver.open()
    driver.configure(replace(LIMITS, watchdog_s=10.0))
    board.answers[fp.Command.ESTOP] = lambda request: None
    start = clock.now()
    with pytest.raises(LinkTimeout, match="ESTOP"):
        driver.outputs_off(timeout_s=11.0)
    assert clock.now() - start == pytest.approx(11.0)


def test_a_stop_is_repeated_without_limit_until_it_is_answered(
    ready: LumionMeshController, board: CannedBoard, clock: VirtualClock
) -> None:
    start = clock.now()
    stopped = board.answers[fp.Command.ESTOP]
    board.answers[fp.Command.ESTOP] = lambda request: stopped(request) if clock.now() - start > 120.0 else None
    ready.outputs_off()
    assert 120.0 < clock.now() - start < 121.0


# --- keep-alive ------------------------------------------------------------------------------------------------------


def test_the_watchdog_is_fed_four_times_per_period_from_configure_on(
    driver: LumionMeshController, board: CannedBoard, clock: VirtualClock
) -> None:
    driver.open()
    clock.sleep(5.0)
    assert board.sent(fp.PingRequest) == []
    driver.configure(LIMITS)
    start = clock.now()
    clock.sleep(2.1)
    times = [at for at, request in board.requests if isinstance(request, fp.PingRequest)]
    assert times == pytest.approx([start + 0.5, start + 1.0, start + 1.5, start + 2.0], abs=1e-3)


def test_configuring_again_changes_the_period_and_closing_ends_the_feeding(
    ready: LumionMeshController, board: CannedBoard, clock: VirtualClock
) -> None:
    ready.configure(replace(LIMITS, watchdog_s=0.4))
    board.requests.clear()
    clock.sleep(1.05)
    assert len(board.sent(fp.PingRequest)) == 10
    ready.close()
    board.requests.clear()
    clock.sleep(1.0)
    assert board.requests == []


class CountedTicker:
    """A ticker that knows whether it was ended."""

    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


def test_no_ticker_outlives_the_configuration_or_the_driver(
    ready: LumionMeshController, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[CountedTicker] = []

    def call_every(period_s: float, action: Callable[[], None]) -> CountedTicker:
        made.append(CountedTicker())
        return made[-1]

    monkeypatch.setattr(clock, "call_every", call_every)
    ready.configure(LIMITS)
    ready.configure(LIMITS)
    assert [ticker.cancelled for ticker in made] == [True, False]
    ready.close()
    assert made[-1].cancelled


def test_a_feed_that_falls_into_a_request_is_skipped(
    ready: LumionMeshController, board: CannedBoard, clock: VirtualClock
) -> None:
    ready.configure(replace(LIMITS, watchdog_s=0.1))
    board.requests.clear()
    board.delay_s = 0.026
    board.answers[fp.Command.SET] = board.latch
    clock.sleep(0.024)  # the next feed is due 1 ms into the request
    ready.program(np.zeros(4))
    kinds = [type(request) for _, request in board.requests]
    assert kinds.count(fp.SetRequest) == 1
    assert fp.PingRequest not in kinds


def test_a_feed_that_fails_is_not_the_matter_of_whoever_lets_the_clock_run(
    ready: LumionMeshController, board: CannedBoard, clock: VirtualClock
) -> None:
    board.answers[fp.Command.PING] = lambda request: None
    clock.sleep(1.0)
    board.gone = True
    clock.sleep(2.0)
    with pytest.raises(LinkLost):
        ready.faults()


# --- losing and closing ----------------------------------------------------------------------------------------------


def test_after_an_unplug_opening_again_continues_the_session_and_changes_nothing_that_is_driven(
    ready: LumionMeshController, board: CannedBoard
) -> None:
    driven = ready.program(currents(1, 2, 3, 0))
    board.gone = True
    with pytest.raises(LinkLost):
        ready.program(np.zeros(4))
    board.gone = False
    block = fp.ConfigGlobalRequest(0, 2000, 0, 400)
    limits = np.array([(code, 1000, 0) for code in CODE_MAX], dtype=fp.LIMIT_DTYPE)
    board.hello = replace(
        HELLO, outputs_state=READY, active_generation=driven.number, config_crc32=fp.config_crc32(block, limits)
    )
    board.requests.clear()
    ready.open()
    hello, _ = [request for _, request in board.requests]
    assert isinstance(hello, fp.HelloRequest)
    assert hello.hello_flags == 0  # the old session id is enough, and throws nobody out (section 4.1)
    assert ready.program(np.zeros(4)).number == driven.number + 1


def test_after_a_restart_the_limits_are_applied_again_and_the_outputs_stay_off(
    ready: LumionMeshController, board: CannedBoard
) -> None:
    ready.program(currents(1, 2, 3, 0))
    board.answers[fp.Command.SET] = lambda request: fp.Refusal(fp.Status.SESSION, value=0)
    with pytest.raises(LinkLost, match="board restarted"):
        ready.program(currents(1, 2, 3, 0))
    board.answers[fp.Command.SET] = board.latch
    board.hello = replace(HELLO, boot_id=78, active_generation=0)
    board.requests.clear()
    ready.open()
    assert ready.boot_id == 78
    assert [type(request) for _, request in board.requests] == [
        fp.HelloRequest,
        fp.ReadbackRequest,
        fp.ConfigGlobalRequest,
        fp.ConfigLimitsRequest,
        fp.ConfigApplyRequest,
    ]
    assert ready.program(np.zeros(4)).number == 1


def test_closing_drives_zeros_and_may_be_repeated(ready: LumionMeshController, board: CannedBoard) -> None:
    ready.close()
    ready.close()
    (request,) = board.sent(fp.SetRequest)
    assert isinstance(request, fp.SetRequest)
    assert request.codes.tolist() == [0, 0, 0, 0]
    assert board.sent(fp.EstopRequest) == []  # closing latches no fault
    with pytest.raises(LinkLost, match="closed"):
        ready.program(np.zeros(4))


@pytest.mark.parametrize("answer", [None, fp.Refusal(fp.Status.SAFE, value=1), fp.Refusal(fp.Status.NOT_CONFIGURED)])
def test_closing_never_fails_whatever_the_controller_says(
    ready: LumionMeshController, board: CannedBoard, answer: fp.Refusal | None
) -> None:
    board.answers[fp.Command.SET] = lambda request: answer
    ready.close()


def test_closing_an_unplugged_or_never_opened_controller_is_harmless(board: CannedBoard, clock: VirtualClock) -> None:
    link = MemoryLink(board.connect, clock, "memory://mesh0")
    never = LumionMeshController(link, clock, device="mesh0")
    never.close()
    never.open()
    board.gone = True
    never.close()


def test_threads_program_whole_tables_under_growing_generations(
    ready: LumionMeshController, board: CannedBoard
) -> None:
    numbers: list[int] = []

    def work(level: float) -> None:
        for _ in range(50):
            numbers.append(ready.program(np.array([level, level, level, 0.0])).number)

    threads = [threading.Thread(target=work, args=(level,)) for level in (1.0, 2.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert sorted(numbers) == list(range(42, 142))
    tables = {tuple(request.codes.tolist()[:3]) for request in board.sent(fp.SetRequest)}  # type: ignore[union-attr]
    assert all(len(set(table)) == 1 for table in tables)
