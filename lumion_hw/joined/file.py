"""Files that describe meshes joined by fibres; docs/joined.md has an example."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from lumion_hw.bench.file.checked_yaml import load_yaml
from lumion_hw.bench.file.checks import Check, Uses, did_you_mean
from lumion_hw.bench.file.fields import Name, Number, Port, StrictModel, Version
from lumion_hw.bench.file.model import BenchModel
from lumion_hw.errors import ConfigError
from lumion_hw.files import AnyPath
from lumion_hw.interfaces.wiring import FibreEnds

_END = re.compile(r"([A-Za-z][A-Za-z0-9_.-]{0,63}):([0-9]{1,5})")


@dataclass(frozen=True, order=True)
class FibreEndName:
    """A port of a bench, such as ``rack0:12``."""

    bench: str
    port: int

    @classmethod
    def parse(cls, text: str) -> FibreEndName:
        """Return the port of a text such as ``rack0:12``. Raises ``ValueError`` for another text."""
        match = _END.fullmatch(text)
        if match is None:
            raise ValueError(f"expected a bench and a port of its mesh, such as rack0:12, found {text[:60]!r}")
        return cls(match[1], int(match[2]))

    def __str__(self) -> str:
        return f"{self.bench}:{self.port}"


def _checked_end(text: str) -> str:
    return str(FibreEndName.parse(text))


@dataclass(frozen=True)
class MeshFibre:
    """A fibre that carries light from a port of one mesh to a port of another one.

    Attributes:
        start: Port where the light enters the fibre.
        end: Port where it leaves the fibre.
        loss_db: Loss of fibre and connectors, without the facets.
        length_m: Length.
    """

    start: FibreEndName
    end: FibreEndName
    loss_db: float
    length_m: float

    def __str__(self) -> str:
        return f"{self.start} to {self.end}"


class BenchEntry(StrictModel):
    """One bench: served by another process, or opened by this program."""

    address: str | None = Field(None, description="Address of the served bench, as `lumion serve --pva` prints it.")
    bench: str | None = Field(None, description="Bench file to open, beside this file. Not with `address`.")
    record: str | None = Field(None, description="Calibration record of this bench, beside this file.")
    mesh: str | None = Field(
        None, description="Layout that the mesh must have, such as `benes 32`. Default: every layout is accepted."
    )
    emulated_port: Port | None = Field(
        None, description="UDP port on this host for the light between emulated benches; needed to emulate the bench."
    )


class FibreEntry(StrictModel):
    """A fibre from a port of one mesh to a port of another one."""

    start: Annotated[str, AfterValidator(_checked_end)] = Field(
        alias="from", description="Port where the light enters the fibre, such as rack0:12."
    )
    end: Annotated[str, AfterValidator(_checked_end)] = Field(
        alias="to", description="Port where the light leaves the fibre, such as spine:3."
    )
    loss_db: Number = Field(0.0, ge=0.0, le=60.0, description="Loss of fibre and connectors, without the facets.")
    length_m: Number = Field(2.0, gt=0.0, le=1e5, description="Length of the fibre.")

    def fibre(self) -> MeshFibre:
        """Return the fibre, with each end split into bench and port."""
        return MeshFibre(FibreEndName.parse(self.start), FibreEndName.parse(self.end), self.loss_db, self.length_m)


class JoinedFileModel(StrictModel):
    """A file of joined meshes, version 1."""

    version: Version
    name: Name = Field(description="Name of the joined meshes.")
    benches: dict[Name, BenchEntry] = Field(
        min_length=1, description="The benches; each name is that of the bench file."
    )
    fibres: tuple[FibreEntry, ...] = Field(description="Fibres between the meshes, each for one direction of light.")

    def checks(self) -> Iterator[Check]:
        """Yield benches without a place, names that no bench has, and ports that two fibres use."""
        for name, bench in self.benches.items():
            if (bench.address is None) == (bench.bench is None):
                yield Check(("benches", name), "expected either 'address' or 'bench'")
            if bench.bench is not None and bench.record is None:
                yield Check(("benches", name), "expected 'record', the calibration record of a bench that is opened")
        uses = Uses()
        for number, entry in enumerate(self.fibres):
            fibre = entry.fibre()
            for key, end in (("from", fibre.start), ("to", fibre.end)):
                path = ("fibres", number, key)
                if end.bench not in self.benches:
                    found = f"found {end.bench!r}{did_you_mean(end.bench, list(self.benches))}"
                    yield Check(path, f"expected one of the benches of this file, {found}")
                yield from uses.claim(end, path, f"port {end}")
            if fibre.start.bench == fibre.end.bench:
                yield Check(("fibres", number), "expected a fibre between two meshes; a loop belongs in the bench file")


@dataclass(frozen=True)
class JoinedFile:
    """Meshes joined by fibres, as read from a file.

    Attributes:
        folder: Folder of the file, to which bench files and records are relative.
    """

    name: str
    benches: Mapping[str, BenchEntry]
    fibres: tuple[MeshFibre, ...]
    folder: Path

    def ends_of(self, bench: str) -> FibreEnds:
        """Return the ports of a bench that have fibres to other meshes.

        Raises:
            ConfigError: The file has no bench of this name.
        """
        if bench not in self.benches:
            raise ConfigError(
                f"the file of joined meshes has no bench {bench!r}",
                hint=f"Its benches are {', '.join(self.benches)}; the names are those of the bench files.",
            )
        return FibreEnds(
            tuple(fibre.end.port for fibre in self.fibres if fibre.end.bench == bench),
            tuple(fibre.start.port for fibre in self.fibres if fibre.start.bench == bench),
        )

    def check_bench(self, name: str, model: BenchModel) -> None:
        """Check the fibres against a bench.

        Raises:
            ConfigError: The bench has another name or mesh, or a port does not exist or is wired already.
        """
        label, expected = model.topology().label, self.benches[name].mesh
        problems = [] if model.name == name else [f"it is called {model.name}"]
        if expected is not None and label != expected:
            problems.append(f"its mesh is '{label}', and the file says '{expected}'")
        ports, wiring, ends = model.topology().fibre_ports, model.to_wiring(), self.ends_of(name)
        wired = {path.port: path.source for path in wiring.inputs}
        wired |= {output.port: output.transponder or "a meter" for output in wiring.outputs}
        for port in (*ends.inputs, *ends.outputs):
            if port not in ports:
                problems.append(f"its mesh has no fibre at port {port}")
            elif port in wired:
                problems.append(f"port {port} is wired to {wired[port]}")
        if problems:
            raise ConfigError(f"bench {name} does not fit the file of joined meshes: {'; '.join(problems)}")


def load_joined(path: AnyPath) -> JoinedFile:
    """Read and check a file of joined meshes, without opening a bench.

    Raises:
        ConfigError: The file cannot be read or has mistakes; the message lists all with line and column.
    """
    hint = "docs/joined.md has an example."
    model = load_yaml(path, "file of joined meshes", JoinedFileModel, hint, lambda model: model.checks())
    fibres = tuple(entry.fibre() for entry in model.fibres)
    return JoinedFile(model.name, model.benches, fibres, Path(path).parent)
