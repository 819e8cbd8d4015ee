"""The setting that OpenMP threads sleep while they wait, for a busy machine. It must precede the import of torch."""

import os

VARIABLES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
BUSY = 0.5  # the load of other programs, in processors, that counts as busy


def let_waiting_threads_sleep() -> str:
    """Set OMP_WAIT_POLICY=passive if other programs use the processors; return the reason, or "" if nothing is set.

    By default, OpenMP threads wait for each other in a busy loop. If other programs share the processors, a thread may
    wait during a whole time slice for a thread that is not scheduled: in measurements with two threads on two busy
    processors, the throughput was 12 and 16 times lower than with this setting, and lower than with one thread. A value
    that the user has set is not changed.
    """
    processors, load = os.cpu_count() or 1, os.getloadavg()[0]
    threads = os.environ.get("OMP_NUM_THREADS", "")
    n_threads = int(threads) if threads.isdecimal() else processors
    if n_threads == 1 or load + n_threads < processors + BUSY or any(name in os.environ for name in VARIABLES):
        return ""
    os.environ["OMP_WAIT_POLICY"] = "passive"
    return f"load {load:.1f} on {processors} processors: threads sleep while they wait (OMP_WAIT_POLICY=passive)"
