"""Speed of the scattering solver compared with SAX, klujax and scipy's sparse LU, one thread each, in one process.

Run: .venv/bin/pip install -e '.[fast,benchmark]' and then .venv/bin/python benchmarks/solver.py
SAX gets the mesh as a netlist with the same transfer matrices, jit-compiled, on its KLU backend. klujax gets the sparse
equations. Each figure is the median of calls made in turns, with results on the host. Each result is checked
against sparse LU. The rows "first result" are new processes, including imports and compilation.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lumion_hw.mesh.layout.hexagonal import HexMesh
from lumion_hw.mesh.waves.cell import UnitCells
from lumion_hw.mesh.waves.scattering import Solver, feeds
from lumion_hw.mesh.waves.sweep import SweepSolver

F0 = 193.4145e12
TURN_S = 0.05
ONE_THREAD = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "JAX_PLATFORMS": "cpu",
}
COLUMNS = {72: (2, 3) * 3 + (2,), 211: (4, 5) * 6 + (4,), 725: (10, 11) * 10 + (10,)}
WAVELENGTHS = F0 + np.linspace(-1e12, 1e12, 100)


def mesh_of(n_pucs: int) -> HexMesh:
    return HexMesh.columns(COLUMNS[n_pucs])


def fabricated(mesh: HexMesh) -> UnitCells:
    """Return a mesh with random phases, uneven couplers and losses, and dispersion."""
    rng = np.random.default_rng(1)
    n = mesh.n_pucs
    return UnitCells(
        loss_db=rng.uniform(0.46, 0.55, n),
        eta_in=rng.uniform(0.47, 0.53, n),
        eta_out=rng.uniform(0.47, 0.53, n),
        phase_upper=rng.uniform(0, 2 * np.pi, n),
        phase_lower=rng.uniform(0, 2 * np.pi, n),
        joint_phase=rng.uniform(0, 2 * np.pi, len(mesh.joints)),
        eta_slope_per_hz=1e-15,
        differential_slope_per_hz=2e-13,
    )


# -- peers ----------------------------------------------------------------------------------------------------------


class SparseLu:
    """scipy's splu with its own fill-reducing order, wavelength by wavelength."""

    def __init__(self, mesh: HexMesh) -> None:
        self.mesh = mesh
        n = 4 * mesh.n_pucs
        joined = np.flatnonzero(mesh.mate >= 0)
        joint = np.full(n, -1)
        joint[mesh.joints[:, 0]] = joint[mesh.joints[:, 1]] = np.arange(len(mesh.joints))
        wave, self.element = feeds(np.repeat(mesh.mate[joined], 2), np.tile([0, 1], len(joined)))
        self.joint = np.repeat(joint[joined], 2)
        self.rows = np.concatenate([np.arange(n), np.repeat(joined, 2)])
        self.columns = np.concatenate([np.arange(n), wave])
        self.n = n
        self.out_wave, self.out_element = feeds(np.repeat(mesh.port_puc_port, 2), np.tile([0, 1], mesh.n_ports))

    def values(self, transfer: NDArray[np.complex128], cells: UnitCells) -> NDArray[np.complex128]:
        """Return the elements of I - C·S for T of shape ``(..., E, 2, 2)``."""
        flat = transfer.reshape(*transfer.shape[:-3], -1)
        coupling = -np.exp(-1j * cells.joint_phase)[self.joint] * flat[..., self.element]
        return np.concatenate([np.ones((*coupling.shape[:-1], self.n)), coupling], axis=-1)

    def leaving(self, transfer: NDArray[np.complex128], waves: NDArray[np.complex128]) -> NDArray[np.complex128]:
        """Return the fields that leave the ports."""
        flat = transfer.reshape(*transfer.shape[:-3], -1)
        parts = flat[..., self.out_element, None] * waves[..., self.out_wave, :]
        result: NDArray[np.complex128] = parts[..., 0::2, :] + parts[..., 1::2, :]
        return result

    def injected(self, inputs: list[int]) -> NDArray[np.complex128]:
        """Return the right-hand sides."""
        right = np.zeros((self.n, len(inputs)), dtype=np.complex128)
        right[self.mesh.port_puc_port[inputs], np.arange(len(inputs))] = 1.0
        return right

    def solve(self, cells: UnitCells, hz: NDArray[np.float64], inputs: list[int]) -> NDArray[np.complex128]:
        """Return the field transmission, shape ``(W, n_ports, len(inputs))``."""
        import scipy.sparse as sp
        from scipy.sparse.linalg import splu

        transfer = cells.transfer(hz)
        right = self.injected(inputs)
        waves = np.stack(
            [
                splu(sp.csc_matrix((values, (self.rows, self.columns)), shape=(self.n, self.n))).solve(right)
                for values in self.values(transfer, cells)
            ]
        )
        return self.leaving(transfer, waves)


Solve = Callable[[UnitCells, NDArray[np.float64]], NDArray[np.complex128]]


def klujax_solver(lu: SparseLu, inputs: list[int]) -> Solve:
    """The library klujax on the same equations; cells are evaluated in numpy, as for the other solvers."""
    import jax
    import jax.numpy as jnp
    import klujax

    jax.config.update("jax_enable_x64", True)
    rows, columns = jnp.asarray(lu.rows, dtype=jnp.int32), jnp.asarray(lu.columns, dtype=jnp.int32)
    right = jnp.asarray(lu.injected(inputs))

    @jax.jit
    def waves(values: Any) -> Any:
        return klujax.solve(rows, columns, values, jnp.broadcast_to(right, (len(values), *right.shape)))

    def solve(cells: UnitCells, hz: NDArray[np.float64]) -> NDArray[np.complex128]:
        transfer = cells.transfer(hz)
        return lu.leaving(transfer, np.asarray(waves(jnp.asarray(lu.values(transfer, cells)))))

    return solve


def sax_solver(mesh: HexMesh) -> Solve:
    """The mesh as a SAX netlist, jit-compiled: PUCs with four ports, joined directly.

    Half of each joint's factor belongs to the PUC at either end of it, which saves SAX 124 instances and most of the
    compile time.
    """
    import jax
    import jax.numpy as jnp
    import sax

    jax.config.update("jax_enable_x64", True)
    names = ("al", "ar", "bl", "br")

    def puc(t00: Any = 1.0, t01: Any = 0.0, t10: Any = 0.0, t11: Any = 1.0) -> Any:
        return sax.reciprocal({("al", "bl"): t00, ("ar", "bl"): t01, ("al", "br"): t10, ("ar", "br"): t11})

    at = [f"p{p // 4},{names[p % 4]}" for p in range(4 * mesh.n_pucs)]
    netlist = {
        "instances": {f"p{e}": "puc" for e in range(mesh.n_pucs)},
        "connections": {at[one]: at[other] for one, other in mesh.joints.tolist()},
        "ports": {f"q{port}": at[int(p)] for port, p in enumerate(mesh.port_puc_port)},
    }
    circuit, _ = sax.circuit(netlist, {"puc": puc}, backend="klu")
    order = [f"q{port}" for port in range(mesh.n_ports)]

    @jax.jit
    def matrix(transfer: Any) -> Any:
        settings: dict[str, Any] = {
            f"p{e}": {f"t{r}{s}": transfer[e, r, s] for r in (0, 1) for s in (0, 1)} for e in range(mesh.n_pucs)
        }
        dense, ports = sax.sdense(circuit(**settings))
        index = jnp.asarray([ports[name] for name in order])
        return dense[..., index[:, None], index[None, :]]

    def solve(cells: UnitCells, hz: NDArray[np.float64]) -> NDArray[np.complex128]:
        # SAX broadcasts over wavelengths if a value has that axis.
        half = np.ones(4 * mesh.n_pucs, dtype=np.complex128)
        half[mesh.joints] = np.exp(-0.5j * cells.joint_phase)[:, None]
        ends = half.reshape(-1, 2, 2)
        return np.asarray(matrix(cells.elements(hz) * (ends[:, 1, :, None] * ends[:, 0, None, :])[..., None]))

    return solve


# -- measuring ------------------------------------------------------------------------------------------------------


@dataclass
class Row:
    """Result of one method in one case."""

    method: str
    ms: float
    error: float


def in_turns(actions: dict[str, Callable[[], Any]], reference: NDArray[np.complex128], rounds: int) -> list[Row]:
    """Return the median time of one call, and the largest deviation of its result.

    In its turn a method is called for 50 ms, at least once. The first call refills the CPU caches after other methods,
    as in a program that solves several meshes.
    """
    errors = {name: float(np.max(np.abs(action() - reference))) for name, action in actions.items()}
    calls = {name: max(1, round(TURN_S / _seconds(action, 1))) for name, action in actions.items()}
    times: dict[str, list[float]] = {name: [] for name in actions}
    for _ in range(rounds):
        for name, action in actions.items():
            times[name].append(_seconds(action, calls[name]))
    return [Row(name, statistics.median(taken) * 1e3, errors[name]) for name, taken in times.items()]


def _seconds(action: Callable[[], Any], calls: int) -> float:
    began = time.perf_counter()
    for _ in range(calls):
        action()
    return (time.perf_counter() - began) / calls


def report(title: str, rows: list[Row], peer: str | None, goal: float | None) -> None:
    ours = rows[0].ms
    print(f"\n{title}\n\n| method | ms | times ours | max deviation |\n|---|---|---|---|")
    for row in rows:
        print(f"| {row.method} | {row.ms:.3f} | {row.ms / ours:.1f} | {row.error:.0e} |")
    compared = {row.method: row.ms / ours for row in rows}
    if goal is not None and peer in compared:
        print(f"\nGoal: {goal:g} times faster than {peer}: {'met' if compared[peer] >= goal else 'MISSED'}.")


def spectra(n_pucs: int, *, with_sax: bool, rounds: int) -> None:
    mesh = mesh_of(n_pucs)
    cells, solver, plain, lu = fabricated(mesh), Solver(mesh), Solver(mesh, compiled=False), SparseLu(mesh)
    everything = list(range(mesh.n_ports))
    sax = sax_solver(mesh) if with_sax else None
    for what, inputs in (("all ports", everything), ("one input", [0])):
        chosen = None if inputs is everything else inputs
        reference = lu.solve(cells, WAVELENGTHS, inputs)
        klu = klujax_solver(lu, inputs)
        actions: dict[str, Callable[[], Any]] = {
            "lumion-hw, compiled": lambda chosen=chosen: solver.solve(cells, WAVELENGTHS, chosen),
            "lumion-hw, numpy only": lambda chosen=chosen: plain.solve(cells, WAVELENGTHS, chosen),
            "klujax": lambda klu=klu: klu(cells, WAVELENGTHS),
            "sparse LU": lambda inputs=inputs: lu.solve(cells, WAVELENGTHS, inputs),
        }
        if sax is not None:
            actions["SAX, jit, klu"] = lambda inputs=inputs: sax(cells, WAVELENGTHS)[:, :, inputs]
        peer, goal = _goal(n_pucs, what)
        rows = in_turns(actions, reference, rounds)
        report(f"{n_pucs} PUCs, 100 wavelengths, {what} (median of {rounds})", rows, peer, goal)


def _goal(n_pucs: int, what: str) -> tuple[str | None, float | None]:
    goals = {
        (72, "all ports"): ("SAX, jit, klu", 5.0),
        (72, "one input"): ("SAX, jit, klu", 40.0),
        (725, "one input"): ("klujax", 2.0),
    }
    return goals.get((n_pucs, what), (None, None))


def sweep(n_pucs: int, rounds: int) -> None:
    mesh = mesh_of(n_pucs)
    cells, solver, lu = fabricated(mesh), Solver(mesh), SparseLu(mesh)
    puc, points = mesh.n_pucs // 2, np.linspace(0.0, 4 * np.pi, 240)
    phase = np.repeat(cells.phase_upper[None], 240, axis=0)
    phase[:, puc] += points
    swept = replace(cells, phase_upper=phase)
    one = UnitCells(*(np.atleast_1d(value[puc : puc + 1]) for value in _arrays(cells)), np.zeros(0))

    def ours() -> NDArray[np.complex128]:
        base = SweepSolver(solver, cells, F0, [puc], [0])
        heated = replace(one, phase_upper=one.phase_upper + points[:, None])
        return base.solve(heated.transfer(F0)[:, :1])

    def naive() -> NDArray[np.complex128]:
        return np.stack([lu.solve(replace(cells, phase_upper=row), np.array([F0]), [0])[0] for row in phase])

    rows = in_turns({"lumion-hw, low rank": ours, "sparse LU, 240 times": naive}, solver.solve(swept, F0, [0]), rounds)
    goal = 200.0 if n_pucs == 72 else None
    report(
        f"{n_pucs} PUCs, 240 points of one heater, one input (median of {rounds})", rows, "sparse LU, 240 times", goal
    )


def _arrays(cells: UnitCells) -> tuple[NDArray[np.float64], ...]:
    return cells.loss_db, cells.eta_in, cells.eta_out, cells.phase_upper, cells.phase_lower


def first_result() -> None:
    times = {}
    cold = "lumion-hw, nothing compiled before"
    for name in ("lumion-hw", cold, "lumion-hw without numba", "SAX"):
        taken = []
        for _ in range(3 if name not in ("SAX", cold) else 1):
            with tempfile.TemporaryDirectory() as directory:
                cache = {"NUMBA_CACHE_DIR": directory} if name == cold else {}
                began = time.perf_counter()
                subprocess.run([sys.executable, __file__, "--first", name], check=True, env=os.environ | cache)
                taken.append(time.perf_counter() - began)
        times[name] = statistics.median(taken)
    print("\nFirst result of a fresh process, 72 PUCs, 100 wavelengths, all ports\n")
    print("| method | s | times ours |\n|---|---|---|")
    for name, seconds in times.items():
        print(f"| {name} | {seconds:.2f} | {seconds / times['lumion-hw']:.1f} |")
    print(f"\nGoal: 10 times sooner than SAX: {'met' if times['SAX'] >= 10 * times[cold] else 'MISSED'}.")


def first(name: str) -> None:
    mesh = mesh_of(72)
    if name == "SAX":
        sax_solver(mesh)(fabricated(mesh), WAVELENGTHS)
    else:
        Solver(mesh, compiled=False if "without" in name else None).solve(fabricated(mesh), WAVELENGTHS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=15, help="calls per median")
    arguments = parser.parse_args()
    if any(
        os.environ.get(name) != value for name, value in ONE_THREAD.items()
    ):  # libraries read these variables on import
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | ONE_THREAD)
    if arguments.first:
        first(arguments.first)
        return
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, one thread")
    spectra(72, with_sax=True, rounds=arguments.rounds)
    spectra(211, with_sax=False, rounds=max(arguments.rounds // 3, 3))
    spectra(725, with_sax=False, rounds=max(arguments.rounds // 5, 3))
    for n_pucs in COLUMNS:
        sweep(n_pucs, rounds=max(arguments.rounds // 5, 3))
    first_result()


if __name__ == "__main__":
    main()
