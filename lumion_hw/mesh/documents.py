"""Meshes as plain dictionaries: what a JSON file holds, and the checks when it is read back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lumion_hw.errors import ConfigError
from lumion_hw.mesh.hexagonal import HexMesh

_FORMAT = "lumion-mesh"
_VERSION = 1
_LARGEST = 2**31


def mesh_to_dict(mesh: HexMesh) -> dict[str, Any]:
    """Return a mesh as plain numbers, strings and lists."""
    return {
        "format": _FORMAT,
        "version": _VERSION,
        "label": mesh.label,
        "mate": mesh.mate.tolist(),
        "port_puc_port": mesh.port_puc_port.tolist(),
        "ends": mesh.ends.tolist(),
        "vertices": mesh.vertices.tolist(),
        "colour": mesh.colour.tolist(),
        "n_cells": mesh.n_cells,
        "fibre_ports": list(mesh.fibre_ports),
        "sha256": mesh.sha256,
    }


def mesh_from_dict(document: Mapping[str, Any]) -> HexMesh:
    """Return the mesh of a document.

    Raises:
        ConfigError: Something is missing, of the wrong shape, or contradicts the rest; the message names the element.
    """
    if (document.get("format"), document.get("version")) != (_FORMAT, _VERSION):
        raise ConfigError(
            f"a document of format {document.get('format')!r} version {document.get('version')!r} is no mesh",
            hint=f"Expected {_FORMAT!r} version {_VERSION}.",
        )
    ends = _integers(document, "ends", columns=2)
    vertices = _array(document, "vertices", columns=2)
    mesh = HexMesh(
        label=str(document.get("label", "")),
        mate=_integers(document, "mate"),
        port_puc_port=_integers(document, "port_puc_port"),
        ends=ends,
        vertices=vertices,
        colour=_integers(document, "colour"),
        n_cells=int(_integers(document, "n_cells", columns=0)),
        fibre_ports=tuple(_integers(document, "fibre_ports").tolist()),
    )
    _check(mesh)
    if document.get("sha256", mesh.sha256) != mesh.sha256:
        raise ConfigError(f"mesh {mesh.label!r} does not have the hash its document states")
    return mesh


def _array(document: Mapping[str, Any], key: str, columns: int = 1) -> NDArray[np.float64]:
    """Return one entry as numbers: a single one, a list, or rows of ``columns``."""
    try:
        array = np.asarray(document[key], dtype=np.float64)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ConfigError(f"a mesh needs numbers under {key!r}") from error
    if array.ndim != min(columns, 2) or (columns == 2 and array.shape[1] != 2):
        raise ConfigError(f"{key!r} of a mesh has shape {array.shape}")
    return array


def _integers(document: Mapping[str, Any], key: str, columns: int = 1) -> NDArray[np.int64]:
    """Return one entry as whole numbers."""
    array = _array(document, key, columns)
    if not np.array_equal(np.rint(array), array) or np.abs(array).max(initial=0.0) > _LARGEST:
        raise ConfigError(f"{key!r} of a mesh holds numbers that are not whole, or too large")
    return array.astype(np.int64)


def _check(mesh: HexMesh) -> None:
    """Refuse a mesh that contradicts itself, naming the element (mesh.md a.7)."""
    size = 4 * mesh.n_pucs
    mate, joined = mesh.mate, np.flatnonzero(mesh.mate >= 0)
    if len(mate) != size or np.any(mate >= size) or np.any(mate < -1):
        raise ConfigError(f"{len(mate)} joints for {mesh.n_pucs} PUCs, or joints to PUC-ports that do not exist")
    one_sided = joined[(mate[mate[joined]] != joined) | (mate[joined] == joined)]
    if len(one_sided):
        raise ConfigError(f"PUC-port {one_sided[0]} is joined to {mate[one_sided[0]]}, but not the other way round")
    if sorted(mesh.port_puc_port.tolist()) != np.flatnonzero(mate < 0).tolist():
        raise ConfigError("the ports of a mesh are its open PUC-ports, each once", hint="See 'port_puc_port'.")
    if np.any(mesh.ends < 0) or np.any(mesh.ends >= len(mesh.vertices)) or len(mesh.colour) != len(mesh.vertices):
        raise ConfigError("PUC ends lie at vertices that do not exist, or vertices and colours differ in number")
    if np.any(mesh.colour[mesh.ends[:, 0]] ^ mesh.colour[mesh.ends[:, 1]] != 1):
        raise ConfigError("a PUC joins two vertices of one colour: the parity of path lengths would not hold")
    if strange := [port for port in mesh.fibre_ports if not 0 <= port < mesh.n_ports]:
        raise ConfigError(f"fibre ports {strange} do not exist", hint=f"It has ports 0 to {mesh.n_ports - 1}.")
