from .commands import (
    Call as Call,
    Form as Form,
    PendingReply as PendingReply,
    Profile as Profile,
    Reply as Reply,
    ScpiCommand as ScpiCommand,
    Value as Value,
    action as action,
    event as event,
    query as query,
)
from .errors import NotApplied as NotApplied, ScpiError as ScpiError
from .instrument import ScpiDevice as ScpiDevice, ScpiInstrument as ScpiInstrument
from .parameters import (
    Boolean as Boolean,
    Choice as Choice,
    IndexedChoice as IndexedChoice,
    LimitName as LimitName,
    Numeric as Numeric,
    ScpiBlock as ScpiBlock,
    Text as Text,
    flag_attribute as flag_attribute,
    flag_setting as flag_setting,
    number_attribute as number_attribute,
    number_setting as number_setting,
    word_setting as word_setting,
)
from .standard import group_commands as group_commands
from .state import InstrumentState as InstrumentState, Operation as Operation, RegisterGroup as RegisterGroup
from .tree import SuffixRange as SuffixRange, Tree as Tree
