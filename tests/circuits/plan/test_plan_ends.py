"""Which modules fit each other, and what a request can contain; all without a device."""

import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from lumion_hw.bench import BenchModel
from lumion_hw.bench.file.known_kinds import builtin_kinds
from lumion_hw.bench.file.roles import Role
from lumion_hw.bench.kinds.cmis import CmisModel
from lumion_hw.circuits import CircuitRequest, plan_circuits
from lumion_hw.circuits.plan.ends import circuit_ends
from lumion_hw.emulator.transponders.cmis.profiles import PROFILES
from lumion_hw.errors import CircuitError, ConfigError
from lumion_hw.standards.cmis.grids import frequency_mhz
from tests.circuits.known_mesh import SMALL
from tests.circuits.plan.planning_cases import ZR_PAIR, document, mixed, model_of, record_of, with_device

A_B = CircuitRequest("sfp-a", "sfp-b")
ZR = CircuitRequest("zr-a", "zr-b")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("polarization", "both"),
        ("min_margin_db", -0.1),
        ("min_margin_db", float("nan")),
        ("max_loss_db", -1.0),
        ("max_loss_db", float("inf")),
        ("max_hops", 0),
        ("max_hops", True),
        ("lease_s", 0.0),
        ("lease_s", float("inf")),
    ],
)
def test_a_wish_that_nothing_could_meet_is_refused(field: str, value: object) -> None:
    with pytest.raises(ConfigError, match=rf"circuit sfp-a to sfp-b: {field} is"):
        CircuitRequest("sfp-a", "sfp-b", **{field: value})  # type: ignore[arg-type]


def test_the_way_back_is_the_same_wish() -> None:
    there = CircuitRequest("a", "b", min_margin_db=2.0, max_hops=5, priority=3, exclusive=True)
    assert there.reverse() == CircuitRequest("b", "a", min_margin_db=2.0, max_hops=5, priority=3, exclusive=True)
    assert there.reverse().reverse() == there


def test_a_plan_needs_the_file_and_a_record_and_no_device() -> None:
    plan = plan_circuits(model_of(document()), record_of(), [A_B, A_B.reverse()])
    assert [(c.path.source, c.path.target) for c in plan.circuits] == [(1, 8), (6, 3)]  # small.yaml, 'wiring'
    assert plan.currents_ma.shape == (30,)


def as_zr(**keys: object) -> Callable[[], BenchModel]:
    return lambda: with_device("zr-b", ZR_PAIR, **keys)


def as_sfp(**keys: object) -> Callable[[], BenchModel]:
    return lambda: with_device("sfp-b", **keys)


@pytest.mark.parametrize(
    ("bench", "request_", "words"),
    [
        (as_sfp(rate_gbps=25.78125), A_B, "rate differs: sfp-a sends 10.3125 Gb/s, sfp-b receives 25.7812 Gb/s"),
        (
            as_sfp(wavelength_nm=1310.0),
            A_B,
            "wavelength differs: sfp-a sends 1550.00 nm, sfp-b receives 1260 to 1355 nm",
        ),
        (as_sfp(receives_nm=[1300.0, 1320.0]), A_B, "wavelength differs: sfp-a sends 1550.00 nm"),
        (mixed, CircuitRequest("sfp-a", "zr-b"), "line format differs: sfp-a sends NRZ, zr-b receives ZR400-OFEC,"),
        (as_zr(frequency_thz=194.0), ZR, "wavelength differs: zr-a sends at 1552.524 nm, zr-b receives at 1545.322 nm"),
        (as_sfp(), CircuitRequest("sfp-a", "sfp-b", polarization="dual"), "polarization='dual' was requested, but"),
        (as_zr(), CircuitRequest("zr-a", "zr-b", polarization="single"), "signal of zr-a has two polarizations"),
    ],
)  # fmt: skip
def test_modules_that_cannot_work_together_are_refused_by_what_differs(
    bench: Callable[[], BenchModel], request_: CircuitRequest, words: str
) -> None:
    with pytest.raises(CircuitError, match=f"circuit {request_} cannot work: .*{re.escape(words)}"):
        plan_circuits(bench(), record_of(ZR_PAIR if "zr-b" in bench().devices else SMALL), [request_])


@pytest.mark.parametrize(
    ("source", "target", "end"), [("sfp-b", "sfp-a", "transmitter of sfp-b"), ("sfp-a", "sfp-a", "receiver of sfp-a")]
)
def test_an_end_without_a_fibre_is_named(source: str, target: str, end: str) -> None:
    with pytest.raises(CircuitError, match=f"the {end} is not wired to the mesh. Swap the two ends"):
        plan_circuits(mixed(), record_of(ZR_PAIR), [CircuitRequest(source, target)])


@pytest.mark.parametrize(("side", "name"), [("inputs", "zr-a"), ("outputs", "zr-b")])
def test_two_polarizations_over_one_way_are_refused(side: str, name: str) -> None:
    file = document(ZR_PAIR)
    file["wiring"][side] = [
        {key: value for key, value in fibre.items() if key != "tributary"}
        for fibre in file["wiring"][side]
        if fibre["transponder"] != name or fibre["tributary"] == "x"
        if fibre["transponder"] == name
    ]
    with pytest.raises(CircuitError, match=rf"{name} has one entry in wiring.{side} and needs two, tributary x and y"):
        plan_circuits(model_of(file), record_of(ZR_PAIR), [ZR])


def test_a_module_that_speaks_two_formats_takes_the_one_both_speak() -> None:
    file = document(ZR_PAIR)
    for fibre in file["wiring"]["inputs"]:
        fibre["gain_db"] = 8.0  # to where power costs no OSNR
    alike = plan_circuits(model_of(file), record_of(ZR_PAIR), [ZR]).circuits[0].budget
    file["devices"]["zr-b"]["profile"] = "400zr"
    mixed_ = plan_circuits(model_of(file), record_of(ZR_PAIR), [ZR]).circuits[0].budget
    assert (alike.format.name, alike.required_osnr_db) == ("ZR400-OFEC", 24.0)
    assert (mixed_.format.name, mixed_.required_osnr_db) == ("400ZR", 26.0)


def test_direct_detection_over_cmis_plans_like_any_other() -> None:
    text = SMALL.read_text(encoding="utf-8")
    for name in ("sfp-a", "sfp-b"):
        text = re.sub(rf"(transponder: |nics: \[){name}\b", rf"\g<1>{name}/1", text)
    file = yaml.safe_load(text)
    for name in ("sfp-a", "sfp-b"):
        file["devices"][name] = {"kind": "cmis", "profile": "400g-dr4"}
    for fibre in file["wiring"]["inputs"]:
        fibre["gain_db"] = 16.0
    circuit = plan_circuits(model_of(file), record_of(), [CircuitRequest("sfp-a/1", "sfp-b/1")]).circuits[0]
    assert (circuit.budget.format.name, circuit.strategy, len(circuit.arms)) == ("100GBASE-DR", "controller", 1)
    assert circuit.budget.required_osnr_db is None


BENES = Path(__file__).parents[3] / "examples" / "benches" / "benes-8x8.yaml"


@pytest.mark.parametrize(
    ("path", "ends", "message", "hint"),
    [
        (BENES, ("0", "10"), "0 is a port, wired to laser, not a module", "needs a module at both ends"),
        (BENES, ("board", "10"), "board is not wired to the mesh", "this bench wires none to the mesh"),
        (SMALL, ("1", "sfp-b"), "1 is a port, wired to sfp-a, not a module", "Give sfp-a"),
        (SMALL, ("sfp-a", "99"), "99 is not wired to the mesh", "The wired modules are sfp-a, sfp-b, sfp-c"),
    ],
)
def test_a_port_is_no_end_of_a_circuit(path: Path, ends: tuple[str, str], message: str, hint: str) -> None:
    model = model_of(document(path))
    with pytest.raises(CircuitError, match=f"circuit {ends[0]} to {ends[1]}: {message}") as refused:
        circuit_ends(model, model.to_wiring(), model.topology(), CircuitRequest(*ends))
    assert hint in refused.value.hint


def test_modules_of_several_kinds_plan_side_by_side() -> None:
    plan = plan_circuits(mixed(), record_of(ZR_PAIR), [CircuitRequest("sfp-a", "sfp-b"), ZR])
    assert [circuit.strategy for circuit in plan.circuits] == ["none", "dual"]
    for path in (path for circuit in plan.circuits for path in circuit.paths):
        assert record_of(ZR_PAIR).mesh.trace(path.source, plan.states).port == path.target


def test_what_the_required_noise_depends_on() -> None:
    optics = with_device("zr-b", ZR_PAIR, profile="400zr").devices["zr-b"].optics
    assert optics is not None
    used = optics.formats[0]
    # 400ZR: 26 dB from -12 dBm on, 34 dB at -20 dBm; half way between them 30 dB.
    assert [optics.required_osnr_db(used, dbm) for dbm in (-5.0, -12.0, -16.0, -20.0)] == [26.0, 26.0, 30.0, 34.0]


def test_keys_of_a_bench_file_outrank_the_profile() -> None:
    keys = {"tx_power_dbm": -6.0, "sensitivity_dbm": -18.0, "overload_dbm": 1.0, "required_osnr_db": 25.0}
    keys |= {"max_pdl_db": 3.5, "max_dgd_ps": 28.0, "frequency_thz": 194.0}
    optics = with_device("zr-b", ZR_PAIR, profile="400zr", **keys).devices["zr-b"].optics
    assert optics is not None
    assert (optics.launch_dbm, optics.sensitivity_dbm, optics.overload_dbm) == (-6.0, -18.0, 1.0)
    assert (optics.formats[0].required_osnr_db, optics.max_pdl_db, optics.max_dgd_ps) == (25.0, 3.5, 28.0)
    assert optics.emits_nm == pytest.approx(1545.322, abs=1e-3)  # c / 194 THz


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"sensitivity_dbm": 1.0}, "expected sensitivity_dbm below overload_dbm, found 1 and 0"),
        ({"frequency_thz": 200.0}, "found 200 THz .1498.96 nm"),
    ],
)
def test_figures_that_contradict_each_other_are_refused(keys: dict[str, float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        with_device("zr-b", ZR_PAIR, **keys)


def test_every_kind_of_module_says_what_its_ends_are() -> None:
    modules = {kind.name: kind.model for kind in builtin_kinds() if kind.role is Role.TRANSPONDER}
    assert {"sfp-8472", "cmis"} <= modules.keys()
    for name, model in modules.items():
        assert model.model_validate({"kind": name}).optics is not None, name


@pytest.mark.parametrize("name", PROFILES)
def test_modules_are_planned_as_they_are_emulated(name: str) -> None:
    profile = PROFILES[name]
    optics = CmisModel.model_validate({"kind": "cmis", "profile": name}).optics
    if name == "aec":
        assert optics is None  # copper has no light to plan with
        return
    assert optics is not None
    launch_dbm = profile.launch_dbm if profile.laser is None else profile.laser.default_power_dbm
    shared_nm = profile.fibre_wavelengths_nm
    # Lanes that share a fibre have one budget, whose powers are their totals.
    assert optics.lanes_nm == shared_nm
    assert optics.launch_dbm == pytest.approx(launch_dbm + 10.0 * math.log10(len(shared_nm) or 1))
    assert optics.polarizations == (2 if profile.coherent else 1)
    assert {each.media_id for each in optics.formats} <= {each.media_interface for each in profile.applications}
    laser = profile.laser
    launched_mhz = (
        profile.fixed_frequency_mhz if laser is None else frequency_mhz(laser.default_grid, laser.default_channel)
    )
    middle_nm = sum(shared_nm) / len(shared_nm) if shared_nm else 299792.458 / (float(launched_mhz) * 1e-6)
    assert optics.emits_nm == pytest.approx(middle_nm, abs=0.02)
    if profile.coherent:
        assert optics.launch_osnr_db == profile.tx_osnr_db


def test_half_of_a_splitter_is_refused_by_the_bench_file() -> None:
    file = document()
    file["wiring"]["inputs"][0] = {"transponder": "sfp-a", "port": 1, "tributary": "x"}
    with pytest.raises(ValueError, match=r"wiring.inputs\[0\].tributary: expected tributary y of 'sfp-a' among wiring"):
        model_of(file)
