"""Which circuits join which servers."""

import pytest

from lumion_hw.bench.loader import load_bench
from lumion_hw.bench.model import BenchModel
from lumion_hw.circuits import CircuitRequest
from lumion_hw.errors import CircuitError, ConfigError
from lumion_hw.fabric import pair_requests, partners, substituted
from lumion_hw.fabric.servers import find_server, server_of

PAIR_0_1 = [
    CircuitRequest("sfp-s0n0", "sfp-s1n0"),
    CircuitRequest("sfp-s1n0", "sfp-s0n0"),
    CircuitRequest("sfp-s0n1", "sfp-s1n1"),
    CircuitRequest("sfp-s1n1", "sfp-s0n1"),
]


@pytest.fixture(scope="module")
def model() -> BenchModel:
    return load_bench("lumion-prototype")


def shorn(model: BenchModel, name: str, n_nics: int) -> BenchModel:
    """The bench with one server that has only its first NICs."""
    servers = tuple(
        server.model_copy(update={"nics": server.nics[:n_nics]}) if server.name == name else server
        for server in model.servers
    )
    return model.model_copy(update={"servers": servers})


def test_two_servers_are_joined_nic_by_nic_in_both_directions(model: BenchModel) -> None:
    assert pair_requests(model, "server0", "server1") == PAIR_0_1


def test_servers_with_different_numbers_of_nics_are_not_joined(model: BenchModel) -> None:
    with pytest.raises(ConfigError, match="server0 has 2 NICs and server3 has 1"):
        pair_requests(shorn(model, "server3", 1), "server0", "server3")


def test_a_server_that_does_not_exist_is_named_with_those_that_do(model: BenchModel) -> None:
    with pytest.raises(ConfigError, match=r"no server 'server9'.*server0, server1, server2, server3"):
        pair_requests(model, "server0", "server9")


def test_a_module_sits_in_its_server(model: BenchModel) -> None:
    found = server_of(model, "sfp-s2n1")
    assert found is not None
    assert found.name == "server2"
    assert server_of(model, "meter0") is None
    assert find_server(model, "server2") is found


def test_partners_are_the_servers_at_the_other_ends(model: BenchModel) -> None:
    requests = [*PAIR_0_1, CircuitRequest("sfp-s3n0", "sfp-s1n0")]
    assert partners(model, requests, "server1") == ["server0", "server3"]
    assert partners(model, requests, "server0") == ["server1"]
    assert partners(model, requests, "server2") == []


def test_a_spare_takes_each_place_of_the_failed_server_nic_by_nic(model: BenchModel) -> None:
    other = CircuitRequest("sfp-s3n0", "sfp-s3n1")
    assert substituted(model, [*PAIR_0_1, other], "server1", "server2") == [
        CircuitRequest("sfp-s0n0", "sfp-s2n0"),
        CircuitRequest("sfp-s2n0", "sfp-s0n0"),
        CircuitRequest("sfp-s0n1", "sfp-s2n1"),
        CircuitRequest("sfp-s2n1", "sfp-s0n1"),
        other,
    ]


def test_partners_on_different_nics_keep_their_nics(model: BenchModel) -> None:
    requests = [CircuitRequest("sfp-s0n0", "sfp-s1n0"), CircuitRequest("sfp-s3n1", "sfp-s1n1")]
    assert substituted(model, requests, "server1", "server2") == [
        CircuitRequest("sfp-s0n0", "sfp-s2n0"),
        CircuitRequest("sfp-s3n1", "sfp-s2n1"),
    ]


def test_a_spare_with_too_few_nics_is_refused_by_name(model: BenchModel) -> None:
    with pytest.raises(CircuitError, match=r"server2 has 1 NICs, too few to take the place of sfp-s1n1"):
        substituted(shorn(model, "server2", 1), PAIR_0_1, "server1", "server2")


def test_nics_that_carry_nothing_need_no_counterpart(model: BenchModel) -> None:
    requests = PAIR_0_1[:2]
    assert substituted(shorn(model, "server2", 1), requests, "server1", "server2")[0].target == "sfp-s2n0"
