"""Convert netlists of gdsfactory and SAX to a flat circuit: instances, joints (connected ports) and outside ports.

Joints can be given as a list ``nets``, a mapping ``connections``, or mappings ``routes.*.links``.
"""

from __future__ import annotations

import cmath
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from lumion_hw.errors import ConfigError

# A mistyped array size would otherwise fill the memory before any message.
MAX_INSTANCES = 200_000
"""Largest number of instances of a flat circuit."""

Pin = tuple[str, str]
"""Instance of a component, and name of its port."""
_RELATIVE = ("xmin", "xmax", "ymin", "ymax", "port", "xc", "yc")
# As in netlists that gdsfactory flattens itself, so that entries of 'cells' fit both.
_SEPARATOR = "~"


@dataclass(frozen=True)
class Transform:
    """Placement of an instance: mirror at the x axis, then rotate, then move. Micrometres, as complex numbers."""

    move_um: complex = 0j
    rotation: complex = 1 + 0j
    is_mirrored: bool = False

    def apply(self, point_um: complex) -> complex:
        """Convert a point from the coordinates of the component to those of the circuit."""
        return self.move_um + self.rotation * (point_um.conjugate() if self.is_mirrored else point_um)

    def then(self, outer: Transform) -> Transform:
        """Return a transform that applies this one first, then ``outer``."""
        turned = self.rotation.conjugate() if outer.is_mirrored else self.rotation
        return Transform(outer.apply(self.move_um), outer.rotation * turned, self.is_mirrored != outer.is_mirrored)


@dataclass(frozen=True)
class CircuitInstance:
    """An instance of a component.

    Attributes:
        name: Name in the flat circuit; ``outer~inner`` for an instance inside a component.
        settings: Settings and information of the component, such as lengths.
        place: Position; ``None`` if the netlist gives none.
        line: Line in the netlist; 0 if unknown.
    """

    name: str
    component: str
    settings: Mapping[str, Any]
    place: Transform | None
    line: int = 0


@dataclass(frozen=True)
class Circuit:
    """A netlist without hierarchy.

    Attributes:
        name: Name of the netlist, for messages.
        instances: Instances by name, in the order of the netlist.
        joints: Pairs of connected pins.
        ports: Pin of each outside port, by name.
        lines: Line in the netlist of the joint or outside port at each pin, if known.
    """

    name: str
    instances: dict[str, CircuitInstance] = field(default_factory=dict)
    joints: list[tuple[Pin, Pin]] = field(default_factory=list)
    ports: list[tuple[str, Pin]] = field(default_factory=list)
    lines: dict[Pin, int] = field(default_factory=dict)

    def error(self, message: str, hint: str, at: Pin | CircuitInstance | None = None) -> ConfigError:
        """Return an error that names the netlist and, if known, the line."""
        line = at.line if isinstance(at, CircuitInstance) else self.lines.get(at, 0) if at is not None else 0
        return ConfigError(f"{self.name}:{line}: {message}" if line else f"{self.name}: {message}", hint=hint)


class _Mapping(dict[str, Any]):
    """A mapping of a netlist, with the line number of each key."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: dict[str, int] = {}


def parse_netlist(text: str, name: str) -> Mapping[str, Any]:
    """Return the contents of a netlist in YAML or JSON.

    Raises:
        ConfigError: The text is invalid, contains a key twice, or is not a mapping.
    """
    try:
        document = _parse_json(text) if text.lstrip().startswith("{") else None
    except ValueError:
        document = None  # a YAML mapping can begin with a brace, too
    except RecursionError as error:
        raise ConfigError(f"{name}: the netlist is nested too deeply", hint="Write the netlist again.") from error
    document = _parse_yaml(text, name) if document is None else document
    if not isinstance(document, Mapping):
        raise ConfigError(
            f"{name}: expected a netlist with the key 'instances', found {type(document).__name__}",
            hint="Write one with component.get_netlist() of gdsfactory.",
        )
    return document


def _parse_json(text: str) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({key for key, _ in pairs}) < len(pairs):
            raise ValueError("a key occurs twice")  # the YAML reader then reports it with its line
        return dict(pairs)

    return json.loads(text, object_pairs_hook=unique)


def _parse_yaml(text: str, name: str) -> Any:
    import yaml

    class Loader(yaml.SafeLoader): ...

    def construct(loader: yaml.SafeLoader, node: yaml.MappingNode) -> Iterator[_Mapping]:
        mapping = _Mapping()
        # Handed out before it is filled, as PyYAML does itself: an alias inside the mapping may refer to the mapping.
        yield mapping
        loader.flatten_mapping(node)
        for key_node, value_node in node.value:
            key, line = str(loader.construct_object(key_node, deep=True)), key_node.start_mark.line + 1
            if key in mapping:
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} occurs twice", key_node.start_mark)
            mapping[key] = loader.construct_object(value_node, deep=True)
            mapping.lines[key] = line

    Loader.add_constructor("tag:yaml.org,2002:map", construct)
    try:
        return yaml.load(text, Loader)  # a subclass of the safe loader
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ConfigError(
            f"{name}{line}: the netlist is damaged: {error.problem}", hint="Correct this line."
        ) from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ConfigError(f"{name}: the netlist is damaged: {error}", hint="Write the netlist again.") from error


def flat_circuit(text: str, name: str, is_known: Callable[[str, str], bool], top: str | None) -> Circuit:
    """Return a netlist as a flat circuit.

    Components that the netlist defines are replaced by their contents, unless ``is_known`` returns true.

    Args:
        text: The netlist, YAML or JSON.
        name: Name of the netlist, for messages.
        is_known: Returns whether a component is known, from the instance name and the component name.
        top: Component to read if the netlist has several; by default the first.

    Raises:
        ConfigError: The netlist is invalid; the message names the instance, port or key.
    """
    document = parse_netlist(text, name)
    if "instances" in document:
        netlists: dict[str, Any] = {top or str(document.get("name", "top")): document}
    else:
        netlists = {
            key: value for key, value in document.items() if isinstance(value, Mapping) and "instances" in value
        }
    if not netlists:
        raise ConfigError(
            f"{name}: the netlist has no key 'instances'; its keys are {_listed(document)}",
            hint="Write one with component.get_netlist() of gdsfactory.",
        )
    if top is not None and top not in netlists:
        raise ConfigError(f"{name}: there is no component {top!r}", hint=f"There are {_listed(netlists)}.")
    circuit = Circuit(name)
    reader = _Reader(circuit, netlists, is_known)
    reader.read(top or next(iter(netlists)))
    return circuit


@dataclass
class _Reader:
    """Reads a hierarchical netlist into a flat circuit."""

    circuit: Circuit
    netlists: Mapping[str, Any]
    is_known: Callable[[str, str], bool]

    def read(self, component: str) -> None:
        """Read a component and its parts into the circuit; its pins become the ports of the circuit."""
        ports = self._read_component(component, "", Transform(), (component,))
        self.circuit.ports.extend(ports.items())

    def _read_component(
        self, component: str, prefix: str, outer: Transform | None, path: tuple[str, ...]
    ) -> dict[str, Pin]:
        netlist = self.netlists[component]
        entries, placements = self._mapping(netlist, "instances"), self._mapping(netlist, "placements")
        inner: dict[str, dict[str, Pin]] = {}
        for key, entry in entries.items():
            for instance in self._instances(str(key), entry, placements.get(key), _line(entries, key)):
                transform = instance.place.then(outer) if instance.place is not None and outer is not None else None
                full = prefix + instance.name
                if self._is_leaf(prefix, instance):
                    settings = instance.settings
                    self.circuit.instances[full] = CircuitInstance(
                        full, instance.component, settings, transform, instance.line
                    )
                elif instance.component in path:
                    raise self.circuit.error(
                        f"component {instance.component!r} contains itself", "Write the netlist again.", instance
                    )
                else:
                    inner[instance.name] = self._read_component(
                        instance.component, full + _SEPARATOR, transform, (*path, instance.component)
                    )
                if len(self.circuit.instances) > MAX_INSTANCES:
                    raise self.circuit.error(f"more than {MAX_INSTANCES} instances", "Check the arrays.", instance)

        def resolve(text: Any, line: int) -> Pin:
            """Return the pin of the flat circuit that a pin of this component stands for."""
            instance, port = self._pin(text, line)
            if instance not in inner:
                pin = prefix + instance, port
            elif port in inner[instance]:
                pin = inner[instance][port]
            else:
                raise self._error(
                    f"instance {instance!r} has no port {port!r}", f"Its ports are {_listed(inner[instance])}.", line
                )
            self.circuit.lines.setdefault(pin, line)
            return pin

        for first, second, line in self._joints(netlist):
            self.circuit.joints.append((resolve(first, line), resolve(second, line)))
        ports = self._mapping(netlist, "ports")
        return {str(key): resolve(value, _line(ports, key)) for key, value in ports.items()}

    def _is_leaf(self, prefix: str, instance: CircuitInstance) -> bool:
        is_defined = instance.component in self.netlists
        return not is_defined or self.is_known(prefix + instance.name, instance.component)

    def _instances(self, name: str, entry: Any, placement: Any, line: int) -> Iterator[CircuitInstance]:
        entry = {"component": entry} if isinstance(entry, str) else entry
        if not isinstance(entry, Mapping) or not isinstance(entry.get("component"), str):
            raise self._error(f"instance {name!r} has no component", "Give the name of its component.", line)
        settings = {**_dict(entry.get("settings")), **_dict(entry.get("info"))}
        transform = self._transform(name, placement)
        columns, rows, x_um, y_um = self._array(name, entry, line)
        for column in range(columns):
            for row in range(rows):
                element = name if columns * rows == 1 else f"{name}<{column}.{row}>"
                offset = Transform(complex(column * x_um, row * y_um))
                yield CircuitInstance(element, entry["component"], settings, transform and transform.then(offset), line)

    def _array(self, name: str, entry: Mapping[str, Any], line: int) -> tuple[int, int, float, float]:
        array = entry.get("array") or {key: entry[key] for key in ("na", "nb") if key in entry}
        if not array:
            return 1, 1, 0.0, 0.0
        first = next((entry for entry in _ARRAY_KEYS if entry[0] in array or entry[1] in array), None)
        if not isinstance(array, Mapping) or first is None:
            raise self._error(f"array {name!r} has an unknown form", "Give columns, rows and their pitches.", line)
        counts = [array.get(key) or 1 for key in first[:2]]
        if not all(type(count) is int and 0 < count <= MAX_INSTANCES for count in counts):
            raise self._error(
                f"array {name!r}: the size must be whole numbers from 1, not {counts}", "Correct it.", line
            )
        x_um, y_um = (array.get(key) or 0.0 for key in first[2:])
        # A pitch can also be a vector along its own axis.
        x_um, y_um = (
            pitch[axis] if isinstance(pitch, list) and len(pitch) == 2 else pitch
            for axis, pitch in enumerate((x_um, y_um))
        )
        if not isinstance(x_um, int | float) or not isinstance(y_um, int | float):
            raise self._error(f"array {name!r}: the pitch must be a number", "Correct it.", line)
        return counts[0], counts[1], float(x_um), float(y_um)

    def _transform(self, name: str, placement: Any) -> Transform | None:
        if not isinstance(placement, Mapping):
            return None
        values = {key: placement.get(key) or 0 for key in ("x", "y", "rotation", "mirror", "dx", "dy")}
        relative = [key for key in _RELATIVE if placement.get(key) is not None]
        relative += [key for key, value in values.items() if not isinstance(value, int | float)]
        if relative:
            raise self._error(
                f"instance {name!r}: its placement is relative to other instances ({', '.join(relative)})",
                "Let gdsfactory resolve it: write the netlist with component.get_netlist().",
                _line(placement, relative[0]),
            )
        if not all(math.isfinite(value) and abs(value) < 1e9 for value in values.values()):
            raise self._error(f"instance {name!r}: its placement is not finite", "Correct it.", _line(placement, "x"))
        rotation = cmath.exp(1j * math.radians(values["rotation"]))
        return Transform(
            complex(values["x"] + values["dx"], values["y"] + values["dy"]), rotation, bool(values["mirror"])
        )

    def _joints(self, netlist: Mapping[str, Any]) -> Iterator[tuple[Any, Any, int]]:
        nets = netlist.get("nets") or []
        if not isinstance(nets, list) or not all(
            isinstance(net, Mapping) and {"p1", "p2"} <= net.keys() for net in nets
        ):
            raise self._error("'nets' must be a list of entries with p1 and p2", "Correct it.", _line(netlist, "nets"))
        for net in nets:
            yield net["p1"], net["p2"], _line(net, "p1")
        links = [self._mapping(netlist, "connections")]
        for bundle in self._mapping(netlist, "routes").values():
            links.append(self._mapping(_dict(bundle), "links"))
        for mapping in links:
            for first, second in mapping.items():
                yield first, second, _line(mapping, first)

    def _mapping(self, netlist: Mapping[str, Any], key: str) -> Mapping[str, Any]:
        value = netlist.get(key)
        if value is not None and not isinstance(value, Mapping):
            raise self._error(f"{key!r} must be a mapping", "Correct it.", _line(netlist, key))
        return value or {}

    def _pin(self, text: Any, line: int) -> Pin:
        # CircuitInstance names can contain commas.
        instance, comma, port = str(text).rpartition(",")
        if not isinstance(text, str) or not comma or not instance.strip() or not port.strip():
            raise self._error(f"expected 'instance,port', found {text!r}", "Name both, separated by a comma.", line)
        return instance.strip(), port.strip()

    def _error(self, message: str, hint: str, line: int) -> ConfigError:
        return self.circuit.error(message, hint, CircuitInstance("", "", {}, None, line))


_ARRAY_KEYS = (
    ("columns", "rows", "column_pitch", "row_pitch"),
    ("num_a", "num_b", "pitch_a", "pitch_b"),
    ("na", "nb", "pitch_a", "pitch_b"),
)


def _dict(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _line(mapping: Any, key: Any) -> int:
    return mapping.lines.get(key, 0) if isinstance(mapping, _Mapping) else 0


def _listed(names: Mapping[str, Any]) -> str:
    listed_names = [str(name) for name in list(names)[:12]]
    return ", ".join(listed_names) + (" ..." if len(names) > len(listed_names) else "") if listed_names else "none"
