"""`lumion plan` and `lumion slice` as somebody would type them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lumion_hw.cli import main
from lumion_hw.planning import Faults, plan_spares, rack_of_servers, read_causes

EXAMPLES = Path(__file__).parents[2] / "examples"


def printed(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main([*map(str, arguments)]) == 0
    return capsys.readouterr().out


def document(capsys: pytest.CaptureFixture[str], *arguments: object):
    return json.loads(printed(capsys, *arguments, "--json"))


def test_spares_are_those_of_the_recursion_and_both_rules_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("plan", "spares", "--racks", 8, "--rate", 3e-4, "--repair", 7, "--server-share", 0.4)
    plans = {plan["rule"]: plan for plan in document(capsys, *asked)["plans"]}
    faults = Faults.from_rate(3e-4, 7.0, 0.4, 4)
    rack = rack_of_servers(16, 4, faults.accelerator_unavailable, faults.server_unavailable)
    for rule in ("published", "sufficient"):
        assert plans[rule]["pooled"] == plan_spares(rack, 8, 0.95, rule).pooled
    assert "published" in printed(capsys, *asked)


def test_spares_and_streams_are_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib, of the extra plots, is not there")
    for asked, words in (
        (("plan", "spares", "--racks", 8), ("one rack of 64", "pool of 8 racks", "level 0.95")),
        (("slice", "stream", "--requests", 50), ("torus", "fabric", "enough free, no place", "accelerators at work")),
    ):
        picture = tmp_path / f"{asked[0]}.svg"
        printed(capsys, *asked, "--plot", picture)
        text = picture.read_text(encoding="utf-8")
        assert all(f"<!-- {word} -->" in text for word in words)
        assert main([*map(str, asked), "--plot", str(tmp_path / "picture.txt")]) == 2
        assert ".png" in capsys.readouterr().err


def test_causes_come_from_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    causes = Path(__file__).parents[2] / "examples" / "fault_causes.csv"
    found = document(capsys, "plan", "spares", "--causes", causes)
    faults = Faults.from_causes(read_causes(causes), 4)
    assert found["server_unavailable"] == faults.server_unavailable
    compared = document(capsys, "plan", "compare", "--causes", causes, "--racks", 8, "--states", 500)
    # 480 of 512 accelerators may run jobs, and nearly all of them do.
    lost = 1.0 - (1.0 - faults.accelerator_unavailable) * (1.0 - faults.server_unavailable)
    assert 0.85 * 480 * lost < compared["failed"] < 1.15 * 480 * lost


def test_compare_is_the_published_experiment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    asked = ("plan", "compare", "--failures", "1,4", "--states", 200)
    out = printed(capsys, *asked, "--plot", tmp_path / "costs.svg")
    assert "reserved for 0.95" in out
    assert "job-migration" in (tmp_path / "costs.svg").read_text() or (tmp_path / "costs.svg").stat().st_size > 5000
    found = document(capsys, *asked)
    assert found["over_in_rack_spares"]["needed"]["job-migration"] > 10.0
    assert found["over_in_rack_spares"]["stranded"]["job-migration"] is None
    assert {policy["scope"] for policy in found["policies"]} == {"fleet", "rack", "rack, then fleet"}


def test_the_map_is_of_the_sizes_and_shares_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    asked = ("plan", "map", "--racks", 4, "--sizes", "4,32", "--server-shares", "0,1", "--states", 100)
    found = document(capsys, *asked, "--plot", tmp_path / "map.png")
    assert found["sizes"] == [4, 32]
    assert len(found["factors"]["server-eviction"][0]) == 2
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")
    assert "100% server faults" in printed(capsys, *asked)


def test_fabrics_are_compared_before_and_after_a_replacement(capsys: pytest.CaptureFixture[str]) -> None:
    file = EXAMPLES / "replaced_accelerator.yaml"
    out = printed(capsys, "plan", "bandwidth", file)
    for words in ("none suffices", "86.1%", "accelerator.port_gbps", "packet switch", "LUMION, arXiv 2505.23105"):
        assert words in out
    found = document(capsys, "plan", "bandwidth", file)
    assert [steps["fabric"] for steps in found["result"]["fabrics"]] == ["torus", "packet_switch", "circuit"]
    assert found["result"]["published"][0]["needed_share"] is None
    assert {number["source"] for number in found["assumptions"]} >= {"assumed (default)"}


def test_the_power_of_networks_is_compared(capsys: pytest.CaptureFixture[str]) -> None:
    file = EXAMPLES / "rail_power.yaml"
    assert "ratio with host transceivers" in printed(capsys, "plan", "power", file)
    found = document(capsys, "plan", "power", file)
    assert found["published"] == 23.0
    assert [row["packet_tiers"] for row in found["rows"]] == [1, 2, 2]


def test_a_slice_is_placed_on_both_kinds_of_rack(capsys: pytest.CaptureFixture[str]) -> None:
    scattered = ",".join(str(place) for place in range(64) if sum(divmod(place // 4, 4)) % 2 != place % 2)
    out = printed(capsys, "slice", "place", 8, "--busy", scattered)
    assert "torus: the slice does not fit; 32 accelerators are free" in out
    assert "fabric: 0, 2" in out
    found = document(capsys, "slice", "place", 8, "--topology", "torus")
    assert found["torus"]["box"] == [2, 2, 2]
    assert len(found["fabric"]["circuits"]) == 12


def test_a_stream_is_served_by_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mix = tmp_path / "mix.csv"
    mix.write_text("8,1\n12,1\n")
    found = document(capsys, "slice", "stream", "--requests", 300, "--load", 2, "--mix", mix)
    assert found["fabric"]["fragmented"] == 0.0 < found["torus"]["fragmented"]
    assert "too few free" in printed(capsys, "slice", "stream", "--requests", 50)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (("plan", "spares", "--rack", "10"), "whole number of servers"),
        (("plan", "spares", "--level", "1"), "--level"),
        (("plan", "spares", "--rate", "nan"), "--rate"),
        (("plan", "compare", "--failures", "1"), "--failures"),
        (("plan", "compare", "--failures", "1,99"), "failures"),
        (("plan", "compare", "--mix", "nothing"), "tpu-v4-small"),
        (("plan", "compare", "--scheduler", "127.0.0.1:1", "--states", "10"), "scheduler"),
        (("plan", "compare", "--causes", "none.csv", "--failures", "1,4"), "not both"),
        (("plan", "spares", "--causes", "none.csv", "--repair", "3"), "not both"),
        (("plan", "spares", "--causes", "none.csv"), "causes of faults"),
        (("plan", "bandwidth", "none.yaml"), "cannot read bandwidth file none.yaml"),
        (("plan", "bandwidth", str(EXAMPLES / "rail_power.yaml")), "bandwidth file"),
        (("plan", "power", str(EXAMPLES / "chip_to_chip.yaml")), "power file"),
        (("plan", "map", "--sizes", "4,x"), "--sizes"),
        (("plan", "map", "--sizes", "0"), "a job cannot have 0"),
        (("plan", "map", "--server-share", "0.5"), "--server-shares"),
        (("slice", "place", "65", "--torus", "4,4"), "--torus"),
        (("slice", "place", "8", "--topology", "full"), "needs 7 ports"),
        (("slice", "place", "8", "--busy", "64"), "--busy"),
        (("slice", "stream", "--load", "0"), "--load"),
    ],
)
def test_bad_input_is_a_sentence(
    asked: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lumion_hw.cluster._CONNECT_S", 0.5)
    assert main([*asked]) in (2, 4)
    said = capsys.readouterr().err
    assert says in said
    assert "Traceback" not in said
