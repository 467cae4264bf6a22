"""Fibres that are moved by hand, in a bench file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from lumion_hw.bench.bench import load
from lumion_hw.bench.file.loader import check_bench

BY_HAND = Path(__file__).parents[2] / "data" / "by-hand.yaml"


def mistakes(tmp_path: Path, change: Callable[[dict[str, Any]], None]) -> list[str]:
    document = yaml.safe_load(BY_HAND.read_text())
    change(document)
    path = tmp_path / "bench.yaml"
    path.write_text(yaml.safe_dump(document))
    return [str(problem) for problem in check_bench(str(path))]


def test_a_laser_and_a_meter_may_be_used_at_several_ports_by_hand() -> None:
    assert not check_bench(str(BY_HAND))
    wiring = load(BY_HAND).to_wiring()
    assert [path.port for path in wiring.inputs if path.by_hand] == [0, 1, 2, 3]
    assert [path.port for path in wiring.outputs if path.by_hand] == [4, 5, 6, 7]


def one_input_without_the_key(document: dict[str, Any]) -> None:
    del document["wiring"]["inputs"][2]["by_hand"]


def one_output_without_the_key(document: dict[str, Any]) -> None:
    del document["wiring"]["outputs"][0]["tap"]["by_hand"]


def a_switch_in_the_fibre(document: dict[str, Any]) -> None:
    document["devices"]["switch"] = {"kind": "polatis"}
    document["wiring"]["inputs"][1]["through"] = [{"device": "switch", "enters": 1, "leaves": 17}]


def a_controller_in_the_fibre(document: dict[str, Any]) -> None:
    document["devices"]["pol"] = {"kind": "oz-epc04"}
    document["wiring"]["inputs"][0]["polarization"] = "pol"


def one_port_twice(document: dict[str, Any]) -> None:
    document["wiring"]["inputs"][1]["port"] = 0


def two_lasers(document: dict[str, Any]) -> None:
    document["devices"]["tls2"] = {"kind": "santec-tsl"}
    document["wiring"]["inputs"][3]["laser"] = "tls2"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (one_input_without_the_key, "expected by_hand: true as at the other ports of laser 'tls', found none"),
        (one_output_without_the_key, "expected by_hand: true as at the other ports of channel 1 of 'pm', found none"),
        (a_switch_in_the_fibre, "expected no through in a fibre that is moved by hand (by_hand: true), found one"),
        (a_controller_in_the_fibre, "expected no polarization in a fibre that is moved by hand"),
        (one_port_twice, "expected port 0 to be used once"),
        (two_lasers, "expected one laser that is moved by hand, found 2: tls, tls2"),
    ],
)
def test_a_mistake_is_reported(tmp_path: Path, change: Callable[[dict[str, Any]], None], message: str) -> None:
    found = mistakes(tmp_path, change)
    assert any(message in problem for problem in found), found
