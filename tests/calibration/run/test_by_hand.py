"""A 4x4 chip with one laser and one power meter, both moved by hand."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from calibration.measure.plug_requests import PlugRequest
from calibration.report.hidden_truth import true_parameters
from calibration.report.truth_errors import phase_errors
from calibration.run.journaled_run import calibrate
from lumion_hw.bench.bench import Bench
from lumion_hw.cli import calibrate_main as main
from lumion_hw.errors import CalibrationError, ConfigError
from lumion_hw.mesh.record.calibration_record import CalibrationRecord
from lumion_hw.polarization import Aligner
from lumion_hw.storage import load_record
from tests.waiting import PATIENCE_S

BY_HAND = Path(__file__).parents[2] / "data" / "by-hand.yaml"
PORTS = {"tls": (0, 1, 2, 3), "pm": (4, 5, 6, 7)}


class DoneError(Exception):
    """The test has seen enough of the run."""


class Operator:
    """Plugs in what is requested, unless ``wrong`` names another port for the number of a request."""

    def __init__(self, bench: Bench, wrong: dict[int, int] | None = None, last: int | None = None) -> None:
        self._bench, self._wrong, self._last = bench, wrong or {}, last
        self.requests: list[PlugRequest] = []

    def __call__(self, request: PlugRequest) -> None:
        # Nobody shall look into a lit fibre, and no heater shall wait for the operator.
        assert self._bench.emulated.world.mesh_output_w().sum() == 0.0
        assert not self._bench.lasers["tls"].state().emitting
        assert not self._bench.mesh.read_back_ma().round(2).any()
        number = len(self.requests)
        self.requests.append(request)
        if number == self._last:
            raise DoneError
        self._bench.emulated.faults.plug(request.device, self._wrong.get(number, request.port))


@pytest.fixture
def bench() -> Iterator[Bench]:
    with Bench.emulate(BY_HAND, seed=1) as opened:
        yield opened


def run(bench: Bench, path: Path, on_plug: Callable[[PlugRequest], None] | None, resume: bool = False) -> None:
    calibrate(bench, Aligner(bench.clock), 1, path, resume=resume, on_plug=on_plug)


def judge(bench: Bench, record: CalibrationRecord) -> None:
    """The record is certified, without faults, and as near to the hidden chip as it says."""
    assert record.complete
    assert record.faults == ()
    assert record.quality["fit_certified"] == 1.0
    assert record.quality["held_out_excess_db"] < 0.05
    normalised, figures = phase_errors(bench, record, true_parameters(bench, record))
    assert figures["passive_mrad"] < 0.5
    assert figures["loops_mrad"] < 0.5
    assert np.sqrt(np.mean(normalised["loss_db"] ** 2)) < 1.5
    assert np.sqrt(np.mean(normalised["law"] ** 2)) < 1.5


@pytest.mark.campaign
def test_ctrl_c_between_two_pluggings_loses_nothing(bench: Bench, tmp_path: Path) -> None:
    first = Operator(bench)

    def impatient(request: PlugRequest) -> None:
        if len(first.requests) == 5:
            raise KeyboardInterrupt
        first(request)

    with pytest.raises(KeyboardInterrupt):
        run(bench, tmp_path / "chip.json", impatient)
    then = Operator(bench)
    run(bench, tmp_path / "chip.json", then, resume=True)
    assert [request.port for request in first.requests + then.requests] == [0, 5, 6, 7, 4, 1, 2, 3]
    judge(bench, load_record(tmp_path / "chip.json"))


KILLED = """
import os, signal, sys
from pathlib import Path
from lumion_hw.bench.bench import Bench
from tests.calibration.run.test_by_hand import BY_HAND, Operator, run

with Bench.emulate(BY_HAND, seed=1) as bench:
    operator = Operator(bench)

    def kill(request):
        if len(operator.requests) == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        operator(request)
        print(request.device, request.port, request.reason, flush=True)

    run(bench, Path(sys.argv[1]), kill)
"""


@pytest.mark.long
def test_a_run_that_is_killed_and_stops_at_pluggings_needs_one_plugging_per_port(bench: Bench, tmp_path: Path) -> None:
    """With an operator until it is killed at the sixth plugging; from there on without, so that it stops at each."""
    path = tmp_path / "chip.json"
    killed = subprocess.run([sys.executable, "-c", KILLED, str(path)], capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    done = [(device, int(port)) for device, port in map(str.split, killed.stdout.splitlines())]  # each without a reason
    # The fibres stay where they were plugged in last.
    for device, number in done:
        bench.emulated.faults.plug(device, number)
    # Killed at the request for port 1, it looks first whether the laser has been moved there.
    for reason in (r"The laser seems to be in port 0, not 1\. ", "", ""):
        expected = rf"{reason}Plug (?:laser|meter) (\w+) into port (\d), then continue"
        with pytest.raises(CalibrationError, match="^" + expected) as stop:
            run(bench, path, None, resume=True)
        assert "--resume" in str(stop.value.hint)
        assert not load_record(path).complete
        ((device, port),) = re.findall(expected, stop.value.message)
        done.append((device, int(port)))
        bench.emulated.faults.plug(device, int(port))
    assert [port for _, port in done] == [0, 5, 6, 7, 4, 1, 2, 3]
    assert sorted(done) == sorted((device, port) for device, ports in PORTS.items() for port in ports)
    run(bench, path, None, resume=True)
    judge(bench, load_record(path))


PROMPTED = """
from calibration.measure.plug_requests import PlugRequest
from lumion_hw.cli.calibrate.operator import operator_of
from lumion_hw.bench.bench import Bench
from lumion_hw.errors import CalibrationError
from tests.calibration.run.test_by_hand import BY_HAND

with Bench.emulate(BY_HAND, seed=1) as bench:
    ask = operator_of(bench, emulate=False)
    ask(PlugRequest("laser", "tls", 2))
    print("plugged")
    try:
        ask(PlugRequest("meter", "pm", 5, "The meter seems to be in port 4, not 5."))
    except CalibrationError as error:
        print(error, error.hint)
"""


def test_a_terminal_asks_the_operator_and_waits_for_enter() -> None:
    terminal, child = pty.openpty()
    with subprocess.Popen([sys.executable, "-c", PROMPTED], stdin=child, stdout=child, stderr=child) as process:
        os.close(child)
        shown = _read_until(terminal, "press Enter. ")
        assert shown == "Plug laser tls into port 2, then press Enter. "
        os.write(terminal, b"\n")
        shown = _read_until(terminal, "press Enter. ")
        assert "plugged" in shown
        assert "The meter seems to be in port 4, not 5. Plug meter pm into port 5, then press Enter. " in shown
        os.write(terminal, b"\x04")  # Ctrl-D
        shown = _read_until(terminal, "--resume.")
        assert "the terminal was closed before the fibre was plugged in" in shown
        assert process.wait(PATIENCE_S) == 0
    os.close(terminal)


def _read_until(terminal: int, end: str) -> str:
    text = ""
    while end not in text:
        text += os.read(terminal, 1024).decode()
    return text


@pytest.mark.long
def test_without_an_operator_a_wrong_port_stops_the_run(bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "chip.json"
    with pytest.raises(DoneError):
        run(bench, path, Operator(bench, last=2))
    bench.emulated.faults.plug("pm", 7)  # not in port 6
    with pytest.raises(CalibrationError, match=r"The meter seems to be in port 7, not 6\. Plug meter pm into port 6"):
        run(bench, path, None, resume=True)
    bench.emulated.faults.plug("pm", 6)
    with pytest.raises(CalibrationError, match=r"^Plug meter pm into port 7, then continue"):
        run(bench, path, None, resume=True)


@pytest.mark.long
def test_wrong_ports_are_named_and_another_laser_power_is_a_coupling(bench: Bench, tmp_path: Path) -> None:
    # The meter is forgotten at port 5, and the laser goes to port 3 instead of 1; at the last but one plugging its
    # power changes.
    operator = Operator(bench, wrong={2: 5, 6: 3})

    def weaken(request: PlugRequest) -> None:
        operator(request)
        if request.port == 2:
            bench.lasers["tls"].set_power_dbm(bench.lasers["tls"].state().power_dbm - 2.0)

    run(bench, tmp_path / "chip.json", weaken)
    again = [request for request in operator.requests if request.reason]
    assert [(request.reason, request.port) for request in again] == [
        ("The meter seems to be in port 5, not 6.", 6),
        ("The laser seems to be in port 3, not 1.", 1),
    ]
    judge(bench, load_record(tmp_path / "chip.json"))


def test_darkness_at_all_ports_is_an_error(bench: Bench, tmp_path: Path) -> None:
    requests: list[PlugRequest] = []
    with pytest.raises(CalibrationError, match="Light from the laser at port 0 does not reach the meter at port 5"):
        run(bench, tmp_path / "chip.json", requests.append)
    assert [request.reason for request in requests[2:4]] == [
        "Light from the laser at port 0 does not reach the meter at port 5."
    ] * 2


def test_further_wavelengths_are_refused(bench: Bench, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="further wavelengths are not supported"):
        calibrate(bench, Aligner(bench.clock), 1, tmp_path / "chip.json", wavelengths_nm=(1540.0,))


@pytest.mark.campaign
def test_the_command_plays_the_operator_of_an_emulated_bench(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "chip.json")
    assert main(["run", str(BY_HAND), "--emulate", "--seed", "1", "--out", out, "--json"]) == 0
    err = capsys.readouterr().err
    assert err.count("(done by the emulator)") == 8
    assert "Plug laser tls into port 0 (done by the emulator)" in err
