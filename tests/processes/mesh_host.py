"""A host program of the kind a bench runs for days: attaches to a mesh controller, drives it, tells what happens.

Started as a process of its own by the tests beside it. Every line it prints is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
import warnings

import numpy as np

from lumion_hw.clock import SystemClock
from lumion_hw.drivers.mesh.lumion.controller import LumionMeshController
from lumion_hw.drivers.mesh.lumion.reconnect import LinkEvent, ReconnectPolicy
from lumion_hw.drivers.mesh.lumion.safety import safe_on_signals
from lumion_hw.errors import LinkError, LumionError, exit_code
from lumion_hw.interfaces import ControllerLimits
from lumion_hw.links.address import open_link


def say(**what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def heard(event: LinkEvent) -> None:
    found = event.attachment
    say(link=event.kind.value, text=event.text, table=found.table if found else None)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("act", choices=["idle", "busy", "leave", "raise", "persist", "stop", "forget", "fork"])
    parser.add_argument("--level-ma", type=float, default=1.0)
    parser.add_argument("--watchdog-s", type=float, default=30.0)
    parser.add_argument("--hold-s", type=float, default=0.0)
    parser.add_argument("--take-over", action="store_true")
    parser.add_argument("--reconnect", action="store_true")
    return parser.parse_args()


def fork(driver: LumionMeshController, table: np.ndarray) -> None:
    """Let children try the driver and end in several ways; then go on."""
    for way in ("sys.exit", "return", "multiprocessing"):
        if way == "multiprocessing":
            worker = multiprocessing.get_context("fork").Process(target=try_all, args=(driver, table))
            worker.start()
            worker.join()
            say(way=way, code=worker.exitcode)
            continue
        child = os.fork()
        if not child:
            try_all(driver, table)
            if way == "sys.exit":
                sys.exit(0)
            return  # out of the `with` of the parent's driver, and of the interpreter
        say(way=way, code=os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    say(after=driver.program(2.0 * table).crc32)


def try_all(driver: LumionMeshController, table: np.ndarray) -> None:
    calls = (lambda: driver.program(3.0 * table), driver.read_back, lambda: driver.outputs_off(1.0), driver.open)
    for call in calls:
        try:
            call()
        except LumionError as error:
            say(child=type(error).__name__)


def drive(driver: LumionMeshController, options: argparse.Namespace) -> None:
    n = driver.info.n_heaters
    driver.configure(ControllerLimits(np.full(n, 5.0), np.full(n, 10.0), 4000.0, watchdog_s=options.watchdog_s))
    table = np.full(n, options.level_ma)
    say(driving=driver.program(table).crc32)
    if options.act in ("leave", "forget"):
        return
    if options.act == "fork":
        fork(driver, table)
        return
    if options.act == "raise":
        raise RuntimeError("the control loop failed")
    step = 0
    # A host program lives on the wall clock: it looks for signals, and tries again after an error, 20 times a second.
    while True:
        step += 1
        if options.act == "idle":
            time.sleep(0.05)
            continue
        table[0] = options.level_ma + 1e-3 * (step % 1000)
        try:
            receipt = driver.program(table)
        except LinkError as error:
            if options.act != "persist":
                raise
            say(failed=type(error).__name__, text=str(error))
            time.sleep(0.05)
        else:
            if options.act == "persist":
                say(crc32=receipt.crc32)
                time.sleep(0.01)


def main() -> int:
    options = arguments()
    if options.act == "fork":
        warnings.simplefilter("ignore", DeprecationWarning)  # from 3.12 on: fork in a process with threads
    clock = SystemClock()
    driver = LumionMeshController(
        open_link(options.address, clock),
        clock,
        device="mesh0",
        take_over=options.take_over,
        on_exit="hold" if options.hold_s else "off",
        hold_s=options.hold_s,
        reconnect=ReconnectPolicy() if options.reconnect else None,
        on_link=heard,
    )
    try:
        if options.act == "stop":  # a button: no session, no configuration
            driver.outputs_off(timeout_s=5.0)
            return 0
        if options.act == "forget":
            driver.open()
            drive(driver, options)
            return 0
        with safe_on_signals(), driver:
            drive(driver, options)
    except LumionError as error:
        say(error=type(error).__name__, text=str(error))
        return exit_code(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
