"""Compute the loss of a path for 200 chips whose phases differ at random (docs/mesh.md)."""

import numpy as np

from lumion_hw.mesh import HexMesh, Solver, UnitCells

mesh = HexMesh.smartlight()
rng = np.random.default_rng(1)
theta = np.zeros(mesh.n_pucs)  # all cross
theta[[16, 20]] = np.pi / 2  # these two PUCs: bar
draws = 0.05 * rng.standard_normal((200, mesh.n_pucs))  # 200 chips whose phases are a little off
cells = UnitCells.ideal(mesh.n_pucs, len(mesh.joints), theta + draws, loss_db=0.5)

solver = Solver(mesh)
wavelengths_hz = 193.4e12 + np.linspace(-50e9, 50e9, 3)
field = solver.solve(cells, wavelengths_hz, inputs=[0])  # wavelength, chip, port, input
power_db = 20 * np.log10(np.abs(field[1, :, 5, 0]))
print(f"port 0 to port 5: {power_db.mean():.2f} dB, worst of 200 chips {power_db.min():.2f} dB")
