"""What crosses to a served bench arrives as it was: values of the interfaces, and errors as the classes they are."""

import dataclasses
import json
import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from lumion_hw import errors, interfaces
from lumion_hw.errors import (
    ConfigError,
    ConfigRejectedError,
    DeviceError,
    FrameError,
    LimitError,
    LinkTimeout,
    LumionError,
    NoPathError,
    UnknownNameError,
    VerifyError,
)
from lumion_hw.interfaces import (
    Fault,
    LaserState,
    LightThreshold,
    LockReport,
    LockStage,
    PowerLog,
    PowerReading,
    RangeState,
    SweepPlan,
)
from lumion_hw.remote.codec import decode_error, decode_received, encode, encode_error


def there_and_back(value):
    return decode_received(json.loads(json.dumps(encode(value), allow_nan=False)))


@pytest.mark.parametrize(
    "value",
    [
        None, True, 0, -1.5, "text", "", (1, (2, "x")), [1, [2.5]], {3: 1.5, "a": None}, frozenset({1, 2}),
        math.inf, -math.inf, -0.0, 5e-324, 2**53 + 1,
        RangeState.UNDER, LightThreshold(3, 0.1, 0.2, 0.05),
        PowerReading(1, RangeState.OK, 12.5, 1e-6), PowerReading(2, RangeState.OVER, 12.5),
        LaserState(True, False, 193.1, 6.0, None, ("hot",), 3.25),
        LockReport(LockStage.RX_LOS, "dark", lane=2, values={"rx_power_dbm": -31.0}, stages=((LockStage.LOCKED, 1.0),)),
        Fault(3, "WATCHDOG", latched=True, present=False, extra={"at": 5}),
    ],
)  # fmt: skip
def test_a_value_arrives_as_it_left(value) -> None:
    arrived = there_and_back(value)
    assert arrived == value
    assert type(arrived) is type(value)


def test_what_is_no_number_stays_none() -> None:
    assert math.isnan(there_and_back(math.nan))
    assert math.copysign(1.0, there_and_back(-0.0)) == -1.0


@given(st.lists(st.floats(width=64), max_size=50))
def test_an_array_keeps_every_bit(values) -> None:
    array = np.array(values, dtype=np.float64)
    arrived = there_and_back(array)
    assert arrived.dtype == np.float64
    np.testing.assert_array_equal(arrived, array)


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((2, 3)), np.array([[True, False]]), np.arange(3), np.array(["a", "bc"]), np.array([1j, 2.0]),
        np.array([[RangeState.OK, RangeState.OVER]], dtype=object), np.zeros((0, 4)), np.array(3.5),
    ],
)  # fmt: skip
def test_an_array_keeps_type_and_shape(array) -> None:
    arrived = there_and_back(array)
    assert arrived.shape == array.shape
    assert arrived.dtype.kind == array.dtype.kind
    assert arrived.tolist() == array.tolist()


def test_masked_values_stay_masked_so_that_a_driver_can_refuse_them() -> None:
    arrived = there_and_back(np.ma.array([1.0, 2.0], mask=[False, True]))
    assert isinstance(arrived, np.ma.MaskedArray)
    assert arrived.mask.tolist() == [False, True]


def test_plans_and_logs_with_arrays_inside_arrive_whole() -> None:
    plan = SweepPlan(({0: 1.0}, {5: 0.5}), start_ma=np.arange(3.0), monitors=(1, 4))
    arrived = there_and_back(plan)
    assert (arrived.points, arrived.monitors, arrived.start_ma.tolist()) == (plan.points, (1, 4), [0.0, 1.0, 2.0])
    log = PowerLog(
        (1,), np.array([[1e-6, np.nan]]), np.array([[RangeState.OK, RangeState.OVER]], dtype=object), 0.1, 3.0
    )
    assert there_and_back(log).state.tolist() == [[RangeState.OK, RangeState.OVER]]


def test_every_value_type_of_the_interfaces_can_cross() -> None:
    """None of them has a field of a kind that the table of types does not know by its annotation."""
    known = {name for name in interfaces.__all__ if dataclasses.is_dataclass(getattr(interfaces, name))}
    assert len(known) > 20
    for name in known:
        cls = getattr(interfaces, name)
        made = cls(**{each.name: None for each in dataclasses.fields(cls)}) if name != "CircuitRequest" else None
        assert type(there_and_back(made)) is cls


@pytest.mark.parametrize(
    "document",
    [
        {"$": "os.system", "items": ["true"]}, {"$": "PowerReading", "fields": {"channel": 1}}, {"x": 1},
        {"$": "array"}, {"$": "array", "dtype": "V", "shape": [1], "items": [1]}, {"$": "RangeState", "value": "best"},
        {"$": "array", "dtype": "f", "shape": [9, 9], "items": [1.0]}, {"$": ["list"], "items": []},
        {"$": "dict", "items": [[[1], 2]]},
    ],
)  # fmt: skip
def test_what_is_no_value_of_the_interfaces_is_an_error_of_the_link(document) -> None:
    with pytest.raises(FrameError, match="received data is not valid"):
        decode_received(document)


def test_endless_nesting_is_refused() -> None:
    document: object = 1
    for _ in range(100):
        document = [document]
    with pytest.raises(FrameError):
        decode_received(document)


@pytest.mark.parametrize("value", [object(), b"bytes", lambda: None, np.array([b"x"])])
def test_what_the_interfaces_do_not_speak_of_does_not_leave(value) -> None:
    with pytest.raises(TypeError, match="cannot send"):
        encode(value)


ERRORS = [
    LumionError("failed", device="meter0", address="tcp://127.0.0.1:1", hint="Look."),
    ConfigError("wrong"),
    UnknownNameError("no such", hint="There are a, b."),
    LimitError("heater", requested=9.0, limit=2.5, unit="mA", device="mesh0"),
    VerifyError("table", wrote="1", read="2"),
    DeviceError("refused", code=-113, command="*FOO?"),
    ConfigRejectedError("application 3", lane=1, code=3, name="invalid"),
    NoPathError("cut", ports=(1, 2), cut=((3, 4),)),
    ValueError("plain"),
    KeyError("key"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_arrives_as_the_class_it_left_as(error) -> None:
    arrived = decode_error(json.loads(json.dumps(encode_error(error))))
    assert type(arrived) is type(error)
    assert str(arrived) == str(error)
    assert vars(arrived) == vars(error)


def test_every_error_of_the_house_crosses() -> None:
    classes = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, LumionError)]
    assert len(classes) > 20
    for cls in classes:
        error = cls.__new__(cls)
        error.args = ("said",)
        vars(error).update(message="said", device=None, address=None, hint=None)
        assert type(decode_error(json.loads(json.dumps(encode_error(error))))) is cls


def test_notes_groups_and_what_the_link_knows_of_a_timeout_cross() -> None:
    error = LinkTimeout("silent", device="mesh0")
    error.took_effect = False
    error.add_note("At the same time: another")
    arrived = decode_error(encode_error(error))
    assert isinstance(arrived, LinkTimeout)
    assert (arrived.took_effect, arrived.__notes__) == (False, ["At the same time: another"])
    group = decode_error(encode_error(ExceptionGroup("two", [error, ValueError("x")])))
    assert isinstance(group, ExceptionGroup)
    assert [type(each) for each in group.exceptions] == [LinkTimeout, ValueError]


def test_an_error_of_a_class_that_is_not_known_here_arrives_as_what_it_is_a_kind_of() -> None:
    class AnotherLabError(DeviceError):
        pass

    document = encode_error(AnotherLabError("odd", code=4))
    document["classes"][0] = "NotHere"
    arrived = decode_error(document)
    assert type(arrived) is DeviceError
    assert arrived.code == 4
    document["classes"] = ["RobotError", "object"]
    assert "RobotError: odd" in str(decode_error(document))
