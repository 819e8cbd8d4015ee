"""Points run on a Ray cluster."""

import re
import socket
from importlib.util import find_spec
from threading import Thread

import psutil
import pytest

from evenhand.evaluation.errors import InputError, TuningRejected
from evenhand.evaluation.runs import processes
from evenhand.recipes.ray_tasks import run_on_ray
from evenhand.recipes.tuning_settings import Launching
from tests.forked_commands import wait_until
from tests.noted_points import NotedPoint, run_noted

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="the extra evenhand[ray] is not installed")


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
def test_only_the_running_point_of_a_lost_node_runs_again(cluster, tmp_path):
    leave = tmp_path / "leave"
    done = NotedPoint(tmp_path / "done")
    rejected = NotedPoint(tmp_path / "rejected", error=TuningRejected("tuning", "spoiled"))
    last, other = (NotedPoint(tmp_path / name, leave) for name in ("last", "other"))
    (lost,) = cluster.worker_nodes

    def lose_a_node() -> None:
        wait_until(lambda: last.begun() and other.begun())
        cluster.remove_node(lost, allow_graceful=False)
        (pid,) = (pid for node, pid in last.begun() + other.begun() if node == lost.node_id)
        wait_until(lambda: not psutil.pid_exists(pid))
        leave.touch()

    loser = Thread(target=lose_a_node, daemon=True)
    loser.start()
    points = [done, rejected, last, other]
    outcomes = dict(run_on_ray(points, run_noted, Launching(ray=cluster.address)))
    loser.join()
    assert {point.folder.name: str(error) for point, error in outcomes.items() if error} == {
        "rejected": "tuning: spoiled"
    }
    assert [len(point.begun()) for point in (done, rejected)] == [1, 1]
    nodes = [node for node, _ in last.begun() + other.begun()]
    assert sorted(map(nodes.count, set(nodes))) == [1, 2]  # the point of the lost node ran again on the other node
    assert all((point.folder / "done").exists() for point in points)


@needs_ray
def test_an_unusable_ray_is_an_input_error(monkeypatch):
    import ray

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    monkeypatch.setattr(ray, "init", pytest.fail)
    for address in (f"127.0.0.1:{port}", f"ray://127.0.0.1:{port}", f"[::1]:{port}", "127.0.0.1:99999"):
        with pytest.raises(InputError, match=rf"^ray: .*'{re.escape(address)}'"):
            [*run_on_ray([], run_noted, Launching(ray=address))]
    monkeypatch.setattr("evenhand.evaluation.errors.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"^ray: .*evenhand\[ray\]"):
        [*run_on_ray([], run_noted, Launching(ray="local"))]


def test_ray_does_not_start_within_a_launcher(monkeypatch):
    monkeypatch.setattr(processes, "world_size", lambda: 2)
    with pytest.raises(InputError, match="^ray: "):
        [*run_on_ray([], run_noted, Launching(ray="local"))]
