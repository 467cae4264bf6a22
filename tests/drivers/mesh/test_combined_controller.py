"""Several controllers act as one: all change or none does, and one that has stopped stops them all."""

import numpy as np
import pytest

from firmware_protocol import FaultSource
from lumion_hw.drivers.mesh.combined import CombinedController
from lumion_hw.errors import BadValueError, LimitError, LinkError, NotSupportedError, SafetyError
from lumion_hw.interfaces import LightThreshold, MeshController, SweepPlan
from lumion_hw.remote.roles import find_interface
from tests.drivers.mesh.combined_boards import Boards

FIRST, SECOND = np.linspace(0.1, 1.2, 12), np.linspace(1.3, 0.2, 12)
STEP_MA = 2e-4


@pytest.fixture
def boards() -> Boards:
    return Boards()


@pytest.fixture
def controller(boards: Boards):
    opened = boards.controller(configured=boards.limits())
    opened.program(FIRST)
    yield opened
    opened.close()


def drives(boards: Boards, currents_ma) -> bool:
    return bool(np.allclose(boards.whole_ma, currents_ma, atol=STEP_MA))


def test_heaters_and_monitors_are_numbered_through_the_controllers(boards, controller) -> None:
    info = controller.info
    assert (info.n_heaters, info.n_monitors, info.serial) == (12, 6, "BOARD-0+BOARD-1+BOARD-2")
    assert (info.atomic, info.on_board_sweep, info.telemetry, info.watches_light) == (False, False, True, True)
    assert find_interface(controller) == MeshController.__name__
    assert drives(boards, FIRST)
    assert np.allclose(controller.read_back(), FIRST, atol=STEP_MA)
    assert np.allclose(controller.read_monitors().photocurrent_ma, [0.1, 0.11, 0.2, 0.3, 0.31, 0.32], atol=1e-4)


def test_all_parts_are_checked_before_the_first_is_sent(boards, controller) -> None:
    with pytest.raises(LimitError, match=r"program, channel 11 is outside 0 to 5 mA; nothing was sent"):
        controller.program(np.where(np.arange(12) == 11, 5.1, SECOND))
    controller.configure(boards.limits(total_power_mw=180.0))  # 60 mW each, and 3 heaters take 75 mW
    with pytest.raises(LimitError, match=r"mesh1: program: the computed total power is too high; nothing was sent"):
        controller.program(np.where((np.arange(12) >= 4) & (np.arange(12) < 7), 5.0, SECOND))
    assert drives(boards, FIRST)


def test_a_controller_that_is_pulled_leaves_the_others_as_before(boards, controller) -> None:
    boards.boards[1].pull_cable()
    with pytest.raises(LinkError, match=r"mesh1.*\. The other controllers drive their former currents") as caught:
        controller.program(SECOND)
    assert caught.value.device == "mesh1"
    assert np.allclose(boards.driven_ma[0], FIRST[:4], atol=STEP_MA)
    assert np.allclose(boards.driven_ma[2], FIRST[7:], atol=STEP_MA)
    boards.boards[1].plug_cable()
    controller.open()
    controller.program(SECOND)
    assert drives(boards, SECOND)


def test_a_controller_that_does_not_answer_may_drive_the_new_currents_and_this_is_said(boards, controller) -> None:
    boards.boards[2].freeze()
    with pytest.raises(LinkError, match=r"mesh2.*This controller may drive the new currents\. The other controllers"):
        controller.program(SECOND)
    assert np.allclose(boards.whole_ma[:7], FIRST[:7], atol=STEP_MA)


def test_switching_off_is_not_taken_back_because_one_controller_is_away(boards, controller) -> None:
    boards.boards[1].pull_cable()
    with pytest.raises(LinkError, match="The other controllers are switched off"):
        controller.program(np.zeros(12))
    assert not boards.driven_ma[0].any()
    assert not boards.driven_ma[2].any()


def test_if_the_others_cannot_be_set_back_all_are_switched_off(boards, controller, monkeypatch) -> None:
    first, program = controller.parts["mesh0"], controller.parts["mesh0"].program
    calls = []

    def program_once(currents_ma):
        calls.append(currents_ma)
        if len(calls) > 1:
            raise LimitError("mesh0 has changed its mind", requested=1.0, limit=0.0, unit="mA")
        return program(currents_ma)

    monkeypatch.setattr(first, "program", program_once)
    boards.boards[1].pull_cable()
    with pytest.raises(
        LinkError, match=r"mesh0 could not be set back \(.*mind.*\), so all outputs within reach were sw"
    ):
        controller.program(SECOND)
    assert not boards.driven_ma[0].any()
    assert not boards.driven_ma[2].any()


def test_a_controller_that_trips_switches_the_whole_mesh_off(boards, controller) -> None:
    boards.boards[1].trip(FaultSource.HW_SPI)
    with pytest.raises(SafetyError, match=r"mesh1.*The other controllers are switched off"):
        controller.program(SECOND)
    assert not boards.whole_ma.any()


@pytest.mark.parametrize("look", [CombinedController.faults, CombinedController.read_back])
def test_a_trip_is_noticed_by_the_first_look_at_it(boards, controller, look) -> None:
    boards.boards[1].trip(FaultSource.HW_SPI, channel=2)
    look(controller)
    assert not boards.whole_ma.any()
    assert not controller.read_back().any()


def test_a_controller_that_has_restarted_switches_the_whole_mesh_off(boards, controller) -> None:
    boards.boards[2].power_off()
    boards.boards[2].power_on()
    with pytest.raises(LinkError):
        controller.read_back()
    assert np.allclose(boards.driven_ma[0], FIRST[:4], atol=STEP_MA)
    controller.open()
    assert not boards.whole_ma.any()
    controller.program(SECOND)
    assert drives(boards, SECOND)


def test_a_fault_names_its_controller_and_is_cleared_there(boards, controller) -> None:
    for number in (1, 2):
        boards.boards[number].trip(FaultSource.HW_SPI, channel=2)
    first, second = controller.faults()
    assert (first.fault_id, first.channel, str(first)) == (102, 6, "HW_SPI of mesh1 (id 102) on channel 6")
    assert (second.fault_id, second.channel) == (103, 9)
    controller.clear_fault(first.fault_id)
    assert [fault.latched for fault in controller.faults()] == [False, True]
    with pytest.raises(SafetyError):
        controller.program(SECOND)
    for unknown in (7, 104, 202, -1):
        with pytest.raises(BadValueError, match="no fault has the id"):
            controller.clear_fault(unknown)
    controller.clear_fault(second.fault_id)
    controller.program(SECOND)
    assert drives(boards, SECOND)


def test_all_outputs_are_switched_off_even_if_one_controller_is_away(boards, controller) -> None:
    boards.boards[0].pull_cable()
    with pytest.raises(LinkError, match="mesh0"):
        controller.outputs_off()
    assert not boards.driven_ma[1].any()
    assert not boards.driven_ma[2].any()
    assert drives(boards, np.concatenate([FIRST[:4], np.zeros(8)]))


def test_a_program_that_opens_the_mesh_takes_over_what_is_driven(boards, controller) -> None:
    opened = boards.combined(controller.parts)
    boards.boards[1].pull_cable()
    with pytest.raises(LinkError, match="former currents"):
        opened.program(SECOND)
    assert np.allclose(boards.driven_ma[0], FIRST[:4], atol=STEP_MA)


def test_streams_of_several_controllers_are_one(boards, controller) -> None:
    stream = controller.telemetry(0.01, monitors=(0, 3, 5))
    number = controller.program(SECOND).number
    samples = [next(stream) for _ in range(4)]
    assert all(np.allclose(each.reading.photocurrent_ma, [0.1, 0.3, 0.32], atol=1e-4) for each in samples)
    assert samples[-1].reading.generation == number
    stream.close()
    with pytest.raises(StopIteration):
        next(stream)


def test_light_is_watched_on_every_controller(boards, controller) -> None:
    watch = controller.watch_light([LightThreshold(monitor, 0.05, 0.06) for monitor in (1, 2, 4)])

    def dark() -> frozenset[int] | None:
        """Return the last state that is reported, after all of them."""
        last = None
        while (state := watch.wait(0.1)) is not None:
            last = state.dark
        return last

    assert dark() == frozenset()
    boards.photocurrent_ma[1] = np.zeros(1)
    assert dark() == {2}
    boards.photocurrent_ma[2] = np.zeros(3)
    assert dark() == {2, 4}
    assert dark() is None
    watch.change([LightThreshold(4, 0.05, 0.06)], 1e-3)
    assert dark() == {4}
    boards.photocurrent_ma[2] = np.full(3, 0.3)
    assert dark() == frozenset()
    watch.close()


def test_a_sweep_is_left_to_the_host(controller) -> None:
    with pytest.raises(NotSupportedError, match=r"sweep: .* Set the points one by one"):
        controller.sweep(SweepPlan(({0: 1.0},)))
