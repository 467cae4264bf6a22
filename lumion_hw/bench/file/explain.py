"""Writes messages for mistakes in a bench file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from lumion_hw.bench.file.checks import Check, Path, did_you_mean
from lumion_hw.bench.file.fields import describe

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_EXPECTED = {
    "float_type": "a number",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "string_type": "text",
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "tuple_type": "a list",
    "list_type": "a list",
    "finite_number": "a finite number",
    "greater_than": "more than {gt:g}",
    "greater_than_equal": "at least {ge:g}",
    "less_than": "less than {lt:g}",
    "less_than_equal": "at most {le:g}",
    "literal_error": "{expected}",
    "too_short": "at least {min_length} entries",
    "too_long": "at most {max_length} entries",
    "string_pattern_mismatch": "a letter followed by letters, digits, '_', '.' or '-'",
}
_YES_NO = {"yes", "no", "on", "off", "y", "n"}


Location = tuple[int | str, ...]
"""Location of an error, as reported by pydantic."""
SchemaLookup = Callable[[Location], tuple[Mapping[str, Any], Location]]
"""Returns the JSON Schema of the model that contains a location, and the location inside this model."""


def explain(error: ErrorDetails, find_schema: SchemaLookup) -> Check:
    """Convert a validation error of pydantic to a message with the path in the bench file.

    Args:
        error: The error.
        find_schema: Returns the JSON Schema for a location.
    """
    path, on_key = file_path(error["loc"])
    if error["type"] in {"union_tag_invalid", "union_tag_not_found", "unusable_kind"}:
        path = (*path, "kind")
    elif error["type"] == "extra_forbidden":
        on_key = True
    return Check(path, _message(error, find_schema), on_key=on_key)


def _message(error: ErrorDetails, find_schema: SchemaLookup) -> str:
    kind, context, value = error["type"], error.get("ctx", {}), error["input"]
    if kind in {"missing", "union_tag_not_found"}:
        return "expected this key, found none"
    if kind in {"value_error", "unusable_kind"}:
        return str(context["error"])
    if kind == "extra_forbidden":
        return _unknown_word("the keys ", valid_keys(*find_schema(error["loc"][:-1])), str(error["loc"][-1]))
    if kind == "union_tag_invalid":
        kinds = [tag.strip(" '") for tag in str(context["expected_tags"]).split(",")]
        return f"{_unknown_word('', kinds, context['tag'])}. Other kinds need the package of their driver"
    if kind in _EXPECTED:
        return f"expected {_EXPECTED[kind].format(**context)}, found {describe(value)}{_hint(kind, value)}"
    return f"{error['msg']}; found {describe(value)}"


def _unknown_word(kind: str, choices: list[str], word: str) -> str:
    return f"expected one of {kind}{', '.join(choices)}; found {word!r}{did_you_mean(word, choices)}"


def _hint(kind: str, value: object) -> str:
    if kind == "string_type" and isinstance(value, int | float):
        return ". Put it in quotes"
    if not isinstance(value, str):
        return ""
    if kind == "bool_type" and value.lower() in _YES_NO:
        return ". Write true or false"
    if kind in {"float_type", "int_type"} and value[:1] in "+-.0123456789" and value:
        return ". Write the number alone, without quotes, underscores or unit: the unit is in the key's name"
    return ""


def file_path(loc: Location) -> tuple[Path, bool]:
    """Convert a pydantic location to a path in the bench file; also return whether the key itself is wrong."""
    path: Path = ()
    for part in loc:
        if part == "[key]":
            return path, True
        path = (*path, part)
    return path, False


def valid_keys(schema: Mapping[str, Any], loc: Location) -> list[str]:
    """Return the valid keys of the bench-file mapping at a location."""
    node = _resolve(schema, schema)
    for part in loc:
        node = _resolve(schema, _step(node, part))
    return list(node.get("properties", {}))


def _resolve(schema: Mapping[str, Any], node: Mapping[str, Any]) -> Mapping[str, Any]:
    """Resolve the references of a JSON Schema; for an optional value, return the schema of the value."""
    while True:
        if "$ref" in node:
            node = schema["$defs"][str(node["$ref"]).rsplit("/", 1)[-1]]
        elif "anyOf" in node:
            node = next((branch for branch in node["anyOf"] if branch.get("type") != "null"), {})
        else:
            return node


def _step(node: Mapping[str, Any], part: int | str) -> Mapping[str, Any]:
    if isinstance(part, int) and "prefixItems" in node:
        return dict(node["prefixItems"][part])
    by_pattern = next(iter(node.get("patternProperties", {}).values()), None)
    child = node.get("properties", {}).get(part) or by_pattern or node.get("items") or node.get("additionalProperties")
    return child if isinstance(child, Mapping) else {}
