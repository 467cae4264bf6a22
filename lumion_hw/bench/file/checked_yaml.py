"""YAML files of a fixed schema, checked like bench files: an error lists all mistakes with line and column."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from lumion_hw.bench.file.checks import Check
from lumion_hw.bench.file.explain import explain
from lumion_hw.bench.file.fields import describe
from lumion_hw.bench.file.loader import error_from_problems, problems_in
from lumion_hw.bench.file.yaml_marks import read_yaml
from lumion_hw.errors import ConfigError
from lumion_hw.files import AnyPath
from lumion_hw.files.reading import MEGABYTE, read_file

Model = TypeVar("Model", bound=BaseModel)


def load_yaml(
    path: AnyPath,
    kind: str,
    model_type: type[Model],
    hint: str,
    checks: Callable[[Model], Iterable[Check]] = lambda model: (),
) -> Model:
    """Read and check a YAML file.

    Args:
        path: The file, at most one megabyte.
        kind: Kind of file, for messages, such as ``phase file``.
        model_type: Schema of the content.
        hint: What to do if there is no such file.
        checks: Returns the mistakes that the schema alone cannot find.

    Raises:
        ConfigError: The file cannot be read or has mistakes.
    """
    raw = read_file(Path(path), kind, max_bytes=MEGABYTE, hint=hint)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: expected UTF-8 text", hint="Save the file as UTF-8.") from error
    return parse_yaml(text, os.fspath(path), kind, model_type, checks)


def parse_yaml(
    text: str,
    name: str,
    kind: str,
    model_type: type[Model],
    checks: Callable[[Model], Iterable[Check]] = lambda model: (),
) -> Model:
    """Check the text of a YAML file ``name``; other arguments and errors as for :func:`load_yaml`."""
    document = read_yaml(text)
    # A text that is not YAML has one mistake and no positions.
    model, mistakes = _validated(document.data, kind, model_type) if document.marks else (None, [])
    if model is not None:
        mistakes = list(checks(model))
    problems = problems_in(name, text, document, mistakes)
    if problems or model is None:
        raise error_from_problems(f"{kind} {name}", problems)
    return model


def _validated(data: object, kind: str, model_type: type[Model]) -> tuple[Model | None, list[Check]]:
    if not isinstance(data, dict):
        return None, [Check((), f"expected a mapping with the keys of a {kind}, found {describe(data)}")]
    try:
        return model_type.model_validate(data), []
    except ValidationError as error:
        schema = model_type.model_json_schema()
        return None, [explain(problem, lambda loc: (schema, loc)) for problem in error.errors(include_url=False)]
