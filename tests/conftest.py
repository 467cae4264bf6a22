"""For all tests: a clock, Ctrl-C works, what many need is computed once, what a test waits for comes or it fails."""

from __future__ import annotations

import gc
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Generator, Iterator

import pytest
from hypothesis import HealthCheck, settings

from lumion_hw.clock import VirtualClock
from tests.effort import LONGEST_FIRST, TIMES
from tests.remembered_files import remember_files
from tests.remembered_fits import remember_fits
from tests.waiting import PATIENCE_S, Bound

gc.disable()  # until the tests are collected, below

# How long an example takes is no judgement: machines are slow and busy. `make test` draws the same examples each time,
# the others draw new ones.
EVERY = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
for name, share in TIMES.items():
    settings.register_profile(name, EVERY, derandomize=name == "test", max_examples=round(100 * share))
settings.load_profile("test")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None, object, object]:
    """Whoever asks for what is not long does not get a campaign; workers get the longest modules first."""
    for item in items:
        if item.get_closest_marker("campaign"):
            item.add_marker("long")
    try:
        return (yield)
    finally:
        if hasattr(config, "workerinput"):
            _put_longest_first(items)


def _put_longest_first(items: list[pytest.Item]) -> None:
    rank = {f"tests/{module}": number - len(LONGEST_FIRST) for number, module in enumerate(LONGEST_FIRST)}
    modules = [item.nodeid.partition("::")[0] for item in items]
    n_tests = Counter(modules)
    order = {module: (rank.get(module, 0), -n_tests[module], number) for number, module in enumerate(modules)}
    items.sort(key=lambda item: order[item.nodeid.partition("::")[0]])


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Search for garbage again once all tests are collected: next to nothing of the million objects made is any."""
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Spare every search for garbage the ten thousand tests, which stay until the end, and search less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)


@pytest.fixture(scope="session", autouse=True)
def computed_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        remember_fits(patch)
        remember_files(patch)
        yield


def pytest_configure() -> None:
    """Let processes of the tests hear Ctrl-C also where a shell has started pytest in the background, deaf to it."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def clock() -> VirtualClock:
    """Time that passes only when somebody sleeps; the devices and drivers of one test share it."""
    return VirtualClock()


@pytest.fixture
def not_for_ever() -> Iterator[Bound]:
    """Kill a process when the test is over, or has waited too long for it: reading from it ends then."""
    processes: list[subprocess.Popen[str]] = []
    timers: list[threading.Timer] = []

    def bound(process: subprocess.Popen[str]) -> None:
        processes.append(process)
        timers.append(threading.Timer(PATIENCE_S, process.kill))
        timers[-1].daemon = True
        timers[-1].start()

    yield bound
    for timer in timers:
        timer.cancel()
        timer.join()
    for process in processes:
        process.kill()
        process.wait(PATIENCE_S)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
