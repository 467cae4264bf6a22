"""``lumion joined`` as a user meets it, on two racks and a spine that are emulated in this process."""

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lumion_hw.cli import main
from tests.joined.two_racks import JOINED, TwoRacks, two_racks

EXAMPLE = Path(__file__).parents[2] / "examples" / "four_racks" / "joined.yaml"
NAME = "rack0:sfp-a:rack1:sfp-b"
Command = Callable[..., str]


@pytest.fixture(scope="module")
def racks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoRacks]:
    with two_racks(tmp_path_factory.mktemp("racks")) as racks:
        yield racks


@pytest.fixture
def joined(racks: TwoRacks, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run a command of `lumion joined` on the racks, and return what it prints."""
    monkeypatch.setattr("lumion_hw.joined.change.open_benches", lambda *_: contextlib.nullcontext(racks.benches))

    def command(verb: str, *options: str, code: int = 0) -> str:
        assert main(["joined", verb, str(JOINED), *options, "--state", str(racks.folder / "operator")]) == code
        printed = capsys.readouterr()
        return printed.out + printed.err

    return command


def test_a_circuit_is_planned_connected_shown_and_disconnected(racks: TwoRacks, joined: Command) -> None:
    assert "Planned" in joined("connect", NAME, "--dry-run")
    assert racks.names()["spine"] == []
    document = json.loads(joined("connect", NAME, "--both", "--json"))
    assert [circuit["circuit"] for circuit in document["circuits"]] == [NAME, "rack1:sfp-b:rack0:sfp-a"]
    assert NAME in joined("status")
    assert json.loads(joined("status", "--json"))["unfinished"] is None
    assert joined("disconnect", NAME) == f"disconnected: {NAME}\n"
    assert "disconnected: rack1:sfp-b:rack0:sfp-a" in joined("disconnect", "--all")
    assert joined("recover") == "no change is unfinished\n"


def test_a_dark_fibre_ends_with_code_3_and_its_name(racks: TwoRacks, joined: Command) -> None:
    racks.fibres.unplug("rack1", 2)
    racks.fibres.unplug("rack1", 3)
    text = joined("connect", NAME, code=3)
    assert "check the fibre from spine:" in text
    racks.fibres.plug()


def test_mistakes_of_the_command_are_explained(joined: Command) -> None:
    assert "BENCH:MODULE" not in joined("connect", "rack0:sfp-a", code=2)
    assert "expected either circuits or --all" in joined("disconnect", code=2)
    assert "no circuit rack0:sfp-a:rack1:sfp-b crosses these meshes" in joined("disconnect", NAME, code=2)


def test_the_example_and_the_small_racks_are_without_mistakes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["joined", "check", str(EXAMPLE)]) == 0
    assert main(["joined", "check", str(JOINED)]) == 0
    printed = capsys.readouterr().out
    assert "5 benches and 64 fibres, without mistakes; 5 benches are served and were not asked" in printed
    assert "3 benches and 8 fibres, without mistakes\n" in printed


def test_a_watch_needs_a_file_with_served_benches(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["serve", str(JOINED.with_name("rack0.yaml")), "--pva", "--watch-joined"]
    assert main(command) == 2
    assert "--watch-joined needs --joined" in capsys.readouterr().err
    assert main([*command, "--joined", str(JOINED)]) == 2
    assert "bench rack0 has no address, so it cannot be watched" in capsys.readouterr().err


def test_serving_a_bench_refuses_a_file_that_does_not_know_it(capsys: pytest.CaptureFixture[str]) -> None:
    bench = JOINED.with_name("rack0.yaml")
    assert main(["emulate", str(bench), "--joined", str(EXAMPLE)]) == 2
    assert "bench rack0 does not fit the file of joined meshes" in capsys.readouterr().err
    assert main(["emulate", str(bench), "--joined", str(JOINED)]) == 2
    assert "without emulated_port cannot be emulated" in capsys.readouterr().err
