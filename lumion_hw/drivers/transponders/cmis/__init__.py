"""Driver of CMIS and C-CMIS modules, such as QSFP-DD and OSFP, over I2C, a memory file or a memory dump."""

from lumion_hw.drivers.transponders.cmis.context import Quirks
from lumion_hw.drivers.transponders.cmis.data_paths import DataPath
from lumion_hw.drivers.transponders.cmis.driver import CmisTransponder
from lumion_hw.drivers.transponders.cmis.path_driver import ModulePath
from lumion_hw.drivers.transponders.cmis.snapshots import Difference, differences

__all__ = ["CmisTransponder", "DataPath", "Difference", "ModulePath", "Quirks", "differences"]
