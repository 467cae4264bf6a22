"""JSON encoding of values and errors for calls between a program and a served bench.

Decoding creates only objects of the listed classes; nothing is imported or evaluated.
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
"""Data types of arrays that can be sent, by the kind letter of numpy."""
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
_MAX_DEPTH = 32


def decode_received(document: Any) -> Any:
    """Decode a received document. Raises ``FrameError`` for an invalid document."""
    try:
        return decode(document)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise FrameError(f"the received data is not valid: {type(error).__name__}: {error}") from error


@functools.singledispatch
def encode(value: object) -> Any:
    """Return a value as JSON, with the name of its type where necessary.

    Raises:
        TypeError: The type is not used by the interfaces.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {item.name: encode(getattr(value, item.name)) for item in dataclasses.fields(value)}
        return {_KIND: type(value).__name__, "fields": fields}
    raise TypeError(f"cannot send values of type {type(value).__name__} to a remote bench")


@encode.register(type(None))
@encode.register(bool)
@encode.register(int)
@encode.register(str)
def _encode_plain(value: object) -> Any:
    return value


@encode.register
def _encode_float(value: float) -> Any:
    return value if math.isfinite(value) else {_KIND: "float", "items": [str(value)]}


@encode.register
def _encode_complex(value: complex) -> Any:
    return {_KIND: "complex", "items": [encode(value.real), encode(value.imag)]}


@encode.register
def _encode_enum(value: enum.Enum) -> Any:
    return {_KIND: type(value).__name__, "value": encode(value.value)}


@encode.register(np.generic)
def _encode_number(value: Any) -> Any:
    return encode(value.item())


@encode.register(Mapping)
def _encode_mapping(value: Mapping[Any, Any]) -> Any:
    return {_KIND: "dict", "items": [[encode(key), encode(item)] for key, item in value.items()]}


@encode.register(AbstractSet)
def _encode_set(value: AbstractSet[Any]) -> Any:
    return {_KIND: "set", "items": [encode(item) for item in value]}


@encode.register(tuple)
def _encode_tuple(value: tuple[Any, ...]) -> Any:
    return {_KIND: "tuple", "items": [encode(item) for item in value]}


@encode.register(list)
def _encode_list(value: list[Any]) -> Any:
    return [encode(item) for item in value]


@encode.register(np.ndarray)
def _encode_array(array: Any) -> dict[str, Any]:
    kind = array.dtype.kind
    if kind not in _DTYPES:
        raise TypeError(f"cannot send arrays of type {array.dtype} to a remote bench")
    masked = isinstance(array, np.ma.MaskedArray)
    plain = array.data if masked else array
    document = {
        _KIND: "array",
        "dtype": kind,
        "shape": list(array.shape),
        "items": [encode(item) for item in plain.ravel().tolist()],
    }
    return document | {"mask": np.ma.getmaskarray(array).ravel().tolist()} if masked else document


def decode(document: Any, depth: int = 0) -> Any:
    """Decode a document. Raises ``ValueError``, ``TypeError`` or ``KeyError`` for an invalid document."""
    if depth > _MAX_DEPTH:
        raise ValueError("nested too deeply")
    if isinstance(document, list):
        return [decode(item, depth + 1) for item in document]
    if not isinstance(document, dict):
        return document
    kind = document[_KIND]
    if kind in _CLASSES:
        return _decode_object(_CLASSES[kind], document, depth)
    values = [decode(item, depth + 1) for item in document["items"]]
    return _decode_array(document, values) if kind == "array" else _DECODERS[kind](values)


_DECODERS: Mapping[str, Callable[[list[Any]], Any]] = {
    "dict": dict,
    "tuple": tuple,
    "set": frozenset,
    "float": lambda values: float(values[0]),
    "complex": lambda values: complex(*values),
}


def _decode_object(cls: type[Any], document: Mapping[str, Any], depth: int) -> Any:
    if issubclass(cls, enum.Enum):
        return cls(decode(document["value"], depth + 1))
    return cls(**{name: decode(item, depth + 1) for name, item in document["fields"].items()})


def _decode_array(document: Mapping[str, Any], values: list[Any]) -> Any:
    shape = tuple(document["shape"])
    array: Any = np.empty(len(values), dtype=_DTYPES[document["dtype"]])
    array[:] = values
    if document["dtype"] == "U":
        array = np.array(values, dtype=str)
    array = array.reshape(shape)
    return np.ma.array(array, mask=np.reshape(document["mask"], shape)) if "mask" in document else array


def encode_error(error: BaseException) -> dict[str, Any]:
    """Return an error in JSON form: its message, attributes and notes, and the names of its classes."""
    fields = {name: _encode_or_text(value) for name, value in vars(error).items() if not name.startswith("__")}
    document = {
        "classes": [cls.__name__ for cls in type(error).__mro__],
        "arguments": [_encode_or_text(item) for item in error.args]
        if not isinstance(error, BaseExceptionGroup)
        else [],
        "fields": fields,
        "notes": [str(note) for note in getattr(error, "__notes__", ())],
    }
    if isinstance(error, BaseExceptionGroup):
        document |= {"message": error.message, "members": [encode_error(item) for item in error.exceptions]}
    return document


def decode_error(document: Mapping[str, Any]) -> Exception:
    """Return the decoded error, of the most specific class that exists in this program."""
    if "members" in document:
        return ExceptionGroup(str(document["message"]), [decode_error(item) for item in document["members"]])
    error_classes = _BUILTIN_ERRORS | {cls.__name__: cls for cls in _subclass_tree(LumionError)}
    cls = next((error_classes[name] for name in document["classes"] if name in error_classes), None)
    arguments = [decode(item) for item in document["arguments"]]
    if cls is None:
        description = ": ".join([document["classes"][0], *(str(item) for item in arguments[:1])])
        return LumionError(f"the served bench failed with {description}", hint="Check the log of the served bench.")
    error: Exception = cls.__new__(cls, *arguments)
    error.args = tuple(arguments)
    vars(error).update({name: decode(item) for name, item in document["fields"].items()})
    for note in document["notes"]:
        error.add_note(str(note))
    return error


def _subclass_tree(cls: type[LumionError]) -> list[type[LumionError]]:
    return [cls, *(item for child in cls.__subclasses__() for item in _subclass_tree(child))]


def _encode_or_text(value: object) -> Any:
    try:
        return encode(value)
    except TypeError:
        return str(value)
