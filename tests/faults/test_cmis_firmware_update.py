"""The driver updates the firmware of an emulated module: whole, with power lost on the way, and rolled back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lumion_hw.bench.bench import Bench
from lumion_hw.drivers.transponders.cmis.driver import CmisTransponder
from lumion_hw.emulator.transponders.cmis.cdb import firmware_image
from lumion_hw.errors import DeviceError, LumionError

EVERY_KIND = Path(__file__).parents[1] / "data" / "every_kind.yaml"
PAIR = Path(__file__).parents[1] / "data" / "zr_pair.yaml"
NEW = (2, 0, 7)
PASSWORD = 0x00001011


@pytest.fixture(params=[EVERY_KIND, PAIR], ids=["400zr", "zr-plus"])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    with Bench.emulate(request.param, seed=1, only=["zr-a"]) as bench:
        yield bench


def module_of(bench: Bench) -> CmisTransponder:
    module = bench.transponders["zr-a"]
    assert isinstance(module, CmisTransponder)
    module.enter_password(PASSWORD)
    return module


def versions(module: CmisTransponder) -> dict[str, tuple[tuple[int, int, int], bool, bool, bool]]:
    """Version, running, committed, valid of each bank."""
    images = module.firmware()
    return {
        bank: ((image.major, image.minor, image.build), image.running, image.committed, image.valid)
        for bank, image in zip("AB", images, strict=True)
        if image is not None
    }


def test_an_update_from_the_file_to_the_commitment(bench: Bench) -> None:
    module = module_of(bench)
    told: list[int] = []
    module.download_firmware(firmware_image(*NEW, size=3000), lambda done, of: told.append(done * 100 // of))
    assert told == sorted(told)
    assert told[-1] == 100
    module.run_firmware()
    module.enter_password(PASSWORD)
    assert versions(module)["B"] == (NEW, True, False, True)
    module.commit_firmware()
    assert versions(module)["B"] == (NEW, True, True, True)


def test_power_lost_in_the_middle_of_a_download_is_told_and_the_old_firmware_starts(bench: Bench) -> None:
    module, faults = module_of(bench), bench.emulated.faults
    before = versions(module)["A"]

    def progress(done: int, of: int) -> None:
        if done > of // 2:
            faults.inject("zr-a", "module_dead")

    with pytest.raises(LumionError):
        module.download_firmware(firmware_image(*NEW, size=3000), progress)
    faults.end("zr-a", "module_dead")
    bench.clock.sleep(2.0)
    module.close()
    module.open()
    module.enter_password(PASSWORD)
    assert versions(module)["A"] == before
    assert not versions(module).get("B", (None, False, False, False))[3]
    module.download_firmware(firmware_image(*NEW, size=3000))
    assert versions(module)["B"] == (NEW, False, False, True)


def test_a_damaged_file_is_refused_and_nothing_of_it_runs(bench: Bench) -> None:
    module = module_of(bench)
    file = bytearray(firmware_image(*NEW, size=3000))
    file[2000] ^= 1
    with pytest.raises(DeviceError):
        module.download_firmware(bytes(file))
    with pytest.raises(DeviceError):
        module.run_firmware()
    assert versions(module)["A"][1:] == (True, True, True)
