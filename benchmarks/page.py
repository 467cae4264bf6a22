"""Cost of the web page of a served bench: 50 states per second of 72 PUCs, with one and twenty pages, and loading.

    .venv/bin/python benchmarks/page.py [--seconds 20]
    .venv/bin/python benchmarks/page.py pictures --record RECORD [--out docs/img]

A process publishes states like the owner of the built-in bench, with every value changed in each state: all 144
heaters, all readings of modules and meter, the heat of all PUCs, six circuits. The cost of the page is the difference
to the same process without a page. Pages are sockets that read everything; with Chromium and its driver installed, a
real page is opened as well.

The pictures are for the documentation: the emulated built-in bench, served with its record, a minute after one server
was replaced, and a minute after the start of a calibration. `lumion-calibrate run lumion-prototype --emulate --out
RECORD` makes the record.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import http.client
import itertools
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

BENCH, RATE_PER_S, PUCS_A_PATH = "lumion-prototype", 50.0, 12


class Publisher:
    """Publishes states of a bench like its owner, at a given rate."""

    def __init__(self) -> None:
        import numpy as np

        from lumion_hw.bench.bench import load
        from lumion_hw.serving import state as served
        from lumion_hw.serving.history import ReadingHistory
        from lumion_hw.serving.owner import Subscription

        model = load(BENCH)
        self.bench = SimpleNamespace(
            model=model, wiring=model.to_wiring(), mesh=SimpleNamespace(topology=model.topology())
        )
        self.history: tuple[Any, ...] = ()
        self.readings_history = ReadingHistory()
        self._served, self._subscription, self._rng = served, Subscription, np.random.default_rng(1)
        self._subscriptions: list[Any] = []
        names = [f"mesh0.heater_ma.{each}" for each in range(144)] + [f"meter0.power.{each}" for each in range(1, 9)]
        for module in (name for name in model.devices if name.startswith("sfp-")):
            names += [f"{module}.{each}" for each in ("temperature_c", "supply_v", "tx_bias_ma", "rx_power_dbm")]
        self._names = names
        states = dict.fromkeys(range(72), "bar")
        traces = [self.bench.mesh.topology.trace(port, states) for port in range(0, 12, 2)]
        self._paths = [
            (f"a{number}:b{number}", each.pucs[:PUCS_A_PATH]) for number, each in enumerate(traces) if each.pucs
        ]
        self._states, self._number = states, 0
        self.state = self._made()

    def _made(self) -> Any:
        served, now_s = self._served, time.time()
        self._number += 1
        values = self._rng.normal(size=len(self._names)).tolist()
        points = {
            name: served.Point(name, value, "mA", time_s=now_s) for name, value in zip(self._names, values, strict=True)
        }
        paths = tuple(served.ServedPath(name, 0, 1, pucs, (-3.0,) * (len(pucs) + 1)) for name, pucs in self._paths)
        circuits = tuple(
            served.ServedCircuit(
                name, "a", "b", 0.0, now_s, None, now_s, {"margin_db": values[0]}, None, (), "", served.AlarmSeverity(0)
            )
            for name, _ in self._paths
        )
        heat_mw = tuple(abs(each) for each in values[:72])
        mesh = served.ServedMesh(self._states, heat_mw, frozenset(), frozenset(), paths)
        health = served.ServedHealth(0.0, {}, "circuits")
        lease = served.ServedLease()
        return served.ServedState(
            number=self._number,
            time_s=now_s,
            bench=BENCH,
            points=points,
            mesh=mesh,
            circuits=circuits,
            events=(),
            job=None,
            lease=lease,
            health=health,
            is_emulated=True,
        )

    def subscribe(self) -> Any:
        """Return a mailbox for the newest state, like an owner."""
        subscription = self._subscription(self.state, lambda gone: None)
        self._subscriptions.append(subscription)
        return subscription

    def run(self) -> None:
        """Publish until the process is ended."""
        began_s = time.monotonic()
        for number in itertools.count(1):
            time.sleep(max(began_s + number / RATE_PER_S - time.monotonic(), 0.0))
            self.state = self._made()
            self.readings_history.add(self.state.time_s, self.state.points)
            for each in self._subscriptions:
                each.publish(self.state)


def publish(page: bool) -> None:
    """Run as the measured process: print the port of the page and publish until stdin ends."""
    publisher: Any = Publisher()
    threading.Thread(target=publisher.run, daemon=True).start()
    address = ""
    if page:
        from lumion_hw.serving.page.server import PageServer

        address = PageServer(publisher).address
    print(address, flush=True)
    sys.stdin.read()


class Measured:
    """The process that is measured."""

    def __init__(self, page: bool) -> None:
        command = [sys.executable, __file__, "publish" if page else "publish-alone"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self._process.stdout is None:
            raise RuntimeError("no pipe")
        self.address = self._process.stdout.readline().strip()
        self.host, _, self.port = self.address.removeprefix("http://").strip("/").rpartition(":")

    def cpu_s(self) -> float:
        """Return the CPU time of the process."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / 100.0

    def resident_mb(self) -> float:
        """Return the resident memory of the process."""
        return int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]) * 4096 / 1e6

    def close(self) -> None:
        """End it."""
        self._process.communicate("")


class Page(threading.Thread):
    """A client of the page that reads all events."""

    def __init__(self, measured: Measured) -> None:
        super().__init__(daemon=True)
        self._socket = socket.create_connection((measured.host, int(measured.port)))
        self._socket.sendall(f"GET /events HTTP/1.1\r\nHost: localhost:{measured.port}\r\n\r\n".encode())
        self.n_updates = self.n_bytes = 0

    def run(self) -> None:
        """Read until the server ends."""
        while chunk := self._socket.recv(1 << 20):
            self.n_bytes += len(chunk)
            self.n_updates += chunk.count(b'data: {"previous"')


def cost(measured: Measured, n_pages: int, seconds: float) -> tuple[float, float, list[Page], list[int]]:
    """Return the CPU load in percent, memory in MB, and the pages with their numbers of updates."""
    pages = [Page(measured) for _ in range(n_pages)]
    for page in pages:
        page.start()
    time.sleep(3.0)
    before, began_s, cpu_s = [page.n_updates for page in pages], time.monotonic(), measured.cpu_s()
    time.sleep(seconds)
    took_s = time.monotonic() - began_s
    share = 100.0 * (measured.cpu_s() - cpu_s) / took_s
    rates = [round((page.n_updates - was) / took_s, 1) for page, was in zip(pages, before, strict=True)]
    return share, measured.resident_mb(), pages, rates  # type: ignore[return-value]


def load_sizes(measured: Measured) -> tuple[int, int]:
    """Return the bytes that a page loads, uncompressed and as sent to a browser."""
    from lumion_hw.serving.page.static_files import STATIC

    plain = packed = 0
    for path in [*STATIC, "/mesh.svg", "/margins"]:
        connection = http.client.HTTPConnection(measured.host, int(measured.port))
        connection.request("GET", path, headers={"Accept-Encoding": "gzip", "Host": f"localhost:{measured.port}"})
        answer = connection.getresponse()
        body = answer.read()
        packed += len(body)
        plain += len(gzip.decompress(body) if answer.getheader("Content-Encoding") == "gzip" else body)
        connection.close()
    return plain, packed


def counters(driver: Any) -> dict[str, float]:
    """Return Chromium's performance counters of a page, by name."""
    return {each["name"]: each["value"] for each in driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]}


def in_chromium(measured: Measured, seconds: float) -> str:
    """Return the updates per second in a real browser, and the work per update."""
    if shutil.which("chromium") is None or shutil.which("chromedriver") is None:
        return "no Chromium here"
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests.serving.chromium import browser

    with tempfile.TemporaryDirectory() as profile, browser(Path(profile)) as driver:
        began_s = time.monotonic()
        driver.get(measured.address)
        while driver.execute_script("return document.body.dataset.live") != "live":
            time.sleep(0.05)
        live_s = time.monotonic() - began_s
        time.sleep(2.0)
        counts = "return ['number', 'missed'].map((id) => parseInt(document.getElementById(id).textContent))"
        driver.execute_cdp_cmd("Performance.enable", {})
        first, before, began_s = driver.execute_script(counts), counters(driver), time.monotonic()
        time.sleep(seconds)
        last, after, took_s = driver.execute_script(counts), counters(driver), time.monotonic() - began_s
        missed = last[1] - first[1]
        taken = last[0] - first[0] - missed
        work_ms = 1e3 * (after["TaskDuration"] - before["TaskDuration"]) / max(taken, 1)
        heap_mb = after["JSHeapUsedSize"] / 1e6
    text = f"live after {live_s:.1f} s; {taken / took_s:.1f} states/s taken, {missed / took_s:.1f} missed"
    return f"{text}; {work_ms:.1f} ms of work for each, {heap_mb:.0f} MB of heap"


PICTURES = (
    ("page.png", "", 1440, 1400, "light"),
    ("page-dark.png", "", 1440, 900, "dark"),
    ("page-device.png", "#device/sfp-s1n0", 1440, 900, "dark"),
    ("page-phone.png", "", 390, 844, "light"),
)
"""Name, part of the page, width and height in px, and theme of each picture."""


def pictures(record: Path, folder: Path, after_s: float) -> None:
    """Draw the page of the built-in bench after a recovery and in a calibration; report what is wrong with them."""
    with served("--record", str(record)) as (address, value, call):
        while value("health:keeps") != "fabric":
            time.sleep(0.5)
        time.sleep(after_s)
        call("lease:take", owner="ada", for_s="600")
        call("fail", unit="server0", because="power supply pulled")
        time.sleep(after_s)
        for name, part, width, height, theme in PICTURES:
            photograph(address + part, folder / name, width, height, theme)
    with served("--no-fabric") as (address, _, call):
        call("lease:take", owner="ada", for_s="600")
        threading.Thread(target=call, args=("calibrate",), daemon=True).start()  # it returns at the end
        time.sleep(after_s)
        photograph(address, folder / "page-calibration.png", 1440, 900, "dark")


@contextlib.contextmanager
def served(*options: str) -> Iterator[tuple[str, Callable[[str], Any], Callable[..., Any]]]:
    """Serve the emulated built-in bench; yield its page, a function that reads a value, and one that calls."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from p4p.client.thread import Context
    from p4p.nt import NTURI

    from lumion_hw.remote.pv_names import client_conf, parse_address

    command = [sys.executable, "-m", "lumion_hw.cli", "serve", BENCH, "--emulate", "--json", *options]
    command += ["--pva", "--pva-port", "0", "--page", "--page-port", "0", "--page-writes"]
    with (
        tempfile.TemporaryDirectory() as state,
        subprocess.Popen([*command, "--state", state], stdout=subprocess.PIPE, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            addresses = json.loads(process.stdout.readline())
            with Context("pva", conf=client_conf(*parse_address(addresses["pva"])), useenv=False) as context:

                def value(name: str) -> Any:
                    return getattr(context.get(f"{BENCH}:{name}"), "raw", {}).get("value")

                def call(name: str, **arguments: str) -> Any:
                    uri = NTURI([(key, "s") for key in arguments])
                    return context.rpc(f"{BENCH}:{name}", uri.wrap(name, kws=arguments), timeout=300.0)

                yield addresses["page"], value, call
        finally:
            process.terminate()


def photograph(address: str, out: Path, width: int, height: int, theme: str) -> None:
    """Save a picture of a page and print what is wrong with it."""
    from PIL import Image

    from tests.serving.chromium import browser, complaints

    with tempfile.TemporaryDirectory() as profile, browser(Path(profile), width, height) as driver:
        feature = {"name": "prefers-color-scheme", "value": theme}
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        driver.get(address)
        wrong = ["not looked at"]
        for _ in range(10):  # a busy machine delays readings now and then
            if not wrong:
                break
            time.sleep(6.0)
            driver.save_screenshot(str(out))
            text = driver.find_element("tag name", "body").text
            wrong = [word for word in ("STALE", "SILENT", "WAITING", "not answer") if word in text]
        few_colours = (
            Image.open(out).convert("RGB").quantize(256, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        )
        few_colours.save(out, optimize=True)
        wrong += complaints(driver)
    print(f"{out}: {'not fit: ' + ', '.join(wrong) if wrong else 'look at it'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "what", nargs="?", default="measure", choices=["measure", "publish", "publish-alone", "pictures"]
    )
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--record", type=Path, help="Calibration record of the built-in bench, for the pictures.")
    parser.add_argument("--out", type=Path, default=Path("docs/img"), help="Folder for the pictures.")
    options = parser.parse_args()
    if options.what == "pictures":
        pictures(options.record, options.out, 60.0)
        return
    if options.what != "measure":
        publish(options.what == "publish")
        return
    without_page = Measured(page=False)
    share, memory_mb, _, _ = cost(without_page, 0, options.seconds)
    without_page.close()
    print(f"publishing alone      {share:5.1f} % of a core  {memory_mb:6.1f} MB")
    for n_pages in (0, 1, 20):
        measured = Measured(page=True)
        more, more_mb, pages, rates = cost(measured, n_pages, options.seconds)
        rates_text = f"{min(rates):.1f} to {max(rates):.1f} updates/s" if rates else ""
        size = f"of {pages[0].n_bytes / max(pages[0].n_updates, 1) / 1e3:.1f} kB" if pages else ""
        extra_text = f"{more - share:5.1f} % of a core  {more_mb - memory_mb:6.1f} MB"
        print(f"with {n_pages:2d} pages, beyond  {extra_text}  {rates_text} {size}")
        if n_pages == 1:
            plain, packed = load_sizes(measured)
            print(f"loading it            {plain / 1e3:.1f} kB, {packed / 1e3:.1f} kB as sent")
            print(f"in Chromium           {in_chromium(measured, 10.0)}")
        measured.close()


if __name__ == "__main__":
    main()
