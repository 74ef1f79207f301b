"""Run notebooks in their own kernels, several at a time, and measure what each costs. Needs no Sphinx."""

from __future__ import annotations

import asyncio
import os
import platform
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import psutil
from freshness import library_versions
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode

# Small matrices on several threads are slower by far than on one, the more so on a busy machine.
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
QUIET = ["--IPKernelApp.log_level=40"]  # no remark at each start about unencrypted local sockets
SAMPLE_SECONDS = 0.1
FAILURES = (CellExecutionError, CellTimeoutError, DeadKernelError)
ANSI = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Job:
    """A page to run: its notebook, and the folder its kernel works in."""

    docname: str
    notebook: NotebookNode
    folder: Path


@dataclass(frozen=True)
class Outcome:
    """What became of a job: the executed notebook and its record, or why it failed."""

    job: Job
    record: dict
    error: str | None = None


class KernelPool:
    """Run jobs in ``jobs`` kernels at a time.

    Kernels run with one thread for linear algebra, a fixed hash seed, no personal IPython start-up files, and
    the repository first on the import path.
    """

    def __init__(self, root: Path, scratch: Path, jobs: int = 2, timeout: int = 300) -> None:
        self.jobs, self.timeout = jobs, timeout
        self._stop = threading.Event()
        self._clients: dict[str, NotebookClient] = {}
        paths = [str(root), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.environment = os.environ | dict.fromkeys(ONE_THREAD, "1")
        self.environment |= {"PYTHONPATH": os.pathsep.join(paths), "PYTHONHASHSEED": "0"}
        self.environment |= {"IPYTHONDIR": str(scratch / "ipython"), "JUPYTER_PREFER_ENV_PATH": "1"}
        os.environ["JUPYTER_PREFER_ENV_PATH"] = "1"  # the kernel of this environment, not the user's own

    def run(
        self, jobs: list[Job], started: Callable[[str], None] = lambda docname: None
    ) -> Iterator[Outcome]:
        """Yield the outcome of each job as it ends; on an interrupt no kernel is left behind."""
        with ThreadPoolExecutor(self.jobs, thread_name_prefix="kernel") as pool:
            futures = [pool.submit(self._run_one, job, started) for job in jobs]
            try:
                for future in as_completed(futures):
                    yield future.result()
            except BaseException:
                self._stop.set()
                for future in futures:
                    future.cancel()
                self._kill_all()
                raise

    def _run_one(self, job: Job, started: Callable[[str], None]) -> Outcome:
        if self._stop.is_set():
            return Outcome(job, {}, "interrupted")
        started(job.docname)
        # An event loop of its own in a thread of its own: nbclient then leaves the process's signals alone.
        return asyncio.run(self._execute(job))

    async def _execute(self, job: Job) -> Outcome:
        memory = _PeakMemory()
        client = NotebookClient(
            job.notebook,
            timeout=job.notebook.metadata.get("execution", {}).get("timeout", self.timeout),
            kernel_name=job.notebook.metadata.get("kernelspec", {}).get("name", "python3"),
            extra_arguments=QUIET,
            on_cell_executed=lambda **_: memory.note(_pid(client)),
        )
        self._clients[job.docname] = client
        executed, begin, error = datetime.now(UTC), time.perf_counter(), None
        sampler = asyncio.create_task(memory.sample(lambda: _pid(client)))
        try:
            await client.async_execute(cwd=str(job.folder), env=self.environment)
        except FAILURES as failure:
            error = ANSI.sub("", str(failure)).strip() or repr(failure)
        finally:
            sampler.cancel()
            del self._clients[job.docname]
        record = {
            "executed": executed.isoformat(timespec="seconds"),
            "seconds": round(time.perf_counter() - begin, 2),
            "peak_bytes": memory.peak,
            "versions": library_versions(),
            "machine": machine(),
        }
        return Outcome(job, record, error)

    def _kill_all(self) -> None:
        for client in list(self._clients.values()):
            pid = _pid(client)
            if pid is not None and psutil.pid_exists(pid):
                for process in [*psutil.Process(pid).children(recursive=True), psutil.Process(pid)]:
                    process.kill()


class _PeakMemory:
    """Peak resident memory of a kernel and its children.

    The kernel's own high-water mark is read after each cell where the system keeps one; a sample every
    tenth of a second adds the children.
    """

    def __init__(self) -> None:
        self.peak = 0

    def note(self, pid: int | None) -> None:
        try:
            process = psutil.Process(pid)
            tree = [process, *process.children(recursive=True)]
            self.peak = max(self.peak, sum(p.memory_info().rss for p in tree), _high_water(pid))
        except psutil.Error:
            return  # it has just ended

    async def sample(self, pid: Callable[[], int | None]) -> None:
        while True:
            if (current := pid()) is not None:
                self.note(current)
            await asyncio.sleep(SAMPLE_SECONDS)


def _high_water(pid: int) -> int:
    status = Path(f"/proc/{pid}/status")
    found = re.search(r"VmHWM:\s*(\d+) kB", status.read_text()) if status.exists() else None
    return int(found[1]) * 1024 if found else 0


def _pid(client: NotebookClient) -> int | None:
    return getattr(getattr(client.km, "provisioner", None), "pid", None)


def machine() -> dict[str, str | int]:
    """The machine in words that name no one: system, processor, cores, memory."""
    cpuinfo = Path("/proc/cpuinfo")
    model = re.search(r"model name\s*:\s*(.+)", cpuinfo.read_text()) if cpuinfo.exists() else None
    return {
        "system": platform.system(),
        "processor": model[1].strip() if model else platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        "memory_gib": round(psutil.virtual_memory().total / 2**30),
    }
