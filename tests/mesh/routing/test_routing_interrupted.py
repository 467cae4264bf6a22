"""Ctrl-C while a routing is proven, and after it: whoever asked hears of it and can switch the bench off."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("ortools")

AFTER = """
import os, signal, threading
from lumion_hw.mesh.layout.hexagonal import HexMesh
from lumion_hw.mesh.routing import RouteRequest, route
mesh = HexMesh.smartlight()
pairs = [(9, 3), (5, 16), (18, 1)]
route(mesh, RouteRequest(pairs, objective="hops", exact_search="always", time_limit_s=60.0))
try:
    os.kill(os.getpid(), signal.SIGINT)
    threading.Event().wait(60.0)  # the signal ends it
except KeyboardInterrupt:
    print("told")
"""

DURING = """
import os, signal, threading
import numpy as np
import ortools.sat.python.cp_model
from lumion_hw.mesh.layout.hexagonal import HexMesh
from lumion_hw.mesh.routing import RouteRequest, route
mesh = HexMesh.rings(8)
ports = np.random.default_rng(3).permutation(mesh.n_ports)[:24].tolist()
threading.Timer(3.0, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    route(mesh, RouteRequest(list(zip(ports[::2], ports[1::2])), exact_search="always", time_limit_s=3600.0))
except KeyboardInterrupt:
    print("told")
"""

LOADING = """
import os, signal, sys
from lumion_hw.mesh.layout.hexagonal import HexMesh
from lumion_hw.mesh.routing import RouteRequest, route


class Finder:
    def find_spec(self, name, path, target=None):
        if name == "ortools.sat.python.cp_model_helper":
            try:
                os.kill(os.getpid(), signal.SIGINT)
            except KeyboardInterrupt as error:
                raise ImportError("initialization failed") from error  # as a compiled module says it


sys.meta_path.insert(0, Finder())
try:
    route(HexMesh.smartlight(), RouteRequest([(9, 3)], objective="hops", exact_search="always", time_limit_s=60.0))
except KeyboardInterrupt:
    print("told")
"""


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(LOADING, id="loading"),
        pytest.param(AFTER, id="after"),
        pytest.param(DURING, id="during", marks=pytest.mark.long),
    ],
)
def test_ctrl_c_reaches_the_caller(program: str) -> None:
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300.0, check=False)
    assert (ended.returncode, ended.stdout) == (0, "told\n"), ended.stderr
