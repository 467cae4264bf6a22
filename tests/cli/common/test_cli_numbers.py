"""Every number that a command takes is finite and in a range that its help states."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from lumion_hw.cli import main
from lumion_hw.cli.calibrate.commands import calibrate
from lumion_hw.cli.commands import lumion

NO_NUMBERS = ("nan", "NaN", "-nan", "inf", "-inf", "+Infinity", "1e999", "-1e999", "9" * 400)


def commands(group: click.Group, path: tuple[str, ...]) -> Iterator[tuple[str, click.Command]]:
    """Yield every command below a group with the words that call it."""
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found is not None
        if isinstance(found, click.Group):
            yield from commands(found, (*path, name))
        else:
            yield " ".join((*path, name)), found


def value_of(command: click.Command, parameter: click.Parameter, text: str) -> object:
    """Return what a command would be given if this parameter had this text, callbacks and all."""
    many = parameter.multiple if isinstance(parameter, click.Option) else parameter.nargs != 1
    with click.Context(command) as context:
        return parameter.process_value(context, (text,) if many else text)


def is_number(value: object) -> bool:
    flat = value if isinstance(value, tuple) else (value,)
    return bool(flat) and all(isinstance(each, int | float) and not isinstance(each, bool) for each in flat)


def number_parameters() -> Iterator[tuple[str, click.Command, click.Parameter]]:
    """Yield all parameters of both programs that make a number of a word such as 1 or 1550."""
    for path, command in [*commands(lumion, ("lumion",)), *commands(calibrate, ("lumion-calibrate",))]:
        for parameter in command.params:
            for word in ("1", "193.1", "1550"):
                try:
                    found = is_number(value_of(command, parameter, word))
                except click.BadParameter:
                    continue
                if found:
                    yield f"{path} {parameter.opts[0]}", command, parameter
                    break


NUMBERS = {name: (command, parameter) for name, command, parameter in number_parameters()}


def test_the_walk_finds_the_numbers_there_are() -> None:
    some = {
        "lumion log --rate",
        "lumion log --for",
        "lumion transponder tune frequency_thz",
        "lumion mesh route --puc-loss-db",
    }
    some |= {"lumion-calibrate verify --tolerance-db", "lumion-calibrate drift --aged-days", "lumion demo --seed"}
    some |= {
        "lumion-calibrate run --wavelengths",
        "lumion-calibrate verify --wavelength",
        "lumion mesh route --dead-port",
    }
    assert some <= NUMBERS.keys()


def test_no_number_may_be_nan_or_infinite() -> None:
    for name, (command, parameter) in NUMBERS.items():
        for text in NO_NUMBERS:
            try:
                value = value_of(command, parameter, text)
            except click.BadParameter:
                continue
            pytest.fail(f"{name} takes {text[:12]} as {value}")


def test_every_number_says_its_range_in_the_help() -> None:
    for name, (command, parameter) in NUMBERS.items():
        if isinstance(parameter, click.Option):
            with click.Context(command) as context:
                _, text = parameter.get_help_record(context) or ("", "")
            assert re.search(r"x<=\d|\d to \d|at most \d", text), f"{name}: {text}"


@pytest.mark.parametrize("word", ["nan", "inf", "-1", "1e999"])
@pytest.mark.parametrize("option", ["--excess-loss", "--stuck"])
def test_numbers_inside_words_are_finite_as_well(option: str, word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mesh", "route", "--connect", "0:12", f"{option}=5={word}"]) == 2
    err = capsys.readouterr().err
    assert word in err
    assert "Traceback" not in err


def test_the_error_says_what_was_found_and_what_is_expected(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mesh", "route", "--connect", "0:12", "--max-loss-db", "nan"]) == 2
    assert "'nan' is not a finite number" in capsys.readouterr().err
    assert main(["mesh", "route", "--connect", "0:12", "--max-loss-db=-3"]) == 2
    assert "-3 dB" in capsys.readouterr().err


@pytest.mark.parametrize(("rate", "duration"), [("1e99", "10s"), ("10000", "3650d"), ("1", "9" * 400)])
def test_a_log_too_long_to_number_its_rows_is_refused(
    rate: str, duration: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["log", "lumion-prototype", "--emulate", "--rate", rate, "--for", duration, "--out"]
    assert main([*words, str(tmp_path / "x.h5")]) == 2
    assert list(tmp_path.iterdir()) == []
    assert "Traceback" not in capsys.readouterr().err
