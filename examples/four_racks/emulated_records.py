"""Makes the calibration records of the emulated racks and their spine, as perfect calibrations would find them.

Run it in this folder. With hardware, use `lumion-calibrate run`, for the spine with a laser before its fibres are
plugged in.
"""

from lumion_hw import Bench, save_record
from lumion_hw.joined import load_joined
from lumion_hw.testing import record_of_truth

SEED = 7

for name in load_joined("joined.yaml").benches:
    with Bench.emulate(f"{name}.yaml", seed=SEED) as bench:
        save_record(record_of_truth(bench), f"{name}.json")
    print(f"{name}.json")
