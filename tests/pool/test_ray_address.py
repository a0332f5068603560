"""Which cluster is meant, whether it is the joined one, and whether anything listens there."""

import doctest
import socket
import sys

import pytest

from labelwise.errors import BadInput, MissingDependency
from labelwise.pool.ray import supervision as ray_address
from labelwise.pool.ray.parts import ClusterFailed
from labelwise.pool.ray.supervision import (
    ClusterAddress,
    check_cluster_listens,
    check_joined_cluster,
    find_cluster_address,
)


@pytest.mark.parametrize(
    ("on", "address"),
    [
        ("ray", ""),
        ("ray:auto", "auto"),
        ("ray:node:6379", "node:6379"),
        ("ray://node:10001", "ray://node:10001"),
        ("ray:[::1]:6379", "[::1]:6379"),
    ],
)
def test_the_address_is_what_on_names(on, address, monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert find_cluster_address(on) == address


def test_ray_alone_means_the_cluster_of_the_environment(monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "ray://node:10001")
    assert find_cluster_address("ray") == "ray://node:10001"
    assert find_cluster_address("ray:other:1") == "other:1"


@pytest.mark.parametrize("on", ["ray:node", "ray://node", "ray://", "ray:node:x", "ray:node:70000"])
def test_an_address_without_a_port_is_refused(on):
    with pytest.raises(BadInput, match=r"the address of a Ray cluster is HOST:PORT; got '.+'"):
        find_cluster_address(on)


@pytest.mark.parametrize(
    ("address", "joined", "same"),
    [
        ("localhost:1", "127.0.0.1:1", True),
        ("127.0.0.1:1", "127.0.0.2:1", True),  # a cluster of this machine
        ("127.0.0.2:1", "127.0.0.2:2", False),
        ("127.0.0.3:1", "127.0.0.2:1", False),
        ("ray://127.0.0.2:1", "ray://127.0.0.2:1", True),
        ("ray://127.0.0.2:1", "127.0.0.2:1", False),  # a client's server is no head
        ("127.0.0.2:1", "ray://127.0.0.2:1", False),
        ("auto", "127.0.0.2:1", True),
        ("127.0.0.2:1", "None", True),  # nobody knows where
    ],
)
def test_another_cluster_than_the_joined_one_is_refused(address, joined, same):
    if same:
        check_joined_cluster(address, joined)
        return
    with pytest.raises(BadInput, match=r"call ray.shutdown\(\) before it joins the one at") as told:
        check_joined_cluster(address, joined)
    assert f"at {joined};" in str(told.value) and str(told.value).endswith(address)


@pytest.mark.parametrize("prefix", ["", "ray://"])
def test_an_address_where_nothing_listens_is_refused(prefix, monkeypatch):
    monkeypatch.setitem(sys.modules, "grpc", sys)  # whether it is installed or not
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"{prefix}127.0.0.1:{server.getsockname()[1]}"
        check_cluster_listens(address)
        assert ClusterAddress.of(address).listens()
    with pytest.raises(ClusterFailed, match=f"no Ray cluster answers at {address}; check the add"):
        check_cluster_listens(address)


def test_a_missing_grpcio_is_told_where_it_is_needed(monkeypatch):
    monkeypatch.setitem(sys.modules, "grpc", None)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        check_cluster_listens(address)
        with pytest.raises(MissingDependency, match=r"run pip install 'labelwise\[ray\]'"):
            check_cluster_listens(f"ray://{address}")


def test_the_examples_run(monkeypatch):
    found = doctest.testmod(ray_address)
    assert found.attempted > 0 and found.failed == 0
