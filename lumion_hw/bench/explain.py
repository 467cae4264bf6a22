"""Mistakes in a bench file in words: where, what was expected, what was found, and the nearest right spelling."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lumion_hw.bench.checks import Check, Path, did_you_mean

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
_SHORT = 60


def found(value: object) -> str:
    """Return a value as a message says it: ``text 'abc'``, ``the number 5``, ``a list of 3``."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return f"the number {value}" if abs(value) < 1e30 or isinstance(value, float) else "a very large number"
    if isinstance(value, str):
        text = repr(value)
        return f"text {text}" if len(text) <= _SHORT else f"text {text[:_SHORT]}…"
    if isinstance(value, Mapping):
        return "a mapping"
    return f"a list of {len(value)}" if isinstance(value, list | tuple) else type(value).__name__


def explain(error: ErrorDetails, data: object, schema: Mapping[str, Any]) -> Check:
    """Return one error of the model in words, with its path in the file.

    Args:
        error: As pydantic reports it; its path names the branch of a union, which the file does not.
        data: The file as plain data.
        schema: JSON Schema of the bench file, to know which keys exist.
    """
    path, on_key = file_path(error["loc"], data)
    if error["type"] in {"union_tag_invalid", "union_tag_not_found"}:
        path = (*path, "kind")
    elif error["type"] == "extra_forbidden":
        on_key = True
    return Check(path, _message(error, schema), on_key=on_key)


def _message(error: ErrorDetails, schema: Mapping[str, Any]) -> str:
    """Return what was expected and what was found."""
    kind, context, value = error["type"], error.get("ctx", {}), error["input"]
    if kind in {"missing", "union_tag_not_found"}:
        return "expected this key, found none"
    if kind == "value_error":
        return str(context["error"])
    if kind == "extra_forbidden":
        return _not_among("the keys ", keys_at(schema, error["loc"][:-1]), str(error["loc"][-1]))
    if kind == "union_tag_invalid":
        return _not_among("", [tag.strip(" '") for tag in str(context["expected_tags"]).split(",")], context["tag"])
    if kind in _EXPECTED:
        return f"expected {_EXPECTED[kind].format(**context)}, found {found(value)}{_hint(kind, value)}"
    return f"{error['msg']}; found {found(value)}"


def _not_among(what: str, choices: list[str], word: str) -> str:
    """Return that a word is none of the choices, and the nearest of them."""
    return f"expected one of {what}{', '.join(choices)}; found {word!r}{did_you_mean(word, choices)}"


def _hint(kind: str, value: object) -> str:
    """Return what to write instead, for the mistakes that YAML invites."""
    if kind == "string_type" and isinstance(value, int | float):
        return ". Put it in quotes"
    if not isinstance(value, str):
        return ""
    if kind == "bool_type" and value.lower() in _YES_NO:
        return ". Write true or false"
    if kind in {"float_type", "int_type"} and value[:1] in "+-.0123456789" and value:
        return ". Write the number alone, without quotes, underscores or unit: the unit is in the key's name"
    return ""


def file_path(loc: tuple[int | str, ...], data: object) -> tuple[Path, bool]:
    """Return the path in the file of an error's path, and whether a key is at fault.

    The branch of a union (a device's ``kind``) is left out: it is in the error's path, not in the file.
    """
    path: Path = ()
    node: Any = data
    for part in loc:
        if part == "[key]":
            return path, True
        if isinstance(node, dict) and part not in node and node.get("kind") == part:
            continue
        path = (*path, part)
        try:
            node = node[part]
        except (KeyError, IndexError, TypeError):
            node = None
    return path, False


def keys_at(schema: Mapping[str, Any], loc: tuple[int | str, ...]) -> list[str]:
    """Return the keys that the mapping at an error's path may have."""
    node = _resolve(schema, schema)
    for part in loc:
        node = _resolve(schema, _step(node, part))
    return list(node.get("properties", {}))


def _resolve(schema: Mapping[str, Any], node: Mapping[str, Any]) -> Mapping[str, Any]:
    """Follow references, and the one branch of an optional value that is not null."""
    while True:
        if "$ref" in node:
            node = schema["$defs"][str(node["$ref"]).rsplit("/", 1)[-1]]
        elif "anyOf" in node:
            node = next((branch for branch in node["anyOf"] if branch.get("type") != "null"), {})
        else:
            return node


def _step(node: Mapping[str, Any], part: int | str) -> Mapping[str, Any]:
    """Return the schema of a child."""
    branches = node.get("discriminator", {}).get("mapping", {})
    if part in branches:
        return {"$ref": branches[part]}
    if isinstance(part, int) and "prefixItems" in node:
        return dict(node["prefixItems"][part])
    by_pattern = next(iter(node.get("patternProperties", {}).values()), None)
    child = node.get("properties", {}).get(part) or by_pattern or node.get("items") or node.get("additionalProperties")
    return child if isinstance(child, Mapping) else {}
