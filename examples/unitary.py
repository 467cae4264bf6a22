"""Program a random unitary on a calibrated mesh: python examples/unitary.py RECORD [--modes 4] [--seed 1].

Prints the ports, the fidelity that the record predicts and its uncertainty, and writes the heater currents as a table.
No device is driven; `bench.mesh.program(setting.currents_ma)` would program the mesh.
"""

import argparse
from pathlib import Path

import numpy as np

from lumion_hw import load_record
from lumion_hw.mesh import CalibratedMesh, predicted_fidelities, program_matrix


def random_unitary(n, rng):
    """Return a random unitary from the uniform (Haar) distribution."""
    q, r = np.linalg.qr(rng.standard_normal((n, n)) + 1j * rng.standard_normal((n, n)))
    return q * (np.diag(r) / np.abs(np.diag(r)))


def main():
    parser = argparse.ArgumentParser(description="Program a random unitary on a calibrated mesh.")
    parser.add_argument("record", type=Path)
    parser.add_argument("--modes", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("currents.csv"))
    given = parser.parse_args()

    record = load_record(given.record)
    mesh = CalibratedMesh.from_record(record)
    unitary = random_unitary(given.modes, np.random.default_rng(given.seed))
    setting = program_matrix(mesh, unitary)

    print("inputs ", setting.inputs, "outputs", setting.outputs)
    print(f"loss {setting.loss_db:.2f} dB, heat {setting.heat_mw:.0f} mW")
    print(f"fidelity predicted {setting.fidelity:.5f} ({setting.unrefined_fidelity:.5f} before refinement)")
    if record.joints is None:
        print("this record has no joint phases, so the mesh will not reach this fidelity")
    else:
        expected = predicted_fidelities(mesh, setting, unitary)
        print(f"expected {expected.mean():.5f}, 1 of 20 below {np.quantile(expected, 0.05):.5f}")
    heaters = np.arange(len(setting.currents_ma))
    table = np.column_stack([heaters, record.heater_channels, setting.currents_ma])
    np.savetxt(given.out, table, "%d,%d,%.6f", header="heater,channel,current_ma", comments="")
    print("wrote", given.out)


if __name__ == "__main__":
    main()
