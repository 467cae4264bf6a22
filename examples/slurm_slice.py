#!/usr/bin/env python3
"""Slurm prolog and epilog that connect the hosts of a job in a ring of circuits, and disconnect them at its end.

Needs only Python. It was tried with a stand-in for Slurm, not with Slurm. In slurm.conf on the controller:

    PrologSlurmctld=/etc/slurm/slurm_slice.py
    EpilogSlurmctld=/etc/slurm/slurm_slice.py

Start `lumion serve BENCH --record RECORD --no-fabric --page --page-writes`, write the token that it prints to
TOKEN_FILE (only the user of slurmctld may read this file), and label the ports of the bench with the names of their
hosts (see docs/switch.md). A host that is in use makes the prolog fail, and Slurm then requeues the job.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# Slurm starts a prolog with few environment variables, so edit these defaults.
URL = os.environ.get("LUMION_URL", "http://127.0.0.1:5080")
TOKEN_FILE = Path(os.environ.get("LUMION_TOKEN_FILE", "/etc/slurm/lumion.token"))
PATIENCE_S = 120.0
"""Longest wait for the lease, which another prolog may hold."""


def call(path: str, body: Mapping[str, Any] | None = None) -> Any:
    """Send a request to the bench and return the reply; an error ends the program with its message."""
    token = TOKEN_FILE.read_text(encoding="utf-8").strip()
    request = urllib.request.Request(
        URL.rstrip("/") + path,
        data=None if body is None else json.dumps(body).encode(),
        headers={"X-Lumion-Token": token, "Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=600.0) as reply:
            return json.load(reply)
    except urllib.error.HTTPError as error:
        text = error.read().decode()
        if error.code == 409:
            raise BlockingIOError(text) from error  # another client holds the lease
        sys.exit(f"slurm_slice: {text}")


def take_lease(owner: str) -> int:
    """Take the lease and return its number; wait while another client holds it."""
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            return int(call("/do/take", {"owner": owner})["done"])
        except BlockingIOError as error:
            if time.monotonic() > deadline_s:
                sys.exit(f"slurm_slice: {error}")
            time.sleep(1.0)


def hosts() -> list[str]:
    """Return the hosts of the job, in rank order."""
    command = ["scontrol", "show", "hostnames", os.environ["SLURM_JOB_NODELIST"]]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def ring(ports: Mapping[str, Mapping[str, str]], names: list[str]) -> list[str]:
    """Return the cross-connects from each host to the next one, by the labels of the ports."""
    first: dict[tuple[str, str], str] = {}
    for port_id, port in ports.items():
        first.setdefault((port["label"], port_id[-1]), port_id)
    missing = [name for name in names if (name, "A") not in first or (name, "B") not in first]
    if missing:
        sys.exit(f"slurm_slice: no port has the label {missing[0]}; label an A-side and a B-side port with this name")
    return [f"{first[one, 'A']}-{first[two, 'B']}" for one, two in zip(names, [*names[1:], names[0]], strict=True)]


def main() -> None:
    """Connect the hosts of the job, or disconnect them in the epilog."""
    config, names = call("/ocs/config"), hosts()
    wanted = ring(config["OCS_PORT"], names) if len(names) > 1 else []
    change: dict[str, Any] = {"mode": "safe", "OCS_CROSS_CONNECT": {name: {} for name in wanted}}
    if os.environ["SLURM_SCRIPT_CONTEXT"].startswith("epilog"):
        change = {"delete": [name for name in wanted if name in config["OCS_CROSS_CONNECT"]]}
    lease = take_lease(f"slurm-job-{os.environ['SLURM_JOB_ID']}")
    try:
        difference = call("/ocs/config", {**change, "lease": lease})
    finally:
        call("/do/release", {"lease": lease})
    print(f"slurm_slice: connected {len(difference['connected'])}, disconnected {len(difference['removed'])} circuits")


if __name__ == "__main__":
    main()
