"""Pools of other tools for the measurements: what runs a call, and how it is closed."""
import concurrent.futures
import contextlib
import multiprocessing
import os

WORKERS = 2


def trivial(number):
    return number + 1


@contextlib.contextmanager
def process_pool(own_process=False, initializer=None):
    context = multiprocessing.get_context("forkserver" if own_process else "fork")
    calls = 1 if own_process else None
    with concurrent.futures.ProcessPoolExecutor(
        WORKERS, mp_context=context, max_tasks_per_child=calls, initializer=initializer
    ) as pool:
        yield pool


@contextlib.contextmanager
def loky_pool():
    import loky

    pool = loky.get_reusable_executor(max_workers=WORKERS)
    yield pool
    pool.shutdown()


@contextlib.contextmanager
def dask_pool(memory="auto"):
    import dask
    from distributed import Client, LocalCluster

    dask.config.set({"distributed.worker.daemon": True})
    with LocalCluster(
        n_workers=WORKERS, threads_per_worker=1, memory_limit=memory, dashboard_address=None
    ) as cluster, Client(cluster) as client:
        yield client.get_executor(pure=False)


@contextlib.contextmanager
def parsl_pool():
    import tempfile

    import parsl
    from parsl.config import Config
    from parsl.executors import HighThroughputExecutor
    from parsl.providers import LocalProvider

    # Parsl's workers import the function by the name of this module.
    os.environ["PYTHONPATH"] = os.path.dirname(os.path.abspath(__file__))
    with tempfile.TemporaryDirectory() as directory:
        executor = HighThroughputExecutor(
            max_workers_per_node=WORKERS,
            address="127.0.0.1",
            encrypted=False,
            provider=LocalProvider(init_blocks=1, max_blocks=1),
        )
        config = Config(executors=[executor], run_dir=directory, usage_tracking=0)
        with parsl.load(config):
            yield ParslCalls(parsl)


class ParslCalls:
    """The applications of Parsl with the method of an executor."""

    def __init__(self, parsl):
        self._app = parsl.python_app(trivial)

    def submit(self, function, number):
        assert function is trivial
        return self._app(number)


@contextlib.contextmanager
def memory_cgroup(limit):
    """A memory cgroup of version 1 with this limit in bytes; yields a function that enters it."""
    path = f"/sys/fs/cgroup/memory/headroom-pools-{os.getpid()}"
    os.mkdir(path)
    with open(f"{path}/memory.limit_in_bytes", "w") as file:
        file.write(str(limit))

    def enter():
        with open(f"{path}/cgroup.procs", "w") as file:
            file.write(str(os.getpid()))

    yield enter
    os.rmdir(path)
