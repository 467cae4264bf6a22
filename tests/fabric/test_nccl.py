"""NCCL's rank order and topology files from a job's circuits.

``NcclReader`` follows NCCL 2.30.7 by hand: the characters that src/graph/xml.cc accepts and the attributes that
src/graph/topo.cc asks for. It shares nothing with the code under test.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import pytest

from lumion_hw.bench.bench import load
from lumion_hw.bench.file.model import AcceleratorModel, BenchModel
from lumion_hw.errors import CircuitError, ConfigError
from lumion_hw.fabric import find_ring, nccl_setup, nccl_topology

PAIR = ["sfp-s0n0:sfp-s1n0", "sfp-s1n0:sfp-s0n0", "sfp-s0n1:sfp-s1n1", "sfp-s1n1:sfp-s0n1"]
DUMP = b"""<?xml version="1.0"?>
<system version="1">
  <cpu host_hash="0x5f2e" numaid="0" affinity="ffff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">
    <pci busid="0000:16:01.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">
      <pci busid="0000:17:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
        <gpu dev="0" sm="90" mlopart="-1" rank="5" gdr="0"/>
      </pci>
      <pci busid="0000:18:00.0" class="0x020000" link_speed="16.0 GT/s PCIe" link_width="8">
        <nic><net name="eno12409" dev="0" latency="0" speed="10000" port="0" guid="0x0" maxconn="65536" gdr="0"/></nic>
      </pci>
      <pci busid="0000:18:00.1" class="0x020000" link_speed="16.0 GT/s PCIe" link_width="8">
        <nic><net name="eno12419" dev="1" latency="0" speed="-1" port="0" guid="0x1" maxconn="65536" gdr="0"/></nic>
      </pci>
    </pci>
  </cpu>
  <cpu host_hash="0x5f2e" numaid="1" affinity="ffff0000" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">
    <nic><net name="eno1" dev="2" latency="0" speed="1000" port="0" guid="0x2" maxconn="65536" gdr="0"/></nic>
  </cpu>
</system>
"""


@dataclass
class Node:
    """An element as NCCL's reader sees it."""

    name: str
    attributes: dict[str, str]
    children: list[Node] = field(default_factory=list)

    def every(self, name: str) -> list[Node]:
        """Return all elements of a name, this one and below."""
        own = [self] if self.name == name else []
        return own + [node for child in self.children for node in child.every(name)]


class NcclReader:
    """Reads a topology file as NCCL does, and refuses what NCCL refuses or silently misreads."""

    INSIDE: ClassVar = {
        "": ("system",), "system": ("cpu",), "cpu": ("pci", "nic"), "pci": ("pci", "gpu", "nic", "pcilink"),
        "gpu": ("nvlink", "c2c"), "nic": ("net",),
    }  # fmt: skip
    # One space between attributes, quotes without escapes inside, no space before the end, no declaration.
    TAG = re.compile(
        r'<(?P<name>[a-z0-9]+)(?P<attributes>( [a-z_]+="[^"&<]{0,254}")*)(?P<end>/?)>|</(?P<close>[a-z0-9]+)>'
    )
    # 0 in NCCL's table of link speeds stands for text that it takes as 8 GT/s without a word.
    SPEEDS = ("2.5", "5", "8", "16", "32", "5.0", "8.0", "16.0", "32.0", "64.0")

    def read(self, text: str) -> Node:
        """Return the top element."""
        top = Node("", {})
        open_nodes, position, count = [top], 0, 0
        while position < len(text):
            if text[position] in " \n\r":
                position += 1
                continue
            tag = self.TAG.match(text, position)
            assert tag, f"NCCL cannot read {text[position : position + 60]!r}"
            position = tag.end()
            if tag["close"]:
                assert open_nodes.pop().name == tag["close"]
                continue
            pairs = re.findall(r'([a-z_]+)="([^"]*)"', tag["attributes"])
            node = Node(tag["name"], dict(pairs))
            assert len(pairs) == len(node.attributes) <= 16
            assert node.name in self.INSIDE[open_nodes[-1].name], f"{node.name} is ignored here"
            open_nodes[-1].children.append(node)
            if not tag["end"]:
                open_nodes.append(node)
            count += 1
        assert len(open_nodes) == 1
        assert count < 256
        (system,) = top.children
        self.check(system)
        return system

    def check(self, system: Node) -> None:
        """Check the attributes that NCCL asks for, and what it would merge."""
        assert system.attributes["version"] == "1"
        for cpu in system.every("cpu"):
            found = cpu.attributes
            int(found["numaid"])
            assert re.fullmatch(r"[0-9a-f,]+", found["affinity"])
            assert found["arch"] in ("x86_64", "arm64", "ppc64")
            if found["arch"] == "x86_64":
                assert found["vendor"] in ("GenuineIntel", "AuthenticAMD")
            if found.get("vendor") == "GenuineIntel":
                assert int(found["familyid"]) > 0
                assert int(found["modelid"]) > 0
        for pci in system.every("pci"):
            assert re.fullmatch(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]", pci.attributes["busid"])
            assert re.match(r"0x0[2368]", pci.attributes["class"])
            assert pci.attributes["link_speed"].removesuffix(" PCIe").removesuffix(" GT/s") in self.SPEEDS
            assert int(pci.attributes["link_width"]) >= 0
        for gpu in system.every("gpu"):
            assert int(gpu.attributes["sm"]) > 0
            assert int(gpu.attributes["dev"]) >= 0
        for name, key in (("cpu", "numaid"), ("pci", "busid"), ("net", "name")):
            keys = [node.attributes[key] for node in system.every(name)]
            assert len(set(keys)) == len(keys)


@pytest.fixture(scope="module")
def model() -> BenchModel:
    """The prototype with the network interfaces of its publication; gpu3a and gpu3b are accelerators of server3."""
    bench = load("lumion-prototype")
    servers = [server.model_copy(update={"interfaces": ("eno12409", "eno12419")}) for server in bench.servers]
    parts = tuple(AcceleratorModel(name=f"gpu3{'ab'[n]}", nics=(f"sfp-s3n{n}",)) for n in range(2))
    servers[3] = servers[3].model_copy(update={"accelerators": parts})
    return bench.model_copy(update={"servers": tuple(servers)})


def duplex(*links: str) -> list[str]:
    """Return circuits in both directions, from links such as ``01:10``: NIC 1 of server0 and NIC 0 of server1."""
    ends = [[f"sfp-s{end[0]}n{end[1]}" for end in link.split(":")] for link in links]
    return [":".join(pair) for link in ends for pair in (link, link[::-1])]


def test_a_pair_keeps_its_order_and_its_rails(model: BenchModel) -> None:
    setup = nccl_setup(model, "train", ["server0", "server1"], PAIR)
    assert setup.hostfile() == "# lumion-hw\nserver0\nserver1\n"
    assert setup.environment("server0", Path("/etc/server0.xml")) == {
        "NCCL_TOPO_FILE": "/etc/server0.xml", "NCCL_SOCKET_IFNAME": "=eno12409,eno12419", "NCCL_CROSS_NIC": "0",
    }  # fmt: skip


def test_ranks_follow_the_ring_of_circuits_and_not_the_order_of_the_members(model: BenchModel) -> None:
    circuits = duplex("01:20", "21:10", "11:30", "31:00")
    setup = nccl_setup(model, "train", ["server0", "server1", "server2", "server3"], circuits)
    assert setup.ranks == ("server0", "server2", "server1", "server3")
    assert setup.environment("server2") == {
        "NCCL_SOCKET_IFNAME": "=eno12409,eno12419", "NCCL_CROSS_NIC": "1", "NCCL_ALGO": "Ring",
    }  # fmt: skip


def test_accelerators_of_a_server_are_neighbours(model: BenchModel) -> None:
    setup = nccl_setup(model, "train", ["gpu3a", "server0", "gpu3b", "server1"], duplex("30:00", "01:10", "11:31"))
    assert setup.ranks == ("gpu3a", "gpu3b", "server0", "server1")
    assert setup.hosts == ("server3", "server3", "server0", "server1")
    assert setup.servers == ("server3", "server0", "server1")


@pytest.mark.parametrize(
    ("circuits", "words"),
    [
        (duplex("01:10", "11:20"), "server0 has such circuits to 1 of them"),
        # Replies of TCP and RoCE need the way back.
        (["sfp-s0n0:sfp-s1n0", "sfp-s1n0:sfp-s2n0", "sfp-s2n0:sfp-s0n0"], "server0 has such circuits to 0 of them"),
        ([], "server0 has such circuits to 0 of them"),
    ],
    ids=["chain", "one way", "no circuit"],
)
def test_without_a_ring_the_job_is_refused_with_a_way_out(model: BenchModel, circuits: list[str], words: str) -> None:
    with pytest.raises(CircuitError, match=f"found no ring of circuits in both directions.*{words}") as error:
        nccl_setup(model, "train", ["server0", "server1", "server2"], circuits)
    assert error.value.hint is not None
    assert "two NICs per member" in error.value.hint
    assert "one NCCL communicator per pair" in error.value.hint


@pytest.mark.parametrize(
    ("names", "pairs", "ring"),
    [
        ("a", [], "a"),
        ("ab", ["ab"], "ab"),
        ("abcd", ["ab", "bc", "cd", "da", "ac"], "abcd"),
        ("abcd", ["ac", "cb", "bd", "da"], "acbd"),
        ("abcd", ["ab", "ac", "ad"], None),
        ("abcdef", ["ab", "bc", "ca", "de", "ef", "fd"], None),
    ],
)
def test_a_ring_passes_every_name_once(names: str, pairs: Sequence[str], ring: str | None) -> None:
    found = find_ring(names, {frozenset(pair) for pair in pairs})
    assert found == (None if ring is None else tuple(ring))


def test_the_search_for_a_ring_ends_where_none_exists() -> None:
    names = [str(number) for number in range(40)]
    everyone = {frozenset((one, two)) for one in names for two in names if one != two}
    assert find_ring([*names, "alone"], everyone) is None


def test_nccl_can_read_the_topology_file_and_finds_only_interfaces_with_circuits() -> None:
    text = nccl_topology(DUMP, "server0", ["eno12409", "eno12419"])
    system = NcclReader().read(text)
    assert [net.attributes["name"] for net in system.every("net")] == ["eno12409", "eno12419"]
    # NCCL fills in what is absent: the speed of a link with light, and the host and ranks of this job.
    absent = {"speed", "rank", "host_hash", "mlopart", "keep"}
    assert not any(absent & set(node.attributes) for kind in ("cpu", "gpu", "net") for node in system.every(kind))
    assert [gpu.attributes for gpu in system.every("gpu")] == [{"dev": "0", "sm": "90", "gdr": "0"}]
    assert text.startswith('<system version="1" name="lumion-hw server0">')
    assert nccl_topology(text.encode(), "server0", ["eno12409", "eno12419"]) == text


def test_the_reader_of_this_test_refuses_what_nccl_refuses() -> None:
    good = nccl_topology(DUMP, "server0", ["eno12409"])
    for old, new in (
        ('<system version="1"', '<?xml version="1.0"?>\n<system version="1"'),
        ('<system version="1"', '<system version="2"'),
        (' arch="x86_64"', ""),
        (' class="0x060400"', ""),
        (' link_width="8"', ""),
        ("32.0 GT/s", "Unknown"),
        ('gdr="0"/>', 'gdr="0" />'),
        ("</system>", ""),
        ("0000:18:00.1", "0000:18:00.0"),
        ('numaid="1"', 'numaid="0"'),
    ):
        assert old in good
        with pytest.raises((AssertionError, KeyError)):
            NcclReader().read(good.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (b'<system version="1"', b'<system version="2"', "expected the element 'system' with version=\"1\""),
        (b' arch="x86_64"', b"", "'cpu' without the attribute 'arch'"),
        (b' modelid="143"', b"", "'cpu' without the attribute 'modelid'"),
        (b' vendor="GenuineIntel"', b"", "'cpu' without the attribute 'vendor'"),
        (b' class="0x060400"', b"", "'pci' without the attribute 'class'"),
        (b' link_width="8"', b"", "'pci' without the attribute 'link_width'"),
        (b"0000:18:00.1", b"0000:18:00.0", "2 elements 'pci' with busid=\"0000:18:00.0\""),
        (b'numaid="1"', b'numaid="0"', "2 elements 'cpu' with numaid=\"0\"; a file describes one server"),
        (b"eno12419", b"eno12409", "2 elements 'net' with name=\"eno12409\""),
        (b"<nic><net", b"<nic><cpu/><net", "'cpu' in 'nic', where NCCL ignores it"),
        (b'name="eno12409"', b'name="a&amp;b"', "a value of 'name' that NCCL cannot read"),
        (b'affinity="ffff"', b'affinity="' + b"f" * 255 + b'"', "a value of 'affinity' that NCCL cannot read"),
        (b"<nic>", b"<nic>" + 250 * b"<net/>", "elements; NCCL reads at most 255"),
        (b"</system>", b"", "cannot be read: no element found"),
        (b"<system ", b"<!DOCTYPE a><system ", "it has a document type"),
    ],
)
def test_a_dump_that_nccl_would_refuse_or_misread_is_refused(old: bytes, new: bytes, words: str) -> None:
    assert old in DUMP
    with pytest.raises(ConfigError) as error:
        nccl_topology(DUMP.replace(old, new), "server0", ["eno12409"])
    assert words in str(error.value)
    assert "server0" in str(error.value)


def test_an_interface_that_nccl_does_not_know_is_refused_with_those_it_knows() -> None:
    with pytest.raises(ConfigError, match="has no interface mlx5_0; it has eno12409, eno12419, eno1"):
        nccl_topology(DUMP, "server0", ["mlx5_0"])


def test_a_server_without_interfaces_in_the_bench_file_is_refused() -> None:
    with pytest.raises(ConfigError, match="does not name the network interfaces of server0"):
        nccl_setup(load("lumion-prototype"), "train", ["server0", "server1"], PAIR)
