"""Pages 16h (control and status) and 17h (flags and masks) of network paths: the media side of multiplexing modules.

OIF-CMIS-05.3 clause 8.16, as three public implementations agree on it. They disagree on the bits of the network path
id in bytes 16h:128-143 and 16h:192-199 (7-4 or 3-1), which are therefore not decoded.
"""

from __future__ import annotations

from lumion_hw.standards.cmis.fields import LANES, Field, bit, lane_bits
from lumion_hw.standards.cmis.lane_pages import HOST
from lumion_hw.standards.registers import Access, Array, NumberFormat

_CONTROL = 0x16
_FLAGS = 0x17
_SUPPORT = "network_path_pages_supported"


def _in_use(name: str, byte: int, access: Access) -> Field:
    return Field(
        f"network_path_{name}_in_use",
        _CONTROL,
        byte,
        (0, 0),
        kind=NumberFormat.BOOL,
        access=access,
        array=Array(HOST, LANES, 8),
        support=_SUPPORT,
    )


def _lanes(name: str, page: int, byte: int, access: Access) -> Field:
    return lane_bits(name, page, byte, HOST, access=access, support=_SUPPORT)


def _duration(name: str, byte: int, bits: tuple[int, int]) -> Field:
    return Field(name, _CONTROL, byte, bits, support=_SUPPORT, note="duration code: codec.duration_s")


def _code(name: str, byte: int, codes: str) -> Field:
    array = Array(HOST, LANES, 4)
    return Field(name, _CONTROL, byte, (3, 0), kind=NumberFormat.ENUM, codes=codes, array=array, support=_SUPPORT)


PAGE_16H: tuple[Field, ...] = (
    _in_use("staged_0", 128, Access.RW),
    _in_use("staged_1", 136, Access.RW),
    _lanes("network_path_deinit", _CONTROL, 160, Access.RW),
    _lanes("rx_host_path_replaced", _CONTROL, 162, Access.RW),
    _lanes("tx_network_path_replaced", _CONTROL, 163, Access.RW),
    _lanes("network_path_staged_0_apply", _CONTROL, 176, Access.WO),
    _lanes("network_path_staged_1_apply", _CONTROL, 177, Access.WO),
    _code("network_path_config_status", 178, "network_path_config_status"),
    _in_use("active", 192, Access.RO),
    _code("network_path_state", 200, "data_path_state"),
    _lanes("network_path_init_pending", _CONTROL, 204, Access.RO),
    _duration("max_duration_network_path_init", 224, (3, 0)),
    _duration("max_duration_network_path_deinit", 224, (7, 4)),
    _duration("max_duration_network_path_tx_turn_on", 225, (3, 0)),
    _duration("max_duration_network_path_tx_turn_off", 225, (7, 4)),
    bit("rx_host_path_replacement_supported", _CONTROL, 226, 0, support=_SUPPORT),
    bit("tx_network_path_replacement_supported", _CONTROL, 226, 1, support=_SUPPORT),
)

PAGE_17H: tuple[Field, ...] = (
    _lanes("network_path_state_changed_flag", _FLAGS, 128, Access.COR),
    _lanes("network_path_state_changed_mask", _FLAGS, 192, Access.RW),
)
