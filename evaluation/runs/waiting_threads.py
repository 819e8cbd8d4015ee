"""OpenMP threads that sleep while they wait, on a busy machine. The setting must precede the import of torch."""

import os

VARIABLES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
BUSY = 0.5  # processors in use by other programs


def let_waiting_threads_sleep() -> str:
    """Set OMP_WAIT_POLICY=passive if other programs use the processors; return why, "" if nothing is set.

    By default, OpenMP's threads wait for each other in a loop. Where other programs take turns on the processors, a
    thread then waits for a whole turn of a thread that does not run: two threads on two busy processors computed 12
    and 16 times less than with this setting, and less than one thread. A user's setting is left alone.
    """
    processors, load = os.cpu_count() or 1, os.getloadavg()[0]
    threads = os.environ.get("OMP_NUM_THREADS", "")
    n_threads = int(threads) if threads.isdecimal() else processors
    if n_threads == 1 or load + n_threads < processors + BUSY or any(name in os.environ for name in VARIABLES):
        return ""
    os.environ["OMP_WAIT_POLICY"] = "passive"
    return f"load {load:.1f} on {processors} processors: threads sleep while they wait (OMP_WAIT_POLICY=passive)"
