"""Numbers of a file that each name their source, so that a result shows what it rests on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, TypeVar

from pydantic import BaseModel, Field, ValidationError, model_validator

from lumion_hw.bench.file.fields import Number, StrictModel, describe

ASSUMED = "assumed"
"""Source of a number that a file gives without a source."""
DEFAULT = "assumed (default)"
"""Source of a number that a file does not give."""
Model = TypeVar("Model", bound=BaseModel)
Text = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]
"""A line of text, without control characters."""


class StatedNumber(StrictModel):
    """A number and its source; a plain number in the file counts as assumed."""

    value: Number = Field(gt=0.0, le=1e6, description="The number.")
    source: Text = Field(ASSUMED, description="Paper, data sheet or measurement that the number is from.")

    @model_validator(mode="before")
    @classmethod
    def _from_plain_number(cls, data: object) -> object:
        if isinstance(data, int | float) and not isinstance(data, bool):
            return {"value": data}
        if isinstance(data, Mapping | StatedNumber):
            return data
        raise ValueError(f"expected a number, or a mapping with value and source, found {describe(data)}")


class StatedShare(StatedNumber):
    """A fraction and its source."""

    value: Number = Field(ge=0.0, le=1.0, description="The fraction, 0 to 1.")


class StatedTime(StatedNumber):
    """A time in seconds and its source."""

    value: Number = Field(ge=0.0, le=86_400.0, description="The time, in seconds.")


class StatedRate(StatedNumber):
    """A data rate in 10^9 bits per second and its source."""

    value: Number = Field(ge=1e-3, le=1e5, description="The rate, in 10^9 bits per second.")


class StatedFactor(StatedNumber):
    """A published ratio and its source."""

    value: Number = Field(ge=1.0, le=1e6, description="The ratio, at least 1.")


@dataclass(frozen=True)
class Assumption:
    """A number that a result rests on.

    Attributes:
        name: Position in the file, such as ``job.compute_s``.
        value: The number, in the unit of its name.
        source: Where the number is from; ``assumed`` if the file does not say.
        given: Whether the file has the number; otherwise it is a default.
    """

    name: str
    value: float
    source: str
    given: bool


def assumptions_of(model: BaseModel) -> tuple[Assumption, ...]:
    """Return all stated numbers of a model, in the order of the file."""
    return tuple(_stated(model, ""))


def scaled(model: Model, name: str, factor: float) -> Model | None:
    """Return a model with one stated number multiplied by a factor; ``None`` if the product is out of range."""
    return _scaled(model, name.split("."), factor)


def _stated(model: BaseModel, prefix: str) -> Iterator[Assumption]:
    for name in type(model).model_fields:
        value, given = getattr(model, name), name in model.model_fields_set
        if isinstance(value, StatedNumber):
            yield Assumption(f"{prefix}{name}", value.value, value.source if given else DEFAULT, given)
        elif isinstance(value, BaseModel):
            yield from _stated(value, f"{prefix}{name}.")


def _scaled(model: Model, path: list[str], factor: float) -> Model | None:
    part = getattr(model, path[0])
    if isinstance(part, StatedNumber):
        try:
            changed: BaseModel | None = type(part)(value=part.value * factor, source=part.source)
        except ValidationError:
            return None
    else:
        changed = _scaled(part, path[1:], factor)
    return None if changed is None else model.model_copy(update={path[0]: changed})
