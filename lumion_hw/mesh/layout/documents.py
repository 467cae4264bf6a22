"""Meshes as plain dictionaries: what the JSON files of all topologies share, and the checks when one is read back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lumion_hw.errors import ConfigError
from lumion_hw.mesh.layout.topology import MeshTopology

_FORMAT = "lumion-mesh"
_VERSION = 1
_LARGEST = 2**31


def graph_entries(mesh: MeshTopology) -> dict[str, Any]:
    """Return what every document of a mesh holds, as plain numbers, strings and lists."""
    return {
        "format": _FORMAT,
        "version": _VERSION,
        "topology": mesh.topology,
        "label": mesh.label,
        "mate": mesh.mate.tolist(),
        "port_puc_port": mesh.port_puc_port.tolist(),
        "fibre_ports": list(mesh.fibre_ports),
        "sha256": mesh.sha256,
    }


def check_format(document: Mapping[str, Any]) -> None:
    """Refuse a document that holds no mesh.

    Raises:
        ConfigError: It says that it is something else, or of another version.
    """
    if (document.get("format"), document.get("version")) != (_FORMAT, _VERSION):
        raise ConfigError(
            f"a document of format {document.get('format')!r} version {document.get('version')!r} is no mesh",
            hint=f"Expected {_FORMAT!r} version {_VERSION}.",
        )


def check_graph(mesh: MeshTopology, document: Mapping[str, Any]) -> None:
    """Refuse a mesh that contradicts itself or its document, naming the element.

    Raises:
        ConfigError: The message names the element.
    """
    check_format(document)
    size = 4 * mesh.n_pucs
    mate, joined = mesh.mate, np.flatnonzero(mesh.mate >= 0)
    if len(mate) != size or np.any(mate >= size) or np.any(mate < -1):
        raise ConfigError(f"{len(mate)} joints for {mesh.n_pucs} PUCs, or joints to PUC-ports that do not exist")
    one_sided = joined[(mate[mate[joined]] != joined) | (mate[joined] == joined)]
    if len(one_sided):
        raise ConfigError(f"PUC-port {one_sided[0]} is joined to {mate[one_sided[0]]}, but not the other way round")
    if sorted(mesh.port_puc_port.tolist()) != np.flatnonzero(mate < 0).tolist():
        raise ConfigError("the ports of a mesh are its open PUC-ports, each once", hint="See 'port_puc_port'.")
    if unknown := [port for port in mesh.fibre_ports if not 0 <= port < mesh.n_ports]:
        raise ConfigError(f"fibre ports {unknown} do not exist", hint=f"It has ports 0 to {mesh.n_ports - 1}.")
    for key in ("mate", "port_puc_port", "fibre_ports"):
        if not np.array_equal(read_integers(document, key), np.asarray(getattr(mesh, key))):
            raise ConfigError(f"{key!r} of a document is not that of mesh {mesh.label!r}")
    if document.get("sha256", mesh.sha256) != mesh.sha256:
        raise ConfigError(f"mesh {mesh.label!r} does not have the hash its document states")


def read_numbers(document: Mapping[str, Any], key: str, columns: int = 1) -> NDArray[np.float64]:
    """Return one entry as numbers: a single one (``columns`` 0), a list (1), or rows of two (2).

    Raises:
        ConfigError: It is missing, or something else.
    """
    try:
        array = np.asarray(document[key], dtype=np.float64)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ConfigError(f"a mesh needs numbers under {key!r}") from error
    if array.ndim != min(columns, 2) or (columns == 2 and array.shape[1] != 2):
        raise ConfigError(f"{key!r} of a mesh has shape {array.shape}")
    return array


def read_integers(document: Mapping[str, Any], key: str, columns: int = 1) -> NDArray[np.int64]:
    """Return one entry as whole numbers, in the shapes of :func:`read_numbers`.

    Raises:
        ConfigError: It is missing, or something else.
    """
    array = read_numbers(document, key, columns)
    if not np.array_equal(np.rint(array), array) or np.abs(array).max(initial=0.0) > _LARGEST:
        raise ConfigError(f"{key!r} of a mesh holds numbers that are not whole, or too large")
    return array.astype(np.int64)
