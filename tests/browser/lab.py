"""JupyterLab from this environment in a real browser: start it, open pages as notebooks, run all their cells."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import psutil
from browsing import ROOT
from playwright.sync_api import Browser, Page

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
PATIENCE = 300  # seconds, for a page on a machine with other work
POLL = 500  # milliseconds

FIND = """
  const shown = window.jupyterapp?.shell?.currentWidget;
  const context = shown?.sessionContext, cells = shown?.content?.widgets;
  const code = (cells ?? []).map((c) => c.model).filter((m) => m.type === "code" && m.sharedModel.getSource().trim());
  const outputs = code.flatMap((m) => Array.from({ length: m.outputs.length }, (_, i) => m.outputs.get(i)));
"""
STATE = f"""() => {{{FIND}
  return {{
    path: shown?.context?.path ?? null,
    notebook: shown?.context?.isReady ? Boolean(cells) : null,
    kernel: context?.session?.kernel?.id ?? null,
    status: context?.session?.kernel?.status ?? null,
    cells: code.length,
    executed: code.filter((m) => m.executionCount !== null).length,
    failed: outputs.some((o) => o.type === "error"),
    dialogs: [...document.querySelectorAll(".jp-Dialog")].map((d) => d.innerText),
  }};
}}"""
FAULTS = f"""() => {{{FIND}
  const all = outputs.map((o) => o.toJSON());
  return {{
    errors: all.filter((o) => o.output_type === "error").map((o) => `${{o.ename}}: ${{o.evalue}}`),
    stderr: all.filter((o) => o.name === "stderr").map((o) => [o.text].flat().join("")),
  }};
}}"""
BOXES = "[...document.querySelectorAll('.jp-NotebookPanel .myst-proof')].map((box) => box.textContent)"


@dataclass
class Visit:
    """What became of one page in JupyterLab.

    Attributes
    ----------
    state : dict
        The last state of the notebook; see ``STATE`` and ``FAULTS``.
    boxes : list of str
        Texts of the boxes of theorems, definitions, proofs.
    processor_seconds : float
        Processor time of the kernel: wall time says little on a busy machine.
    peak_bytes : int
        Largest memory of the kernel that was seen.
    """

    state: dict = field(default_factory=dict)
    boxes: list[str] = field(default_factory=list)
    processor_seconds: float = 0.0
    peak_bytes: int = 0

    def measure(self, kernel: psutil.Process) -> None:
        times = kernel.cpu_times()
        self.processor_seconds = times.user + times.system
        self.peak_bytes = max(self.peak_bytes, kernel.memory_info().rss, _high_water(kernel.pid))


def copy_pages(folder: Path) -> Path:
    """Copy the sources of the book into `folder`: JupyterLab may save what it opens."""
    leave = shutil.ignore_patterns("_*", ".*")
    shutil.copytree(ROOT / "book", folder / "book", ignore=leave)
    return folder


@contextmanager
def jupyterlab(folder: Path, scratch: Path) -> Iterator[tuple[str, psutil.Process]]:
    """Start JupyterLab over `folder` as Binder does, by ``postBuild`` and ``start``; give the address of a page.

    The reader's own settings play no part. The address has a gap for the path to open.
    """
    environment = {key: value for key, value in os.environ.items() if key not in THREADS}
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment["PATH"]])
    for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        environment[name] = str(scratch / name.lower())
    subprocess.run([ROOT / "postBuild"], env=environment, check=True, capture_output=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    token = secrets.token_hex(8)
    command = [ROOT / "start", "jupyter", "lab", "--no-browser", "--allow-root", "--expose-app-in-browser"]
    command += [f"--ServerApp.port={port}", "--ServerApp.port_retries=0", f"--IdentityProvider.token={token}"]
    with (scratch / "jupyterlab.log").open("w") as log:
        server = subprocess.Popen([*command, f"--ServerApp.root_dir={folder}"], env=environment, stdout=log, stderr=log)
    try:
        _wait_for(f"http://127.0.0.1:{port}/api", server, scratch / "jupyterlab.log")
        yield f"http://127.0.0.1:{port}/{{path}}?reset&token={token}", psutil.Process(server.pid)
    finally:
        server.terminate()  # it ends its kernels first
        server.wait(60)


def visit_pages(browser: Browser, address: str, server: psutil.Process, paths: list[str], lanes: int = 2):
    """Open each path and run all cells, `lanes` pages at a time; yield ``(path, Visit)`` as each is done."""
    contexts = [browser.new_context(viewport={"width": 1400, "height": 1000}) for _ in range(lanes)]
    waiting, free, busy = deque(paths), list(contexts), {}  # a lane keeps its cache of JupyterLab's scripts
    while waiting or busy:
        while waiting and free:
            path, context, visit = waiting.popleft(), free.pop(), Visit()
            context.set_default_timeout(PATIENCE * 1000)
            page = context.new_page()
            busy[path] = (visit, page, _steps(page, visit, address, server, path))
        for path, (visit, page, steps) in list(busy.items()):
            if next(steps, "done") == "done":
                del busy[path]
                free.append(page.context)
                page.close()
                yield path, visit
    for context in contexts:
        context.close()


def _steps(page: Page, visit: Visit, address: str, server: psutil.Process, path: str) -> Iterator[str]:
    """Go through one page; between two steps another page may have its turn."""
    end = time.monotonic() + PATIENCE
    page.goto(address.format(path=path), wait_until="commit")

    def until(reached) -> Iterator[str]:
        while time.monotonic() < end:
            page.wait_for_timeout(POLL)
            visit.state = page.evaluate(STATE)
            if visit.state["dialogs"] or reached(visit.state):
                return
            yield "waiting"

    yield from until(lambda state: state["notebook"] is False or state["notebook"] and state["status"] == "idle")
    if visit.state["notebook"] and visit.state["status"] == "idle":
        kernel = _kernel(server, visit.state["kernel"])
        page.get_by_role("menuitem", name="Run", exact=True).click()
        page.get_by_role("menuitem", name="Run All Cells", exact=True).click()

        def finished(state) -> bool:
            visit.measure(kernel)
            return state["status"] == "idle" and (state["executed"] == state["cells"] or state["failed"])

        yield from until(finished)
        visit.state |= page.evaluate(FAULTS)
        visit.boxes = page.evaluate(BOXES)
        page.evaluate("window.jupyterapp.shell.currentWidget.sessionContext.shutdown()")


def _kernel(server: psutil.Process, identity: str) -> psutil.Process:
    return next(p for p in server.children(recursive=True) if any(identity in word for word in p.cmdline()))


def _high_water(pid: int) -> int:
    """The kernel's own record of its largest memory, where the system keeps one."""
    status = Path(f"/proc/{pid}/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), 0)


def _wait_for(url: str, server: subprocess.Popen, log: Path) -> None:
    for _ in range(600):
        try:
            urlopen(url, timeout=5).close()
            return
        except (URLError, OSError):
            if server.poll() is not None:
                break
            time.sleep(0.1)
    raise RuntimeError(f"JupyterLab did not start:\n{log.read_text()}")
