"""Provenance of results: the commit and the versions that made them."""

from __future__ import annotations

import platform
import subprocess
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from evergraph import __version__

PACKAGES = ("torch", "torch_geometric", "numpy", "numba")


def provenance() -> dict[str, object]:
    """The commit and the versions that made a result."""
    versions = {"python": platform.python_version(), "evergraph": __version__}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):  # some are optional
            versions[name] = version(name)
    return {"commit": commit(), "versions": versions}


def commit() -> str | None:
    """The commit of the source tree, marked if files differ from it; None outside of git."""
    here = Path(__file__).parent

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(here), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        if not git("ls-files", __file__):
            return None  # installed inside somebody else's repository
        changed = git("status", "--porcelain", "--untracked-files=no", "--", ":/evergraph")
        return git("rev-parse", "HEAD") + ("+changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return None
