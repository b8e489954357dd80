"""Finds a browser for the site tests, and says how to install one; it never does so itself.

``python tools/browser.py`` prints the path of the browser, or fails with that sentence.
"""

import os
import shutil
import sys

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PLACES = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
COMMANDS = {  # by the program that installs
    "apt-get": "apt-get update && apt-get install -y chromium",
    "dnf": "dnf install chromium",
    "pacman": "pacman -S chromium",
    "brew": "brew install --cask google-chrome",
}


def find() -> str | None:
    """The browser's path: on PATH, else where macOS keeps applications."""
    found = [path for name in NAMES if (path := shutil.which(name))]
    return (found + [path for path in PLACES if os.access(path, os.X_OK)] + [None])[0]


def problem() -> str | None:
    """``None`` where a browser is found, else one sentence that says which command installs one."""
    if find() is not None:
        return None
    known = [command for program, command in COMMANDS.items() if shutil.which(program)]
    if not known:
        cure = f"install Chromium or Chrome, so that PATH has one of {', '.join(NAMES)}"
    else:
        cure = f"install one with `{known[0]}`" + ("" if "brew" in known[0] else " (as root)")
    return f"The site tests read the built book in a browser, and none was found: {cure}."


if __name__ == "__main__":
    if missing := problem():
        sys.exit(missing)
    print(find())
