from .framed.session import FramedSession as FramedSession
from .lines import LineSession as LineSession, OneLineSession as OneLineSession
from .module.adapter import (
    AdapterRegisters as AdapterRegisters,
    I2cAdapter as I2cAdapter,
    PinnedAdapter as PinnedAdapter,
)
from .module.adapter_libraries import (
    FtdiAdapter as FtdiAdapter,
    Mcp2221Adapter as Mcp2221Adapter,
    SmbusAdapter as SmbusAdapter,
)
from .module.linear_file import LinearFile as LinearFile, LinearPages as LinearPages
from .module.paged_i2c import BridgedI2c as BridgedI2c, PagedI2c as PagedI2c
from .module.pages import (
    ImagePages as ImagePages,
    ModulePages as ModulePages,
    PageNotSupportedError as PageNotSupportedError,
)
from .module.registers import (
    I2cDevice as I2cDevice,
    ModuleAbsentError as ModuleAbsentError,
    NotRespondingError as NotRespondingError,
    RegisterAccess as RegisterAccess,
    ShortReadError as ShortReadError,
)
from .module.sc18im700 import Sc18im700 as Sc18im700
from .scpi import ScpiSession as ScpiSession
