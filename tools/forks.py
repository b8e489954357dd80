"""Kernels that start with torch and Matplotlib imported: forks of one process that has imported them.

Every kernel of its own would take seconds for that, and the book has thirty. `use` replaces what
jupyter_client starts kernels with, in this process; the forks end with it.
"""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from jupyter_client.provisioning import local_provisioner

LAUNCHER = "ipykernel_launcher"
SHARED = ("ipykernel.kernelapp", "ipykernel.zmqshell", "matplotlib.pyplot", "pandas", "seaborn", "torch")
BACKEND = {"MPLBACKEND": "module://matplotlib_inline.backend_inline"}  # which a kernel says before it imports


def use() -> None:
    """From now on start kernels as forks, where the system has them and libraries allow them."""
    if sys.platform == "linux":
        local_provisioner.launch_kernel = launch  # type: ignore[assignment]


@dataclass
class Fork:
    """A kernel that has been forked, with what jupyter_client asks of a `Popen`."""

    pid: int
    stdin = stdout = stderr = None

    def poll(self) -> int | None:
        """None as long as it runs, then 0, whatever it returned."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return 0
        return None

    def wait(self) -> int:
        """Return once it has ended."""
        while self.poll() is None:
            time.sleep(0.01)
        return 0

    def send_signal(self, number: int) -> None:
        """Send a signal."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)


@cache
def server(owner: int) -> "subprocess.Popen[str]":
    """The process that forks for the process of this number, and ends with it."""
    command, pipe = [sys.executable, __file__], subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env={**os.environ, **BACKEND})


def launch(command: list[str], env: dict[str, str] | None = None, cwd: Any = None, **rest: Any) -> Fork:
    """Start a kernel; its output goes nowhere, but for what it sends as a kernel."""
    arguments = command[command.index(LAUNCHER) :]
    forking = server(os.getpid())
    asked, answers = forking.stdin, forking.stdout
    assert asked is not None and answers is not None
    print(json.dumps([arguments, env or dict(os.environ), str(cwd or os.getcwd())]), file=asked, flush=True)
    if not (number := answers.readline()):
        raise RuntimeError("the process that forks kernels has ended")
    return Fork(int(number))


def serve() -> None:
    """Import, then fork for every line that comes, and answer with the number of the process."""
    del sys.path[0]  # the folder of this file
    for name in SHARED:
        import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # who ends leaves nothing behind
    while line := sys.stdin.readline():
        if not (pid := os.fork()):
            become(*json.loads(line))
        os.setpgid(pid, pid)  # signals are for a kernel's whole group
        print(pid, flush=True)


def become(arguments: list[str], env: dict[str, str], cwd: str) -> None:
    """Be a kernel, and end as one."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nowhere, stream)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(env, JPY_PARENT_PID=str(os.getppid()))  # without its parent it ends
    os.chdir(cwd)
    sys.argv = arguments
    try:
        import_module("ipykernel.kernelapp").launch_new_instance()
    finally:
        os._exit(0)


if __name__ == "__main__":
    serve()
