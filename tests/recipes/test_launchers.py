"""Launchers: processes exit with their parent or at its interruption, and a Ray cluster survives the loss of a node."""

import re
import socket
import subprocess
import sys
import time
from concurrent.futures.process import BrokenProcessPool, ProcessPoolExecutor
from functools import partial
from importlib.util import find_spec
from threading import Thread
from types import SimpleNamespace

import psutil
import pytest

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.settings import checked
from evenhand.recipes.experiment import run
from evenhand.recipes.launchers import _resources, start_launcher
from evenhand.recipes.settings import AblateSettings, Launching, LoopSettings
from tests.forked_commands import ENVIRONMENT, ROOT, wait_until
from tests.noted_stages import plan_of

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
def test_only_the_running_stage_of_a_lost_node_runs_again(cluster, tmp_path):
    leave, finished = tmp_path / "leave", []
    plans = [plan_of(tmp_path / name, "first", "second", "last", leave=leave) for name in ("a", "b")]
    (*done, last), (*others, other) = (plan.stages for plan in plans)
    (lost,) = cluster.worker_nodes
    launching = Launching(launcher="ray", ray_address=cluster.address)

    def lose_a_node() -> None:
        wait_until(lambda: last.begun() and other.begun())
        cluster.remove_node(lost, allow_graceful=False)
        (pid,) = (pid for node, pid in last.begun() + other.begun() if node == lost.node_id)
        wait_until(lambda: not psutil.pid_exists(pid))
        leave.touch()

    loser = Thread(target=lose_a_node, daemon=True)
    loser.start()
    assert run(plans, launching, on_finished=finished.append) == {}
    loser.join()
    assert sorted(map(id, finished)) == sorted(map(id, plans))
    assert [len(stage.begun()) for stage in (*done, *others)] == [1] * 4
    nodes = [node for node, _ in last.begun() + other.begun()]
    assert sorted(map(nodes.count, set(nodes))) == [1, 2]  # the stage of the lost node ran again on the other node
    assert all((stage.folder / "done").exists() for plan in plans for stage in plan.stages)


def test_errors_of_launchers_are_input_errors(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    message = r"^launcher: .*evenhand\[ray\]"
    with pytest.raises(InputError, match=message), start_launcher(Launching(launcher="ray")):
        pass
    message = "^jobs: one of 2 processes .*fewer jobs"
    with pytest.raises(InputError, match=message), start_launcher(Launching(jobs=2)):
        raise BrokenProcessPool


@pytest.mark.parametrize("name", ["ray_address", "ray_cpus", "ray_gpus"])
@pytest.mark.parametrize("command", [LoopSettings, AblateSettings])
def test_settings_of_ray_need_ray(command, name):
    value = {"ray_address": "auto"}.get(name, 1)
    with pytest.raises(InputError, match=f"{name}: .*--launcher ray"):
        checked(command, {name: value}, "test")
    assert getattr(checked(command, {name: value, "launcher": "ray"}, "test"), name) == value


@pytest.mark.parametrize(
    ("launching", "max_stages"),
    [({}, 1), ({"jobs": 3}, 3), ({"launcher": "ray"}, float("inf")), ({"launcher": "ray", "jobs": 2}, 2)],
)
def test_the_number_of_concurrent_stages(launching, max_stages):
    assert Launching(**launching).max_stages() == max_stages


def test_resources_of_a_stage(caplog):
    nodes = [{"CPU": 8.0}, {"CPU": 4.0, "GPU": 2.0}]
    launching = Launching(launcher="ray")
    assert (_resources(launching, nodes), _resources(launching, nodes[:1])) == ((1, 1.0), (1, 0.0))
    assert _resources(Launching(launcher="ray", ray_cpus=4, ray_gpus=0.5), nodes) == (4, 0.5)
    assert _resources(Launching(launcher="ray", ray_cpus=8, ray_gpus=0), nodes) == (8, 0)
    nodes = [{"CPU": 8.0}, {"CPU": 4.0, "GPU": 2.0}]
    with pytest.raises(InputError, match="^ray_cpus, ray_gpus: .*8 CPUs and 1 GPUs"):
        _resources(Launching(launcher="ray", ray_cpus=8), nodes)
    assert _resources(Launching(launcher="ray", ray_cpus=8, ray_address="auto"), nodes) == (8, 1.0)
    assert "8 CPUs and 1 GPUs" in caplog.text


# Prints the ids of its child processes while they import torch.
PARENT = """
import psutil
from evenhand.recipes.launchers import start_launcher
from evenhand.recipes.settings import Launching

if __name__ == "__main__":
    with start_launcher(Launching(jobs=2)) as start:
        future = start(None)
        print(*(child.pid for child in psutil.Process().children()), flush=True)
        future.result()
"""


@pytest.mark.parametrize("sent", [KeyboardInterrupt, SystemExit])
def test_an_interrupted_command_does_not_wait_for_its_stages(sent):
    minutes = SimpleNamespace(run=partial(time.sleep, 1200))
    with pytest.raises(sent), start_launcher(Launching(jobs=2)) as start:
        future = start(minutes)
        raise sent
    assert isinstance(future.exception(), BrokenProcessPool)  # None if the stage had ended


def test_nor_does_a_command_that_already_ends_with_an_error(monkeypatch):
    shutdown = ProcessPoolExecutor.shutdown

    def interrupted(pool):
        monkeypatch.setattr(ProcessPoolExecutor, "shutdown", shutdown)
        raise SystemExit

    monkeypatch.setattr(ProcessPoolExecutor, "shutdown", interrupted)
    with pytest.raises(SystemExit), start_launcher(Launching(jobs=2)) as start:
        future = start(SimpleNamespace(run=partial(time.sleep, 1200)))
        raise InputError("another stage failed")
    assert isinstance(future.exception(), BrokenProcessPool)


def test_importing_processes_exit_with_their_parent():
    pipe = {"stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", PARENT], cwd=ROOT, env=ENVIRONMENT, **pipe) as parent:
        children = [psutil.Process(int(pid)) for pid in parent.stdout.readline().split()]
        parent.kill()
    assert len(children) >= 2
    assert psutil.wait_procs(children, timeout=600)[1] == []


@needs_ray
def test_an_absent_cluster_is_an_input_error(monkeypatch):
    import ray

    def lost(*arguments, **settings):
        raise ConnectionError("Could not find any running Ray instance.")

    monkeypatch.setattr(ray, "init", lost)
    message = "^ray_address: .*'auto' .Could not find any running Ray instance"
    with pytest.raises(InputError, match=message), start_launcher(Launching(launcher="ray", ray_address="auto")):
        pass


@needs_ray
def test_an_address_without_a_server_is_rejected_before_ray_connects(monkeypatch):
    import ray

    monkeypatch.setattr(ray, "init", pytest.fail)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    for address in (f"127.0.0.1:{port}", f"ray://127.0.0.1:{port}", f"[::1]:{port}", "127.0.0.1:99999"):
        message = rf"^ray_address: .*'{re.escape(address)}'"
        with pytest.raises(InputError, match=message), start_launcher(Launching(launcher="ray", ray_address=address)):
            pass
