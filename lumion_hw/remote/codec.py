"""What crosses between a served bench and a program elsewhere: JSON of the interfaces' own values, errors as errors.

Everything says what it is (a class of :mod:`lumion_hw.interfaces` by its name, a tuple, an array with its type), so
that what arrives equals what left, private fields and numbers that are none included. Only classes of this table are
made of what arrives; nothing is looked up, imported or evaluated.
"""

from __future__ import annotations

import builtins
import dataclasses
import enum
import functools
import math
from collections.abc import Callable, Mapping, Set as AbstractSet
from typing import Any

import numpy as np

from lumion_hw import interfaces
from lumion_hw.errors import FrameError, LumionError

_KIND = "$"
_CLASSES: dict[str, type[Any]] = {
    name: value
    for name in dir(interfaces)
    if isinstance(value := getattr(interfaces, name), type)
    and (dataclasses.is_dataclass(value) or issubclass(value, enum.Enum))
}
_DTYPES = {"f": "float64", "b": "bool", "i": "int64", "u": "uint64", "c": "complex128", "U": "object", "O": "object"}
"""Types of arrays that cross, by numpy's letter for their kind."""
_BUILTIN_ERRORS = {
    name: getattr(builtins, name)
    for name in (
        "ValueError",
        "TypeError",
        "KeyError",
        "IndexError",
        "AttributeError",
        "NotImplementedError",
        "RuntimeError",
    )
}
_MOST_DEPTH = 32


def decode_received(document: Any) -> Any:
    """Return the value of a document that has arrived. Raises ``FrameError`` if :func:`encode` makes no such one."""
    try:
        return decode(document)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise FrameError(f"what arrived is no value of these interfaces: {type(error).__name__}: {error}") from error


@functools.singledispatch
def encode(value: object) -> Any:
    """Return a value as JSON knows it, with a mark wherever JSON would forget what it was.

    Raises:
        TypeError: The interfaces do not speak of such values.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {each.name: encode(getattr(value, each.name)) for each in dataclasses.fields(value)}
        return {_KIND: type(value).__name__, "fields": fields}
    raise TypeError(f"values of {type(value).__name__} do not cross to a served bench")


@encode.register(type(None))
@encode.register(bool)
@encode.register(int)
@encode.register(str)
def _itself(value: object) -> Any:
    return value


@encode.register
def _encoded_float(value: float) -> Any:
    return value if math.isfinite(value) else {_KIND: "float", "items": [str(value)]}


@encode.register
def _encoded_complex(value: complex) -> Any:
    return {_KIND: "complex", "items": [encode(value.real), encode(value.imag)]}


@encode.register
def _encoded_enum(value: enum.Enum) -> Any:
    return {_KIND: type(value).__name__, "value": encode(value.value)}


@encode.register(np.generic)
def _encoded_number(value: Any) -> Any:
    return encode(value.item())


@encode.register(Mapping)
def _encoded_mapping(value: Mapping[Any, Any]) -> Any:
    return {_KIND: "dict", "items": [[encode(key), encode(each)] for key, each in value.items()]}


@encode.register(AbstractSet)
def _encoded_set(value: AbstractSet[Any]) -> Any:
    return {_KIND: "set", "items": [encode(each) for each in value]}


@encode.register(tuple)
def _encoded_tuple(value: tuple[Any, ...]) -> Any:
    return {_KIND: "tuple", "items": [encode(each) for each in value]}


@encode.register(list)
def _encoded_list(value: list[Any]) -> Any:
    return [encode(each) for each in value]


@encode.register(np.ndarray)
def _encoded_array(array: Any) -> dict[str, Any]:
    """Return an array with its type: what a driver refuses here, such as masked values, it shall refuse there."""
    kind = array.dtype.kind
    if kind not in _DTYPES:
        raise TypeError(f"arrays of {array.dtype} do not cross to a served bench")
    masked = isinstance(array, np.ma.MaskedArray)
    plain = array.data if masked else array
    document = {
        _KIND: "array",
        "dtype": kind,
        "shape": list(array.shape),
        "items": [encode(each) for each in plain.ravel().tolist()],
    }
    return document | {"mask": np.ma.getmaskarray(array).ravel().tolist()} if masked else document


def decode(document: Any, depth: int = 0) -> Any:
    """Return the value of a document. Raises ``ValueError``, ``TypeError`` or ``KeyError`` if it is none."""
    if depth > _MOST_DEPTH:
        raise ValueError("nested too deeply")
    if isinstance(document, list):
        return [decode(each, depth + 1) for each in document]
    if not isinstance(document, dict):
        return document
    kind = document[_KIND]
    if kind in _CLASSES:
        return _made(_CLASSES[kind], document, depth)
    values = [decode(each, depth + 1) for each in document["items"]]
    return _array(document, values) if kind == "array" else _MAKERS[kind](values)


_MAKERS: Mapping[str, Callable[[list[Any]], Any]] = {
    "dict": dict,
    "tuple": tuple,
    "set": frozenset,
    "float": lambda values: float(values[0]),
    "complex": lambda values: complex(*values),
}


def _made(cls: type[Any], document: Mapping[str, Any], depth: int) -> Any:
    if issubclass(cls, enum.Enum):
        return cls(decode(document["value"], depth + 1))
    return cls(**{name: decode(each, depth + 1) for name, each in document["fields"].items()})


def _array(document: Mapping[str, Any], values: list[Any]) -> Any:
    shape = tuple(document["shape"])
    array: Any = np.empty(len(values), dtype=_DTYPES[document["dtype"]])
    array[:] = values
    if document["dtype"] == "U":
        array = np.array(values, dtype=str)
    array = array.reshape(shape)
    return np.ma.array(array, mask=np.reshape(document["mask"], shape)) if "mask" in document else array


def encode_error(error: BaseException) -> dict[str, Any]:
    """Return an error as JSON knows it: class, message, what it carries, and notes."""
    fields = {name: _plain(value) for name, value in vars(error).items() if not name.startswith("__")}
    document = {
        "classes": [cls.__name__ for cls in type(error).__mro__],
        "arguments": [_plain(each) for each in error.args] if not isinstance(error, BaseExceptionGroup) else [],
        "fields": fields,
        "notes": [str(note) for note in getattr(error, "__notes__", ())],
    }
    if isinstance(error, BaseExceptionGroup):
        document |= {"message": error.message, "members": [encode_error(each) for each in error.exceptions]}
    return document


def decode_error(document: Mapping[str, Any]) -> Exception:
    """Return the error that left elsewhere, as the nearest class that is known here."""
    if "members" in document:
        return ExceptionGroup(str(document["message"]), [decode_error(each) for each in document["members"]])
    known = _BUILTIN_ERRORS | {cls.__name__: cls for cls in _tree(LumionError)}
    cls = next((known[name] for name in document["classes"] if name in known), None)
    arguments = [decode(each) for each in document["arguments"]]
    if cls is None:
        words = ": ".join([document["classes"][0], *(str(each) for each in arguments[:1])])
        return LumionError(f"the served bench failed with {words}", hint="Look at its log.")
    error: Exception = cls.__new__(cls, *arguments)
    error.args = tuple(arguments)
    vars(error).update({name: decode(each) for name, each in document["fields"].items()})
    for note in document["notes"]:
        error.add_note(str(note))
    return error


def _tree(cls: type[LumionError]) -> list[type[LumionError]]:
    return [cls, *(each for child in cls.__subclasses__() for each in _tree(child))]


def _plain(value: object) -> Any:
    """Return what an error carries; what does not cross goes as text."""
    try:
        return encode(value)
    except TypeError:
        return str(value)
