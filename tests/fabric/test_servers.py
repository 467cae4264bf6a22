"""Which circuits connect which servers."""

from pathlib import Path

import pytest
import yaml

from lumion_hw.bench.file.loader import check_bench, load_bench
from lumion_hw.bench.file.model import AcceleratorModel, BenchModel, JobModel
from lumion_hw.circuits import CircuitRequest
from lumion_hw.errors import CircuitError, ConfigError
from lumion_hw.fabric import find_unit, job_requests, pair_requests, partners, replace_server
from lumion_hw.fabric.servers import server_of

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
    with pytest.raises(ConfigError, match=r"no server 'server9'.*Did you mean server3"):
        pair_requests(model, "server0", "server9")


def test_a_module_sits_in_its_server(model: BenchModel) -> None:
    found = server_of(model, "sfp-s2n1")
    assert found is not None
    assert found.name == "server2"
    assert server_of(model, "meter0") is None
    assert find_unit(model, "server2").nics == found.nics


def test_partners_are_the_servers_at_the_other_ends(model: BenchModel) -> None:
    requests = [*PAIR_0_1, CircuitRequest("sfp-s3n0", "sfp-s1n0")]
    assert partners(model, requests, "server1") == ["server0", "server3"]
    assert partners(model, requests, "server0") == ["server1"]
    assert partners(model, requests, "server2") == []


def test_a_spare_takes_each_place_of_the_failed_server_nic_by_nic(model: BenchModel) -> None:
    other = CircuitRequest("sfp-s3n0", "sfp-s3n1")
    assert replace_server(model, [*PAIR_0_1, other], "server1", "server2") == [
        CircuitRequest("sfp-s0n0", "sfp-s2n0"),
        CircuitRequest("sfp-s2n0", "sfp-s0n0"),
        CircuitRequest("sfp-s0n1", "sfp-s2n1"),
        CircuitRequest("sfp-s2n1", "sfp-s0n1"),
        other,
    ]


def test_partners_on_different_nics_keep_their_nics(model: BenchModel) -> None:
    requests = [CircuitRequest("sfp-s0n0", "sfp-s1n0"), CircuitRequest("sfp-s3n1", "sfp-s1n1")]
    assert replace_server(model, requests, "server1", "server2") == [
        CircuitRequest("sfp-s0n0", "sfp-s2n0"),
        CircuitRequest("sfp-s3n1", "sfp-s2n1"),
    ]


def test_a_spare_with_too_few_nics_is_refused_by_name(model: BenchModel) -> None:
    with pytest.raises(CircuitError, match=r"server2 has 1 NICs, too few to replace sfp-s1n1"):
        replace_server(shorn(model, "server2", 1), PAIR_0_1, "server1", "server2")


def test_nics_that_carry_nothing_need_no_counterpart(model: BenchModel) -> None:
    requests = PAIR_0_1[:2]
    assert replace_server(shorn(model, "server2", 1), requests, "server1", "server2")[0].target == "sfp-s2n0"


# -- jobs -------------------------------------------------------------------------------------------------------------


def ends(model: BenchModel, **job: object) -> list[str]:
    return [str(each) for each in job_requests(model, JobModel.model_validate({"name": "job", **job}))]


def test_a_ring_goes_from_the_last_nic_of_each_member_to_the_first_of_the_next(model: BenchModel) -> None:
    assert ends(model, members=["server0", "server1", "server2"], topology="ring") == [
        "sfp-s0n1 to sfp-s1n0", "sfp-s1n0 to sfp-s0n1",
        "sfp-s1n1 to sfp-s2n0", "sfp-s2n0 to sfp-s1n1",
        "sfp-s2n1 to sfp-s0n0", "sfp-s0n0 to sfp-s2n1",
    ]  # fmt: skip


def test_a_ring_of_single_nics_goes_one_way(model: BenchModel) -> None:
    for name in ("server0", "server1", "server2"):
        model = shorn(model, name, 1)
    assert ends(model, members=["server0", "server1", "server2"], topology="ring") == [
        "sfp-s0n0 to sfp-s1n0", "sfp-s1n0 to sfp-s2n0", "sfp-s2n0 to sfp-s0n0",
    ]  # fmt: skip


def test_listed_links_take_the_next_free_nic_of_both(model: BenchModel) -> None:
    links = [["server0", "server1"], ["server2", "server1"]]
    assert ends(model, members=["server0", "server1", "server2"], topology="links", links=links) == [
        "sfp-s0n0 to sfp-s1n0", "sfp-s1n0 to sfp-s0n0", "sfp-s2n0 to sfp-s1n1", "sfp-s1n1 to sfp-s2n0",
    ]  # fmt: skip


def test_who_stands_in_a_members_place_has_its_circuits(model: BenchModel) -> None:
    job = JobModel(name="job", members=("server0", "server1"))
    assert job_requests(model, job, {"server1": "server3"}) == pair_requests(model, "server0", "server3")


def test_an_accelerator_shares_the_risks_of_its_server_and_has_nics_of_its_own(model: BenchModel) -> None:
    server = model.servers[0].model_copy(
        update={"accelerators": (AcceleratorModel(name="gpu0", nics=("sfp-s0n1",)),), "interfaces": ("eth0", "eth1")}
    )
    unit = find_unit(model.model_copy(update={"servers": (server, *model.servers[1:])}), "gpu0")
    assert (unit.server, unit.nics, unit.interfaces) == ("server0", ("sfp-s0n1",), ("eth1",))
    assert unit.risks == {"feed0", "server server0"}


JOB = {"name": "j", "members": ["a", "b", "c"]}


@pytest.mark.parametrize(
    ("fabric", "message"),
    [
        ({"jobs": [JOB]}, "expected two members of a pair, found 3"),
        ({"jobs": [{"name": "j", "members": ["a", "x"]}]}, "found 'x', which is not in servers"),
        ({"jobs": [{"name": "j", "members": ["a", "b"]}], "spares": ["b"]}, "used once"),
        (
            {"jobs": [{"name": "j", "members": ["a", "b"], "topology": "links"}]},
            "expected the key links if and only if the topology is links",
        ),
        (
            {
                "jobs": [
                    {"name": "j", "members": ["a", "b", "c"], "topology": "links", "links": [["a", "b"], ["a", "c"]]}
                ]
            },
            "expected at most 1 links of 'a', found 2",
        ),
    ],
)
def test_a_job_that_cannot_be_is_found_in_the_file(fabric: dict[str, object], message: str, tmp_path: Path) -> None:
    data = yaml.safe_load((Path(__file__).parents[1] / "data" / "small.yaml").read_text()) | {"fabric": fabric}
    path = tmp_path / "bench.yaml"
    path.write_text(yaml.safe_dump(data))
    assert any(message in problem.message for problem in check_bench(path))
