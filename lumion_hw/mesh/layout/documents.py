"""JSON form of a mesh, and checks of a mesh that is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lumion_hw.errors import ConfigError
from lumion_hw.mesh.layout.topology import MeshTopology

_FORMAT = "lumion-mesh"
_VERSION = 1
# Numbers are read as doubles, which hold whole numbers exactly only below 2**53.
_LARGEST = 2**31


def graph_entries(mesh: MeshTopology) -> dict[str, Any]:
    """Return the JSON entries common to all mesh topologies, as plain numbers, strings and lists."""
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
    """Check that a document describes a mesh.

    Raises:
        ConfigError: The document has another format, or another version of the mesh format.
    """
    if (document.get("format"), document.get("version")) != (_FORMAT, _VERSION):
        raise ConfigError(
            f"this document has format {document.get('format')!r}, version {document.get('version')!r}; it is not a "
            "mesh",
            hint=f"Give a document of format {_FORMAT!r}, version {_VERSION}.",
        )


def check_graph(mesh: MeshTopology, document: Mapping[str, Any]) -> None:
    """Check that a mesh is consistent and agrees with the document it was read from.

    Raises:
        ConfigError: The mesh is inconsistent; the message names the first wrong element.
    """
    check_format(document)
    size = 4 * mesh.n_pucs
    mate, joined = mesh.mate, np.flatnonzero(mesh.mate >= 0)
    if len(mate) != size or np.any(mate >= size) or np.any(mate < -1):
        raise ConfigError(
            f"'mate' (the PUC-port joined to each PUC-port) has {len(mate)} entries for {mesh.n_pucs} PUCs, "
            "not four per PUC, or names PUC-ports that do not exist"
        )
    # A joint connects two different PUC-ports, and each of them names the other.
    one_sided = joined[(mate[mate[joined]] != joined) | (mate[joined] == joined)]
    if len(one_sided):
        raise ConfigError(f"PUC-port {one_sided[0]} is joined to {mate[one_sided[0]]}, but not the other way round")
    if sorted(mesh.port_puc_port.tolist()) != np.flatnonzero(mate < 0).tolist():
        raise ConfigError(
            "'port_puc_port' must list every open PUC-port of the mesh once", hint="Correct 'port_puc_port'."
        )
    if unknown := [port for port in mesh.fibre_ports if not 0 <= port < mesh.n_ports]:
        raise ConfigError(f"fibre ports {unknown} do not exist", hint=f"This mesh has ports 0 to {mesh.n_ports - 1}.")
    for key in ("mate", "port_puc_port", "fibre_ports"):
        if not np.array_equal(read_integers(document, key), np.asarray(getattr(mesh, key))):
            raise ConfigError(f"{key!r} in the document differs from that of mesh {mesh.label!r}")
    # Documents written by other programs need no hash.
    if document.get("sha256", mesh.sha256) != mesh.sha256:
        raise ConfigError(f"the hash of mesh {mesh.label!r} differs from 'sha256' in its document")


def read_numbers(document: Mapping[str, Any], key: str, columns: int = 1) -> NDArray[np.float64]:
    """Return one entry of a mesh document as an array of numbers.

    ``columns`` is 0 for a single number, 1 for a list, 2 for rows of two numbers.

    Raises:
        ConfigError: The entry is missing or has another shape.
    """
    try:
        array = np.asarray(document[key], dtype=np.float64)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ConfigError(f"entry {key!r} of the mesh document is missing or does not contain numbers") from error
    if array.ndim != min(columns, 2) or (columns == 2 and array.shape[1] != 2):
        raise ConfigError(f"{key!r} of the mesh document has the wrong shape, {array.shape}")
    return array


def read_integers(document: Mapping[str, Any], key: str, columns: int = 1) -> NDArray[np.int64]:
    """Return one entry of a mesh document as an array of integers.

    ``columns`` is 0 for a single number, 1 for a list, 2 for rows of two numbers.

    Raises:
        ConfigError: The entry is missing or has another shape.
    """
    array = read_numbers(document, key, columns)
    if not np.array_equal(np.rint(array), array) or np.abs(array).max(initial=0.0) > _LARGEST:
        raise ConfigError(f"{key!r} of the mesh document holds numbers that are not whole, or too large")
    return array.astype(np.int64)
