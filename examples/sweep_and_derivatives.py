"""Sweep one PUC, and compute derivatives of the light with respect to all parameters of a mesh (docs/mesh.md)."""

from dataclasses import replace

import numpy as np

from lumion_hw.mesh import HexMesh, Solver, SweepSolver, UnitCells, gradient

mesh = HexMesh.smartlight()
theta = np.zeros(mesh.n_pucs)
theta[[16, 20]] = np.pi / 2
one = UnitCells.ideal(mesh.n_pucs, len(mesh.joints), theta, loss_db=0.5)
solver = Solver(mesh)
sweep = SweepSolver(solver, one, 193.4e12, pucs=[6], inputs=[0])
heat = np.linspace(0.0, 2 * np.pi, 240)
phase = np.repeat(one.phase_upper[None], 240, axis=0)
phase[:, 6] += heat
power = np.abs(sweep.solve(replace(one, phase_upper=phase).transfer(193.4e12)[:, [6]])) ** 2
print("power at port 5:", power[:, 5, 0].min(), "to", power[:, 5, 0].max())

matrix = solver.solve(one, 193.4e12, inputs=[0])
cotangent = np.zeros_like(matrix)
cotangent[5, 0] = 2 * matrix[5, 0].conj()  # of the power from port 0 to port 5
slope = gradient(solver, one, 193.4e12, cotangent, inputs=[0])
print(f"one more dB of loss in PUC 16: {slope.loss_db[16]:+.4f} of the light")
