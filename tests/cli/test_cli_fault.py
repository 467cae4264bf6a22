"""`lumion fault`: a script meets faults that another process injects into the emulated bench."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lumion_hw import Bench
from lumion_hw.circuits import BenchLock
from lumion_hw.cli import main
from lumion_hw.errors import ConfigError, ConnectError, LinkError
from tests.cli.test_cli_emulate import served
from tests.recorded_calibration import SMALL
from tests.waiting import PatientClock

Lumion = Callable[..., tuple[str, str]]


@pytest.fixture(scope="module")
def endpoints(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    directory = tmp_path_factory.mktemp("fault")
    with served(SMALL, directory, "--seed", "3"):
        yield directory / "endpoints.json"


@pytest.fixture
def fault(endpoints: Path, capsys: pytest.CaptureFixture[str]) -> Lumion:
    """Run `lumion fault` on the emulated bench, and return what it prints."""

    def run(*arguments: str, code: int = 0, options: tuple[str, ...] | None = None) -> tuple[str, str]:
        given = ("--endpoints", str(endpoints)) if options is None else options
        assert main(["fault", str(SMALL), *arguments, *given]) == code
        printed = capsys.readouterr()
        return printed.out, printed.err

    return run


def test_a_script_meets_a_fault_of_another_process_and_recovers_after_it_is_cleared(
    endpoints: Path, fault: Lumion
) -> None:
    addresses = json.loads(endpoints.read_text())
    with Bench.open(SMALL, addresses=addresses, only=["meter0"], clock=PatientClock()) as bench:
        meter = bench.meters["meter0"]
        meter.read(1)
        assert fault("inject", "meter0", "no_cable")[0] == "injected: meter0 no_cable; active faults: meter0 no_cable\n"
        with pytest.raises(LinkError, match="meter0"):
            meter.read(1)
        with pytest.raises(ConfigError, match="no_cable is active already"):
            bench.emulated_faults.inject("meter0", "no_cable")
        assert json.loads(fault("clear", "meter0", "no_cable", "--json")[0]) == {"active": []}
        meter.close()
        meter.open()
        meter.read(1)


def test_a_fault_that_cannot_be_cleared_is_listed_until_the_emulation_ends(tmp_path: Path, fault: Lumion) -> None:
    with served(SMALL, tmp_path):
        options = ("--endpoints", str(tmp_path / "endpoints.json"))
        weakened = ("weaken_heater", "puc=5", "arm=0", "factor=1.3")
        printed = fault("inject", "bench", *weakened, options=options)[0]
        assert printed == (
            "injected: bench weaken_heater; "
            "active faults: bench weaken_heater puc=5 arm=0 factor=1.3 (until the emulation ends)\n"
        )
        assert fault("list", options=options)[0].endswith(printed.partition("; ")[2])


def test_what_can_fail_is_listed(fault: Lumion) -> None:
    table = fault("list", "meter0")[0]
    assert "zero_fails" in table
    assert table.endswith("active faults: none\n")
    listed = json.loads(fault("list", "--json")[0])["faults"]
    assert {"kill_port", "stick_heater"} <= {row["fault"] for row in listed}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("clear", "meter0", "no_power"), "meter0: the fault no_power is not active. Active faults: none."),
        (("clear", "bench", "kill_port", "port=1"), "bench: fault kill_port cannot be cleared; it lasts until"),
        (("inject", "meter0", "no_powr"), "meter0 has no fault no_powr. Do you mean no_power?"),
        (("inject", "meter1", "no_power"), "there is no device meter1. Do you mean meter0?"),
        (("inject", "bench", "kill_port", "port=99"), "kill_port: port is out of range: requested 99, limit 15."),
        (("inject", "meter0"), "inject needs a DEVICE and a FAULT."),
        (("inject", "bench", "kill_port", "1"), "'1' is not an argument of a fault; give NAME=VALUE, such as port=5."),
        (("list", "meter0", "no_power"), "list takes a DEVICE only."),
        (("eject", "meter0", "no_power"), "'eject' is not one of 'inject', 'clear', 'list'."),
    ],
)
def test_a_wrong_request_is_one_error(arguments: tuple[str, ...], says: str, fault: Lumion) -> None:
    assert says in fault(*arguments, code=2)[1]
    assert json.loads(fault("list", "--json")[0])["active"] == []


def test_a_real_bench_has_no_faults_to_inject(fault: Lumion, tmp_path: Path) -> None:
    by_hand = tmp_path / "addresses.json"
    by_hand.write_text('{"mesh0": "tcp://127.0.0.1:9"}')
    for options in ((), ("--endpoints", str(by_hand))):
        told = fault("inject", "mesh0", "hang", code=2, options=options)[1]
        assert "bench small is not emulated, so no fault can be injected" in told
        assert "`lumion faults` lists and clears the latched faults" in told


def test_the_endpoints_of_another_emulator_are_refused(endpoints: Path, fault: Lumion, tmp_path: Path) -> None:
    addresses = json.loads(endpoints.read_text())
    assert main(["fault", "laser-bench", "list", "--endpoints", str(endpoints)]) == 2
    other = tmp_path / "endpoints.json"
    other.write_text(json.dumps(addresses | {"@faults": addresses["@faults"].rpartition("/")[0] + "/guess"}))
    assert "secret" in fault("inject", "mesh0", "hang", code=2, options=("--endpoints", str(other)))[1]
    other.write_text(json.dumps(addresses | {"@faults": "tcp://127.0.0.1:9/guess"}))
    assert (
        f"the emulator that wrote {other} is not running. Start it again"
        in (fault("list", code=4, options=("--endpoints", str(other)))[1])
    )
    with (
        Bench.open(SMALL, addresses={"@faults": "tcp://127.0.0.1:9/guess"}, only=()) as bench,
        pytest.raises(ConnectError),
    ):
        bench.emulated_faults.active()


def test_only_the_owner_may_read_the_secret(endpoints: Path) -> None:
    assert endpoints.stat().st_mode & 0o777 == 0o600


def test_the_two_commands_point_at_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    for command, other in (("fault", "`lumion faults`"), ("faults", "`lumion fault`")):
        assert main([command, "--help"]) == 0
        assert other in capsys.readouterr().out


@pytest.mark.parametrize(
    ("program", "says"),
    [
        ("lumion fabric run", f"To clear a fault now: lumion fabric clear {SMALL} NAME, with the same --endpoints"),
        ("lumion serve", "Clear the fault there: on its page, or with its call BENCH:clear fault=NAME"),
        ("lumion hold", "Wait for it to end, or take over with --take-over "),
    ],
)
def test_latched_faults_of_a_bench_in_use_are_cleared_through_the_program_that_uses_it(
    program: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with BenchLock(tmp_path, program):
        assert main(["faults", str(SMALL), "--state", str(tmp_path)]) == 6
        assert says in capsys.readouterr().err
