"""From what the user names to recordings: a file, a folder, or a made-up stream."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from evergraph.apps.action import dsads, ward
from evergraph.apps.action.folder import RATE, read_folder
from evergraph.apps.action.generate import generate
from evergraph.apps.action.recording import Recordings

Progress = Callable[[int, int], None]


def load(
    where: str, rate: float | None = None, progress: Progress = lambda done, total: None
) -> Recordings:
    """Find out what is there, and read it.

    Args:
        where: `generated`; a DSADS `.npz` file or its folder `a01/p1/s01.txt`; a WARD `ward.mat`
            or its folder `Subject1/a1t1.mat`; or a folder of CSV or Parquet files.
        rate: samples per second: of WARD, whose rate is not certain, and to which the user's own
            files are brought.
        progress: called with the files read and all files.
    """
    if where == "generated":
        return generate()
    path = Path(where)
    if not path.exists():
        raise ValueError(f"no file or folder at {path}; give one, or `generated` for a first try")
    if path.is_file():
        if path.suffix == ".npz":
            return dsads.read_npz(path)
        if path.suffix == ".mat":
            return ward.read_converted(path, rate or ward.RATE)
        raise ValueError(
            f"{path} must be a DSADS .npz or a WARD .mat file; put recordings of your own, as CSV "
            "or Parquet, into a folder and name the folder"
        )
    if next(path.rglob("a*t*.mat"), None) is not None:
        return ward.read_raw(path, rate or ward.RATE)
    if next(path.rglob("a[0-9]*/p[0-9]*/s[0-9]*.txt"), None) is not None:
        return dsads.read_text(path)
    return read_folder(path, rate or RATE, progress)
