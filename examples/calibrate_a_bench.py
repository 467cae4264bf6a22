"""Calibrate an emulated bench, save the record and print its figures (docs/calibrate.md)."""

from calibration import BenchProbe, Calibration
from lumion_hw import Bench, save_record

with Bench.emulate("laser-bench", seed=7) as bench, bench.dark():  # leaves heaters and light off
    probe = BenchProbe(bench)
    dark = probe.align_all()  # aligns polarization; returns ports that stay dark, with reasons
    run = Calibration(probe, probe.device_under_test(), seed=7)
    record = run.run()  # if interrupted, run.record() holds the results so far
save_record(record, "record.json")

for name in ("settings", "hardware_s", "fit_chi2_per_dof", "held_out_excess_db"):
    print(name, round(record.quality[name], 3))
puc = record.pucs[4]
print(f"PUC 4: {puc.passive_phase_rad:+.4f} ± {puc.passive_phase_sigma_rad:.4f} rad; faults: {record.faults or 'none'}")

if record.quality["fit_certified"] != 1.0:
    raise SystemExit("The record is not certified. lumion-calibrate report shows the reasons.")
