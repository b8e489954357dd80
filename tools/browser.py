"""Finds a Chromium for the site tests; installs one only where that asks nobody anything."""

import os
import shutil
import subprocess

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PLACES = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)


def find() -> str | None:
    """The browser's path: on PATH, else where macOS keeps applications."""
    found = [path for name in NAMES if (path := shutil.which(name))]
    return (found + [path for path in PLACES if os.access(path, os.X_OK)] + [None])[0]


def ensure() -> str | None:
    """``None`` when a browser is there (now), else what to do about it."""
    if find() is None and os.name == "posix" and os.geteuid() == 0 and shutil.which("apt-get"):
        print("No browser found: installing chromium with apt-get", flush=True)
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        command = ["apt-get", "install", "-y", "--no-install-recommends", "chromium"]
        if subprocess.run(command, env=quiet, check=False, stdout=subprocess.DEVNULL).returncode:
            subprocess.run(["apt-get", "update"], env=quiet, check=False, stdout=subprocess.DEVNULL)
            subprocess.run(command, env=quiet, check=False, stdout=subprocess.DEVNULL)
    if find() is None:
        return (
            "The site tests read the built book in a real browser, and none was found.\n"
            f"Wanted on PATH: one of {', '.join(NAMES)}.\n"
            "Install Chromium or Chrome, then run `make test-site`."
        )
    return None
