"""The contract suites over PV Access: a driver behind a served bench keeps the same promises as one in the process."""

from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from tests.contract import (
    test_contract_coherent,
    test_contract_light_instruments,
    test_contract_line_server,
    test_contract_mesh_controller,
    test_contract_polarization,
    test_contract_polarization_instruments,
    test_contract_power_meter,
    test_contract_transponder,
    test_contract_tunable_laser,
)
from tests.serving.bare import BareServer


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BareServer]:
    served = BareServer(tmp_path_factory.mktemp("served"))
    yield served
    served.close()


FAST = (test_contract_mesh_controller.TestLumionMeshController,)


class OverPva:
    """Puts a served bench between a suite and its driver."""

    wires: ClassVar[tuple[str, ...]] = ()  # in memory: what wires do is proven without a server between

    @pytest.fixture
    def driver(self, local_driver: Any, server: BareServer) -> Any:
        return server.stand_in(local_driver)


def _served(local: type, name: str) -> type:
    """Return a suite over PV Access; its fixtures that look past the driver go on looking at the driver itself.

    The stand-ins are made by one function for all interfaces: controller and meter tell whether it is right, the others
    whether each interface fits it.
    """
    return pytest.mark.long(_suite(local, name)) if local not in FAST else _suite(local, name)


def _suite(local: type, name: str) -> type:
    return type(name, (OverPva, local), {"local_driver": local.driver, "__test__": True})  # type: ignore[attr-defined]


TestServedController = _served(test_contract_mesh_controller.TestLumionMeshController, "TestServedController")
TestServedMesh = _served(test_contract_line_server.TestLineServerMesh, "TestServedMesh")
TestServedSfp = _served(test_contract_transponder.TestSfpPlus, "TestServedSfp")
TestServedCoherentModule = _served(test_contract_coherent.TestEmulatedModule, "TestServedCoherentModule")
TestServedLaser = _served(test_contract_tunable_laser.TestKeysightN7776C, "TestServedLaser")
TestServedPolarization = _served(test_contract_polarization.TestOzEpc04, "TestServedPolarization")
TestServedOptimizer = _served(test_contract_polarization_instruments.TestKeysightN7785C, "TestServedOptimizer")
TestServedPolarimeter = _served(
    test_contract_polarization_instruments.TestNovoptelPm1000OverLan, "TestServedPolarimeter"
)
TestServedAttenuator = _served(test_contract_light_instruments.TestKeysightN7764A, "TestServedAttenuator")
TestServedSwitch = _served(test_contract_light_instruments.TestPolatis, "TestServedSwitch")
TestServedAmplifier = _served(test_contract_light_instruments.TestAmonicsAedfa, "TestServedAmplifier")
TestServedAnalyzer = _served(test_contract_light_instruments.TestYokogawaAq6370D, "TestServedAnalyzer")
TestServedTemperature = _served(test_contract_light_instruments.TestArroyoTec, "TestServedTemperature")


class TestServedMeter(OverPva, test_contract_power_meter.TestKeysightN7744A):
    local_driver = test_contract_power_meter.TestKeysightN7744A.driver

    @pytest.fixture
    def active_wavelength_nm(self, local_driver: Any) -> Any:
        return local_driver.wavelength_nm
