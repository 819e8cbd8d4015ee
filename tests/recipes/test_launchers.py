"""Where stages run: processes that end with their parent, a Ray cluster that loses a node in mid-sweep."""

import re
import socket
import subprocess
import sys
from concurrent.futures.process import BrokenProcessPool
from importlib.util import find_spec
from threading import Thread

import psutil
import pytest

from evenhand.evaluation.errors import InputError
from evenhand.recipes.checking import checked
from evenhand.recipes.experiment import run
from evenhand.recipes.launchers import _resources, launched
from evenhand.recipes.settings import AblateSettings, Launching, LoopSettings
from tests.forked_commands import ENVIRONMENT, ROOT, wait_until
from tests.noted_stages import plan_of

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="the extra evenhand[ray] is not installed")


def patiently(start) -> None:
    """Start a node, again where it took longer than the 30 seconds that Ray waits: the machine may be busy."""
    for _ in range(5):
        try:
            return start()
        except Exception as error:
            if "timed out during startup" not in str(error):
                raise
    pytest.skip("this machine is so busy that Ray starts no node within its own 30 seconds, five times over")


@pytest.fixture
def cluster(monkeypatch):
    """A Ray cluster of two nodes with one CPU each, on this machine."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    from ray.cluster_utils import Cluster

    cluster = Cluster()
    try:
        patiently(lambda: cluster.add_node(num_cpus=1, include_dashboard=False))
        patiently(lambda: cluster.add_node(num_cpus=1))
        yield cluster
    finally:
        cluster.shutdown()


@pytest.mark.slow
@needs_ray
def test_a_node_lost_in_mid_sweep_costs_what_it_was_at_and_no_more(cluster, tmp_path):
    leave, finished = tmp_path / "leave", []
    plans = [plan_of(tmp_path / name, "first", "second", "last", leave=leave) for name in ("a", "b")]
    (*done, last), (*others, other) = (plan.stages for plan in plans)
    (lost,) = cluster.worker_nodes
    told = Launching(launcher="ray", ray_address=cluster.address)

    def lose_a_node() -> None:
        wait_until(lambda: last.begun() and other.begun())
        cluster.remove_node(lost, allow_graceful=False)
        (pid,) = (pid for node, pid in last.begun() + other.begun() if node == lost.node_id)
        wait_until(lambda: not psutil.pid_exists(pid))
        leave.touch()

    loser = Thread(target=lose_a_node, daemon=True)
    loser.start()
    assert run(plans, told, on_finished=finished.append) == {}
    loser.join()
    assert sorted(map(id, finished)) == sorted(map(id, plans))
    assert [len(stage.begun()) for stage in (*done, *others)] == [1] * 4
    nodes = [node for node, _ in last.begun() + other.begun()]
    assert sorted(map(nodes.count, set(nodes))) == [1, 2]  # what the lost one was at began again on the other
    assert all((stage.folder / "done").exists() for plan in plans for stage in plan.stages)


def test_without_the_extra_the_fix_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    message = r"launcher: ray is not installed; pip install 'evenhand\[ray\]'"
    with pytest.raises(InputError, match=message), launched(Launching(launcher="ray")):
        pass


@pytest.mark.parametrize("name", ["ray_address", "ray_cpus", "ray_gpus"])
@pytest.mark.parametrize("command", [LoopSettings, AblateSettings])
def test_what_ray_reads_needs_ray(command, name):
    value = {"ray_address": "auto"}.get(name, 1)
    with pytest.raises(InputError, match=f"{name}: only Ray uses it; give --launcher ray"):
        checked(command, {name: value}, "test")
    assert getattr(checked(command, {name: value, "launcher": "ray"}, "test"), name) == value


@pytest.mark.parametrize(
    ("launching", "at_once"),
    [({}, 1), ({"jobs": 3}, 3), ({"launcher": "ray"}, float("inf")), ({"launcher": "ray", "jobs": 2}, 2)],
)
def test_how_many_stages_are_at_work_at_once(launching, at_once):
    assert Launching(**launching).max_stages() == at_once


def test_a_stage_takes_a_gpu_where_there_is_one():
    nodes = [{"CPU": 8.0}, {"CPU": 4.0, "GPU": 2.0}]
    ours = Launching(launcher="ray")
    assert (_resources(ours, nodes), _resources(ours, nodes[:1])) == ((1, 1.0), (1, 0.0))
    assert _resources(Launching(launcher="ray", ray_cpus=4, ray_gpus=0.5), nodes) == (4, 0.5)
    assert _resources(Launching(launcher="ray", ray_cpus=8, ray_gpus=0), nodes) == (8, 0)


def test_a_stage_that_fits_on_no_node_is_refused_here_and_waited_for_on_a_cluster(caplog):
    nodes = [{"CPU": 8.0}, {"CPU": 4.0, "GPU": 2.0}]
    with pytest.raises(InputError, match="ray_cpus, ray_gpus: no node has 8 CPUs and 1 GPUs; ask for less, or give"):
        _resources(Launching(launcher="ray", ray_cpus=8), nodes)
    assert _resources(Launching(launcher="ray", ray_cpus=8, ray_address="auto"), nodes) == (8, 1.0)
    assert "stages wait for such a node" in caplog.text


# Two processes are at their imports when this says so.
PARENT = """
import psutil
from evenhand.recipes.launchers import launched
from evenhand.recipes.settings import Launching

if __name__ == "__main__":
    with launched(Launching(jobs=2)) as start:
        future = start(None)
        print(*(child.pid for child in psutil.Process().children()), flush=True)
        future.result()
"""


def test_processes_that_are_at_their_imports_do_not_outlive_their_parent():
    pipe = {"stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", PARENT], cwd=ROOT, env=ENVIRONMENT, **pipe) as parent:
        children = [psutil.Process(int(pid)) for pid in parent.stdout.readline().split()]
        parent.kill()
    assert len(children) >= 2
    assert psutil.wait_procs(children, timeout=600)[1] == []


def test_a_process_that_is_killed_is_one_clear_error():
    message = "jobs: one of 2 processes was killed, .*fewer jobs"
    with pytest.raises(InputError, match=message), launched(Launching(jobs=2)):
        raise BrokenProcessPool  # as the pool's future says it


@needs_ray
def test_a_cluster_that_is_not_there_is_one_clear_error(monkeypatch):
    import ray

    def lost(*arguments, **settings):
        raise ConnectionError("Could not find any running Ray instance.")

    monkeypatch.setattr(ray, "init", lost)
    told = Launching(launcher="ray", ray_address="auto")
    message = "ray_address: Ray has no cluster to join at 'auto' .Could not find any running Ray instance"
    with pytest.raises(InputError, match=message), launched(told):
        pass


@needs_ray
def test_an_address_that_nothing_listens_at_is_refused_before_ray_tries(monkeypatch):
    import ray

    monkeypatch.setattr(ray, "init", pytest.fail)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    for address in (f"127.0.0.1:{port}", f"ray://127.0.0.1:{port}", f"[::1]:{port}", "127.0.0.1:99999"):
        message = rf"^ray_address: nothing listens at '{re.escape(address)}' .*`ray start --head`"
        with pytest.raises(InputError, match=message), launched(Launching(launcher="ray", ray_address=address)):
            pass
