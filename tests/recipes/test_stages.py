"""Stages run once and after the stages that they need, in this process and on a Ray cluster."""

import re
import socket
from importlib.util import find_spec
from threading import Thread

import psutil
import pytest

from evenhand.evaluation import processes
from evenhand.evaluation.errors import InputError, TuningRejected
from evenhand.recipes.settings import Launching
from evenhand.recipes.stages import run_stages
from tests.forked_commands import wait_until
from tests.noted_stages import Noted, stages_in_a_row

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="the extra evenhand[ray] is not installed")


def test_an_error_ends_only_the_stages_that_need_the_stage(tmp_path):
    shared, *rest = stages_in_a_row(tmp_path, "shared", "a", "b")
    refused = TuningRejected("model", "spoiled")
    failing = Noted(tmp_path / "failing", (shared.folder,), error=refused)
    after = Noted(tmp_path / "after", (shared.folder, failing.folder))
    stages = [shared, failing, after, *rest]
    outcomes = {stage.folder: error for stage, error in run_stages(stages, Launching())}
    assert {folder.name: str(error) for folder, error in outcomes.items() if error} == dict.fromkeys(
        ("failing", "after"), "model: spoiled"
    )
    assert all(isinstance(error, TuningRejected | None) for error in outcomes.values()) and len(outcomes) == 5
    assert [len(stage.begun()) for stage in stages] == [1, 1, 0, 1, 1]


def retry_on_timeout(start) -> None:
    """Start a node; retry if a busy machine exceeds the 30 seconds that Ray waits."""
    for _ in range(5):
        try:
            return start()
        except Exception as error:
            if "timed out during startup" not in str(error):
                raise
    pytest.skip("Ray started no node within 30 seconds in five attempts")


@pytest.fixture
def cluster(monkeypatch):
    """A Ray cluster of two nodes with one CPU each, on this machine."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    from ray.cluster_utils import Cluster

    cluster = Cluster()
    try:
        retry_on_timeout(lambda: cluster.add_node(num_cpus=1, include_dashboard=False))
        retry_on_timeout(lambda: cluster.add_node(num_cpus=1))
        yield cluster
    finally:
        cluster.shutdown()


@pytest.mark.slow
@needs_ray
def test_only_the_running_stage_of_a_lost_node_runs_again(cluster, tmp_path):
    leave = tmp_path / "leave"
    rows = [stages_in_a_row(tmp_path / name, "first", "second", "last", leave=leave) for name in ("a", "b")]
    (*done, last), (*others, other) = rows
    rejected = Noted(tmp_path / "rejected", (done[0].folder,), error=TuningRejected("model", "spoiled"))
    after = Noted(tmp_path / "after", (rejected.folder,))
    (lost,) = cluster.worker_nodes

    def lose_a_node() -> None:
        wait_until(lambda: last.begun() and other.begun())
        cluster.remove_node(lost, allow_graceful=False)
        (pid,) = (pid for node, pid in last.begun() + other.begun() if node == lost.node_id)
        wait_until(lambda: not psutil.pid_exists(pid))
        leave.touch()

    loser = Thread(target=lose_a_node, daemon=True)
    loser.start()
    launching = Launching(ray=cluster.address)
    stages = [*done, rejected, after, last, *others, other]
    outcomes = {stage.folder: error for stage, error in run_stages(stages, launching)}
    loser.join()
    assert {folder.name: str(error) for folder, error in outcomes.items() if error} == dict.fromkeys(
        ("rejected", "after"), "model: spoiled"
    )
    assert [len(stage.begun()) for stage in (*done, *others, rejected, after)] == [1] * 5 + [0]
    nodes = [node for node, _ in last.begun() + other.begun()]
    assert sorted(map(nodes.count, set(nodes))) == [1, 2]  # the stage of the lost node ran again on the other node
    assert all((stage.folder / "done").exists() for stage in (*done, last, *others, other))


@needs_ray
def test_an_unusable_ray_is_an_input_error(monkeypatch):
    import ray

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    monkeypatch.setattr(ray, "init", pytest.fail)
    for address in (f"127.0.0.1:{port}", f"ray://127.0.0.1:{port}", f"[::1]:{port}", "127.0.0.1:99999"):
        with pytest.raises(InputError, match=rf"^ray: .*'{re.escape(address)}'"):
            [*run_stages([], Launching(ray=address))]
    monkeypatch.setattr("evenhand.evaluation.errors.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"^ray: .*evenhand\[ray\]"):
        [*run_stages([], Launching(ray="local"))]


def test_ray_does_not_start_within_a_launcher(monkeypatch):
    monkeypatch.setattr(processes, "world_size", lambda: 2)
    with pytest.raises(InputError, match="^ray: "):
        [*run_stages([], Launching(ray="local"))]
