"""A replaced accelerator on a torus, a packet switch and circuits: by hand, and against the published epochs."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from lumion_hw.errors import ConfigError
from lumion_hw.planning import BandwidthFileModel, TorusJob, compare_bandwidth, fabric_steps, load_bandwidth_file
from lumion_hw.planning.detour import _cycle
from lumion_hw.planning.stated import DEFAULT, assumptions_of, scaled
from tests.edited_files import edited

EXAMPLES = Path(__file__).parents[2] / "examples"
PROTOTYPE = EXAMPLES / "replaced_accelerator.yaml"


def test_the_prototype_is_what_a_calculation_by_hand_gives() -> None:
    """Two accelerators reduce 4.92 GB: each sends the whole buffer once, at 1.25 GB/s on one port."""
    result = compare_bandwidth(load_bandwidth_file(PROTOTYPE))
    steps = {fabric.fabric: fabric for fabric in result.fabrics}
    one_port_s = 2 * 3e-6 + 4.92 / 1.25
    both_ports_s = 2 * 3e-6 + 4.92 / 1.25 / 1.8
    for fabric, all_reduce_s in (("torus", one_port_s), ("packet_switch", both_ports_s), ("circuit", both_ports_s)):
        for step in (steps[fabric].before, steps[fabric].after):
            assert step.all_reduce_s == pytest.approx(all_reduce_s)
            assert step.step_s == pytest.approx(0.77 + all_reduce_s)
    gains = {(gain.quantity, gain.published): gain for gain in result.published}
    assert gains["step", 1.62].computed == pytest.approx((0.77 + one_port_s) / (0.77 + both_ports_s))
    # Amdahl: 1.62 = 1 / (1 - x + x / 1.8) has x = (1 - 1 / 1.62) / (1 - 1 / 1.8).
    assert gains["step", 1.62].needed_share == pytest.approx(0.8611, abs=1e-4)
    assert gains["step", 1.9].needed_share is None


@pytest.mark.parametrize(("batch", "one_port_s", "both_ports_s"), [(2, 144.18, 89.74), (4, 75.22, 46.36)])
def test_the_published_epochs_follow_from_the_bytes_of_the_gradients(
    batch: int, one_port_s: float, both_ports_s: float
) -> None:
    """Morphlux: epochs of 128 samples on two workers; the computation is what the epoch with one port leaves."""
    steps, model = 128 // 2 // batch, load_bandwidth_file(PROTOTYPE)
    compute_s = one_port_s / steps - fabric_steps(model, "torus").after.all_reduce_s
    changed = scaled(model, "job.compute_s", compute_s / model.job.compute_s.value)
    assert changed is not None
    assert fabric_steps(changed, "torus").after.step_s * steps == pytest.approx(one_port_s)
    assert fabric_steps(changed, "circuit").after.step_s * steps == pytest.approx(both_ports_s, rel=0.03)


def test_fast_ports_leave_no_gain_and_slow_ports_give_all_of_it() -> None:
    result = compare_bandwidth(load_bandwidth_file(PROTOTYPE), scales=(1e-4, 1.0, 1e4))
    assert result.swept == "accelerator.port_gbps"
    assert [row.step_gain for row in result.sweep] == pytest.approx([1.8, 1.591, 1.0], abs=2e-3)
    assert result.sweep[0].communication_share > 0.999


def test_communication_that_overlaps_with_the_computation_costs_nothing() -> None:
    model = load_bandwidth_file(EXAMPLES / "replaced_in_a_rack.yaml")
    slow = scaled(model, "job.compute_s", 100.0)
    assert slow is not None
    for fabric in ("torus", "packet_switch", "circuit"):
        assert fabric_steps(slow, fabric).after.step_s == 10.0


def test_a_spare_behind_an_uplink_slows_the_packet_switch_only_after_the_replacement() -> None:
    steps = fabric_steps(load_bandwidth_file(EXAMPLES / "replaced_in_a_rack.yaml"), "packet_switch")
    assert (steps.before.link_share, steps.after.link_share) == (1.0, 0.25)
    # 2 (n - 1) rounds and 2 (n - 1) / n buffers of 16 GB at 6 ports of 50 GB/s.
    assert steps.before.all_reduce_s == pytest.approx(14 * 3e-6 + 1.75 * 16 / 300)
    assert steps.after.all_reduce_s == pytest.approx(14 * 3e-6 + 1.75 * 16 / 75)
    # Half of the 100 ms of computing overlaps.
    assert steps.before.step_s == pytest.approx(0.1 + steps.before.all_reduce_s - 0.05)


@pytest.mark.parametrize("scale", [1e-4, 1e4])
def test_numbers_at_the_ends_of_their_ranges_give_a_result(scale: float) -> None:
    model = load_bandwidth_file(PROTOTYPE)
    for name in ("accelerator.port_gbps", "job.gradient_gb", "job.compute_s"):
        changed = scaled(model, name, scale)
        assert changed is not None
        assert all(row.step_gain >= 1.0 for row in compare_bandwidth(changed).sweep)


# The torus -----------------------------------------------------------------------------------------------------------


def test_a_detour_through_the_box_of_another_job_shares_its_links() -> None:
    """Eight in a ring, in boxes of two: the way from 0 to the spare 4 passes 7 and 6, or 1 (failed) and 2."""
    shared = TorusJob((8,), (2,), "ring", (1,), (4,))
    assert shared.loads() == (2, 4)
    assert TorusJob((8,), (2,), "ring", (1,), (4,), other_jobs=False).loads() == (1, 4)
    # The short way leads through the failed accelerator, which forwards nothing.
    assert TorusJob((8,), (2,), "ring", (1,), (2,)).loads() == (2, 6)
    # The box beside it is free.
    assert TorusJob((8,), (2,), "ring", (1,), (7,)).loads() == (1, 1)


def test_a_detour_through_the_own_box_shares_the_links_of_the_job() -> None:
    """Eight in a ring, the job has 0 to 3: the way from 2 to the spare 6 passes 3, over the link that 2 and 3 use."""
    assert TorusJob((8,), (4,), "ring", (1,), (6,)).loads() == (2, 4)


def test_in_a_small_rack_a_way_over_idle_links_exists_and_in_a_large_one_it_does_not() -> None:
    """Idle links between boxes of 2 x 2 x 2 join the corners of eight boxes only: no further way is idle."""
    for spare in ((2, 1, 1), (3, 3, 3), (0, 3, 1)):
        assert TorusJob((4, 4, 4), (2, 2, 2), "mesh", (1, 1, 1), spare).loads()[0] == 1
    # The way from the neighbour (1, 0, 0) to (4, 4, 4) has 3 + 4 + 4 links; no way is shorter.
    assert TorusJob((8, 8, 8), (2, 2, 2), "mesh", (0, 0, 0), (4, 4, 4)).loads() == (2, 11)


def test_a_box_uses_the_links_that_its_layout_names() -> None:
    assert TorusJob((4,), (2,), "ring", (0,), (3,)).share == 0.5  # an open line: one link of two
    assert TorusJob((4, 4), (4, 1), "ring", (0, 0), (0, 3)).share == 0.5  # a closed ring: two links of four
    assert TorusJob((4, 4, 4), (2, 2, 2), "ring", (0, 0, 0), (3, 3, 3)).share == pytest.approx(1 / 3)
    assert TorusJob((4, 4, 4), (2, 2, 2), "mesh", (0, 0, 0), (3, 3, 3)).share == 0.5
    assert TorusJob((4, 4, 4), (4, 4, 1), "mesh", (0, 0, 0), (0, 0, 2)).share == pytest.approx(2 / 3)


@pytest.mark.parametrize("box", [(2, 2), (2, 3), (3, 4), (4, 4, 2), (3, 3, 2), (2, 1, 5)])
def test_a_ring_visits_every_accelerator_of_its_box_once_and_only_neighbours_follow(box: tuple[int, ...]) -> None:
    steps = _cycle(box, [0] * len(box))
    assert sorted(place for place, _ in steps) == sorted(itertools.product(*map(range, box)))
    assert all(sum(abs(x - y) for x, y in zip(a, b, strict=True)) == 1 for a, b in steps)
    assert [b for _, b in steps] == [a for a, _ in steps[1:] + steps[:1]]


@pytest.mark.parametrize(
    ("shape", "box", "failed", "spare", "says"),
    [
        ((4,), (3,), (0,), (3,), "cannot be divided"),
        ((64, 64, 64), (2, 2, 2), (0, 0, 0), (3, 3, 3), "is too large"),
        ((4, 4), (2,), (0, 0), (3, 3), "one number for each axis"),
        ((4,), (2,), (0,), (1,), "in the box of the job"),
        ((4,), (2,), (4,), (3,), "outside the torus"),
        ((6, 3), (3, 3), (0, 0), (3, 0), "no ring of neighbours"),
    ],
)
def test_what_does_not_fit_a_torus_is_refused(
    shape: tuple[int, ...], box: tuple[int, ...], failed: tuple[int, ...], spare: tuple[int, ...], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        TorusJob(shape, box, "ring", failed, spare)


# The file ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("accelerators: 2\n", "accelerators: 4\n", "expected a box of 4 accelerators, found 2"),
        ("ports: 2\n", "ports: 6\n", "expected 2 ports for each of 1 axes, found 6"),
        ('value: 1.8, source: "Morphlux: NCCL', 'value: 3, source: "Morphlux: NCCL', "expected at most 2"),
        ("against: torus", "against: packet_switches", "packet_switch"),
        ("packet_switch: {}", "packet_switch: {spare_share: 0}", "expected at least 0.001, found 0"),
        ("spare: [3]", "spare: [0]", "in the box of the job"),
        ("shape: [4]", "shape: [1]", "at least 2"),
        ("value: 0.77", "value: -1", "0"),
        ("value: 0.77", "value: soon", "soon"),
        ("spare: [3]\n", "spare: [3]\n  other_jobs: maybe\n", "maybe"),
        (
            "port_gbps: {",
            "port_gbps: fast #",
            "expected a number, or a mapping with value and source, found text 'fast'",
        ),
        ("compute_s:", "compute_ms:", "compute_ms"),
        ("packet_switch: {}", "circuit: {schedule: stragglar}", "stragglar"),
        ("version: 1", "version: 2", "expected 1"),
    ],
)
def test_a_mistake_in_a_file_is_named_with_its_line(tmp_path: Path, old: str, new: str, says: str) -> None:
    with pytest.raises(ConfigError, match=r"replaced_accelerator\.yaml:") as caught:
        load_bandwidth_file(edited(PROTOTYPE, tmp_path, (old, new)))
    assert says in str(caught.value)


def test_the_file_on_the_page_is_accepted(tmp_path: Path) -> None:
    page = (EXAMPLES.parent / "docs" / "planning.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    path = tmp_path / "page.yaml"
    path.write_text(text, encoding="utf-8")
    model = load_bandwidth_file(path)
    assert {assumption.name for assumption in assumptions_of(model)} >= {"job.compute_s", "packet_switch.spare_share"}
    keys = set(re.findall(r"`(?:\w+\.)?(\w+)`", page))
    for part in (model.job, model.accelerator, model.torus, model.packet_switch, model.circuit, model.published):
        assert set(type(part).model_fields) <= keys


def test_halving_doubling_needs_a_power_of_two(tmp_path: Path) -> None:
    path = edited(EXAMPLES / "chip_to_chip.yaml", tmp_path, ("accelerators: 64", "accelerators: 48"))
    with pytest.raises(ConfigError, match="power of two for halving-doubling, found 48"):
        load_bandwidth_file(path)


def test_a_fabric_that_the_file_does_not_have_is_refused() -> None:
    with pytest.raises(ConfigError, match="no fabric 'torus'"):
        fabric_steps(load_bandwidth_file(EXAMPLES / "chip_to_chip.yaml"), "torus")


def test_every_number_says_where_it_is_from() -> None:
    model = load_bandwidth_file(EXAMPLES / "replaced_in_a_rack.yaml")
    sources = {assumption.name: assumption.source for assumption in assumptions_of(model)}
    assert sources["accelerator.port_gbps"] == "assumed"
    assert sources["accelerator.round_s"] == DEFAULT
    assert sources["packet_switch.spare_share"].startswith("assumed: the spare is in another rack")
    assert isinstance(scaled(model, "job.gradient_gb", 2.0), BandwidthFileModel)
    assert scaled(model, "job.overlap", 4.0) is None
