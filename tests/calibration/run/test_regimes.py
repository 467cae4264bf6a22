"""Each regime of use is measured and judged by itself, and decides about the certificate for its uses only."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest

from calibration.measure.bench_probe import BenchProbe
from calibration.measure.logbook import Logbook
from calibration.record.regimes import REGIMES, Kind
from calibration.report.headline import headline
from calibration.run.procedure import Calibration
from calibration.run.verification import HeldOut, Verification, regime_settings, verify_regimes
from lumion_hw.bench.bench import Bench
from lumion_hw.mesh.record.calibration_record import USES, CalibrationRecord, Use
from lumion_hw.mesh.waves.heater import HeaterLaw
from tests.calibration.bench_run import SMALL
from tests.calibration.model.solver_probe import LAW, SolverProbe
from tests.calibration.run.test_verification import SOURCES, paper_probe, true_record, with_puc

WRONG_PUC = 3
MEASURED: tuple[Kind, ...] = ("single", "turns", "hot", "changed", "cold", "rested", "repeated")


def wrong_law_record(probe: SolverProbe) -> CalibrationRecord:
    """Return a record in which the law of one heater is 3 % too steep."""
    record = true_record(probe)
    law = HeaterLaw(1.03 * LAW.rho2_rad_per_ma2, 1.03 * LAW.rho4_rad_per_ma4, LAW.max_ma)
    heater = dataclasses.replace(record.pucs[WRONG_PUC].upper, law=law)
    return with_puc(record, WRONG_PUC, upper=heater)


def test_a_true_record_predicts_the_light_in_every_regime() -> None:
    probe = paper_probe()
    found, numbers = verify_regimes(probe, true_record(probe), seed=1)
    assert {result.kind for result in found.results} == set(MEASURED)
    for kind in MEASURED:
        assert not found.of(kind).is_wrong, kind
    assert len(numbers) == len(probe.settings) == regime_settings(probe.mesh, len(SOURCES), len(probe.alive))


def test_every_heater_is_driven_alone_at_the_end_together_over_the_whole_range_and_once_hot() -> None:
    probe = paper_probe()
    verify_regimes(probe, true_record(probe), seed=1)
    heaters = len(probe.alive)
    alone = np.array(probe.settings)[-2 * heaters :]
    assert np.all(np.count_nonzero(alone, axis=1) == 1)
    assert sorted(alone.argmax(axis=1)) == np.repeat(np.arange(heaters), 2).tolist()
    share = alone.max(axis=1) ** 2 / LAW.max_ma**2
    steps = (np.arange(heaters) + 0.5) / heaters
    np.testing.assert_allclose(np.sort(share[::2]), steps, rtol=1e-9)
    np.testing.assert_allclose(np.sort(share[1::2]), 0.6 + 0.4 * steps, rtol=1e-9)


def test_a_setting_of_two_sources_follows_a_long_pause_with_all_heaters_off() -> None:
    probe = paper_probe()
    found, _ = verify_regimes(probe, true_record(probe), seed=1)
    assert [duration_s for _, duration_s in probe.rests] == [1.0, 1.0]
    assert sorted({result.setting for result in found.of("rested").results}) == [number for number, _ in probe.rests]
    for number, _ in probe.rests:
        assert not probe.settings[number - 1].any()
        assert np.count_nonzero(probe.settings[number]) > 1


def test_the_first_settings_of_each_source_are_measured_again_at_the_end() -> None:
    probe, rng = paper_probe(), np.random.default_rng(2)
    logbook = Logbook(probe)
    first: dict[int, list[list[float]]] = {}
    for source in SOURCES:
        logbook.light_only_port(source)
        for _ in range(4):
            currents_ma = rng.uniform(0.3, 0.6, len(probe.alive)) * LAW.max_ma
            first.setdefault(source, []).append(currents_ma.tolist())
            logbook.measure(currents_ma)
    verify_regimes(logbook, true_record(probe), seed=1)
    last = logbook.observations().currents_ma[-2 * (len(SOURCES) + len(probe.alive)) : -2 * len(probe.alive)]
    np.testing.assert_allclose(last, np.concatenate([first[source][:2] for source in SOURCES]), rtol=1e-6)


def test_progress_ends_at_its_total() -> None:
    probe, rng = paper_probe(), np.random.default_rng(2)
    logbook = Logbook(probe)
    for source in SOURCES:  # each source is lit again at the end
        logbook.light_only_port(source)
        logbook.measure(rng.uniform(0.3, 0.6, len(probe.alive)) * LAW.max_ma)
    steps: list[tuple[int, int]] = []
    verify_regimes(logbook, true_record(probe), seed=1, on_step=lambda step, total: steps.append((step, total)))
    assert steps == [(number, len(steps)) for number in range(1, len(steps) + 1)]
    assert len(steps) > len(SOURCES)


def test_a_wrong_law_shows_with_its_heater_alone() -> None:
    probe = paper_probe()
    found, _ = verify_regimes(probe, wrong_law_record(probe), seed=1)
    worst = max(found.of("single").results, key=lambda result: abs(result.error_sigma))
    assert abs(worst.error_sigma) > 5.0
    assert np.flatnonzero(probe.settings[worst.setting]).tolist() == [2 * WRONG_PUC]
    assert not found.of("cold").is_wrong


def test_heaters_that_have_changed_since_the_fit_are_measured() -> None:
    probe = paper_probe()
    record = wrong_law_record(probe)
    changes = verify_regimes(probe, record, seed=1)[0].heater_changes(0.0)
    assert [heater for heater, change in changes.items() if change.is_significant] == [2 * WRONG_PUC]
    # The first two terms of its law are 3 % too large in the record; the light is not linear in such a phase.
    assert changes[2 * WRONG_PUC].relative == pytest.approx(-0.03, abs=0.01)
    common = verify_regimes(probe, record, seed=1)[0].heater_changes(-0.03)
    assert abs(common[2 * WRONG_PUC].relative) < 0.01


def _results(wrong: Sequence[Kind]) -> Verification:
    """Return some comparisons in every regime, 0.5 dB off in some of them."""
    return Verification(
        tuple(
            HeldOut(number, kind, 1, port, -20.0, 0.5 if kind in wrong else 0.0, 0.01, 5.0 if kind in wrong else 0.0)
            for number, kind in enumerate(REGIMES)
            for port in range(4)
        )
    )


@pytest.mark.parametrize(
    ("wrong", "withheld"),
    [
        ((), ()),
        (("states",), ("switching",)),
        (("random", "hot"), ("matrices",)),
        (("single",), ("single heaters",)),
        (("states", "single"), ("switching", "single heaters")),
        (("changed",), USES),
        (("states", "turns", "single"), USES),
    ],
)
def test_a_wrong_regime_withholds_the_certificate_for_its_uses(
    wrong: tuple[Kind, ...], withheld: tuple[Use, ...]
) -> None:
    with Bench.emulate(SMALL, seed=1) as bench:
        probe = BenchProbe(bench)
        run = Calibration(probe, probe.device_under_test(), 1)
        run.quality |= {"fit_certified": 1.0}
        run._judge((_results(wrong), np.arange(len(REGIMES))))
        record = dataclasses.replace(run.record(), complete=True)
    assert tuple(use for use in USES if record.doubts_for(use)) == withheld
    assert bool(record.doubts) == (withheld == USES)
    assert record.quality["fit_certified"] == (withheld != USES)
    for kind in wrong:
        assert any(REGIMES[kind].description in fault for fault in record.faults)
    certified = dict(headline(record).figures)["certified"]
    kept = [use for use in USES if use not in withheld]
    assert certified.startswith(
        "no: " if not kept else "yes" if not withheld else f"for {' and '.join(kept)}; not for "
    )


def test_a_use_that_no_regime_shows_stands_on_the_others() -> None:
    """With fibres moved by hand, only random currents are verified."""
    with Bench.emulate(SMALL, seed=1) as bench:
        probe = BenchProbe(bench)
        run = Calibration(probe, probe.device_under_test(), 1)
        run._judge((_results(("random",)).of("random"), np.arange(1)))
        assert run.record().doubts


def test_no_regime_is_hotter_than_settings_that_the_controller_accepted() -> None:
    probe = paper_probe()
    logbook = Logbook(probe)
    logbook.light_only_port(SOURCES[0])
    logbook.measure(np.full(len(probe.alive), 1.1))
    verify_regimes(logbook, true_record(probe), seed=1)
    heat = (np.array(probe.settings) ** 2).sum(axis=1)
    assert heat.max() == pytest.approx(heat[0])
