"""Opening a CMIS module from many threads: each opening, and each change of the module, has the driver to itself."""

from __future__ import annotations

from cmis_peer import Peer
from one_at_a_time import Interleaved, Yielding

from lumion_hw.clock import VirtualClock
from lumion_hw.drivers.transponders.cmis import CmisTransponder


def test_threads_open_it_one_after_the_other(clock: VirtualClock) -> None:
    threads = Interleaved()
    driver = CmisTransponder(Yielding(threads, Peer(clock)), clock=clock, device="zr1")
    threads.run(*[driver.open] * 3)
    threads.assert_one_at_a_time()


def test_it_is_not_opened_anew_while_another_thread_changes_it(clock: VirtualClock) -> None:
    threads = Interleaved()
    driver = CmisTransponder(Yielding(threads, Peer(clock)), clock=clock, device="zr1")
    driver.open()
    threads.run(lambda: driver.set_loopback("media_input", on=True), driver.open)
    threads.assert_one_at_a_time()
