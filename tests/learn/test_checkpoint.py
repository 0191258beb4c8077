"""Checkpoint files: two generations, no harm by full disks, damage, threads or other programs."""

import os
import resource
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest
import torch
from typer.testing import CliRunner

from evergraph.cli import app
from evergraph.learn import CheckpointError, CheckpointWarning
from evergraph.learn.checkpoint import (
    damaged,
    locked,
    previous,
    read_checkpoint,
    write_checkpoint,
)


def put(path, number):
    write_checkpoint(path, {"a": torch.full((1000,), float(number))}, {"n": number})


def got(path):
    tensors, values = read_checkpoint(path)
    assert (tensors["a"] == values["n"]).all()
    return values["n"]


def names(folder):
    return sorted(path.name for path in folder.iterdir())


DAMAGES = {
    "empty": lambda content: b"",
    "cut in the header": lambda content: content[:50],
    "cut in the data": lambda content: content[:-100],
    "longer": lambda content: content + b"more",
    "flipped bit": lambda content: content[:-100] + bytes([content[-100] ^ 1]) + content[-99:],
    "zeros": lambda content: bytes(len(content)),
    "nested": lambda content: (10**5 + 8).to_bytes(8, "little") + b"[" * 10**5,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_the_generation_before_is_read_if_the_newest_is_damaged(tmp_path, damage):
    path = tmp_path / "c"
    put(path, 1)
    put(path, 2)
    assert got(path) == 2
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    with pytest.warns(CheckpointWarning, match=r"c is truncated or damaged .*c.previous, is used"):
        assert got(path) == 1
    assert names(tmp_path) == ["c", "c.previous"]  # reading changes nothing
    put(path, 3)  # a damaged file is no reason not to save
    assert got(path) == 3
    if damage != "flipped bit":  # which no header tells
        assert got(previous(path)) == 1
        assert damaged(path).exists()


def test_without_a_whole_generation_the_newest_is_named(tmp_path):
    path = tmp_path / "c"
    put(path, 1)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match=r"c is truncated or damaged .*; restore it from"):
        read_checkpoint(path)
    put(previous(path), 1)
    previous(path).write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"c is truncated or damaged .*; restore it from"):
        read_checkpoint(path)


def test_bytes_are_a_function_of_the_content(tmp_path):
    one, other = tmp_path / "a" / "x", tmp_path / "b" / "y"
    tensors = {"a": torch.ones(3), "b": torch.zeros(2, dtype=torch.int64)}
    write_checkpoint(one, tensors, {"p": 1, "q": 2})
    write_checkpoint(other, dict(reversed(tensors.items())), {"q": 2, "p": 1})
    assert one.read_bytes() == other.read_bytes()


@pytest.mark.parametrize("kind", ["text", "folder", "link to text"])
def test_foreign_files_are_left_alone(tmp_path, kind):
    path = tmp_path / "c"
    if kind == "folder":
        path.mkdir()
    else:
        (tmp_path / "letter").write_text("dear all")
        (path.symlink_to if kind == "link to text" else path.hardlink_to)(tmp_path / "letter")
    with pytest.raises(CheckpointError, match="is no checkpoint of this program: it is left alone"):
        put(path, 1)
    assert path.is_dir() or path.read_text() == "dear all"
    assert not [name for name in names(tmp_path) if name.startswith(".")]


@contextmanager
def nobody():
    """Without the rights of root, for whom there are no permissions."""
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_no_permission_is_one_line_and_nothing_is_lost(tmp_path):
    path = tmp_path / "folder" / "c"
    put(path, 1)
    for closed in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        closed.chmod(0o755)  # others may look, not write
    path.parent.chmod(0o555)
    try:
        with nobody(), pytest.raises(CheckpointError, match=r"written \(Permission denied\); what"):
            put(path, 2)
        with nobody(), pytest.raises(CheckpointError, match=r"written \(Permission denied\)"):
            locked(path).__enter__()
        path.parent.chmod(0o000)
        with nobody(), pytest.raises(CheckpointError, match=r"written \(Permission denied\); what"):
            put(path, 2)
        with nobody(), pytest.raises(CheckpointError, match=r"read \(Permission denied\)"):
            read_checkpoint(path)
    finally:
        path.parent.chmod(0o755)
    assert got(path) == 1
    assert names(path.parent) == ["c"]


def test_a_folder_that_is_a_file_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match=r"could not be written \(File exists\)"):
        put(tmp_path / "file" / "c", 1)


def test_a_disk_that_is_full_in_mid_write_loses_nothing(tmp_path):
    """The limit on file sizes stands for the disk: the kernel writes a part, then refuses."""
    path = tmp_path / "c"
    put(path, 1)
    size = path.stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size - 100, hard))
    try:
        with pytest.raises(CheckpointError, match=r"\(File too large\); what was there before is"):
            put(path, 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert got(path) == 1
    assert names(tmp_path) == ["c"]


def test_files_of_dead_writers_are_swept_and_others_stay(tmp_path):
    path = tmp_path / "c[1]"  # no pattern
    dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"],
                          capture_output=True, check=True, text=True).stdout.strip()  # fmt: skip
    left = [tmp_path / f".{path.name}.{owner}-1-1" for owner in (dead, os.getpid(), os.getppid())]
    note = tmp_path / f".{path.name}.notes-of-mine-1"
    for file in (*left, note):
        file.write_text("")
    put(path, 1)
    assert [file.exists() for file in left] == [False, False, True]
    assert note.exists()


def test_threads_that_save_to_one_path_leave_whole_generations(tmp_path):
    path, errors = tmp_path / "c", []

    def work(number):
        try:
            for step in range(8):
                put(path, number * 100 + step)
                got(path)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert got(path) % 100 == 7 or got(previous(path)) % 100 == 7
    assert names(tmp_path) == ["c", "c.previous"]


def test_a_second_process_is_refused(tmp_path):
    path = tmp_path / "c"
    with locked(path):
        with pytest.raises(CheckpointError, match="is in use by another process; wait for it"):
            locked(path).__enter__()
        put(path, 1)
    with locked(path):
        pass
    assert names(tmp_path) == ["c"]


TRUNCATED = """
import sys, torch
from evergraph import FGN, Finetune, Learner, node_continuum
from evergraph.datasets import generate
batches = list(node_continuum(generate()))[:3]
learner = Learner(FGN(500), Finetune())
learner.observe(batches[0])
learner.save(sys.argv[1])
other = Learner(FGN(500), Finetune())
other.load(sys.argv[1])
with open(sys.argv[1], "r+b") as file:
    file.truncate(10)  # memory that the file backed would be gone
other.observe(batches[1])
learner.observe(batches[1])
print(other.digest() == learner.digest())
"""


def test_a_file_truncated_under_a_loaded_model_does_not_kill_it(tmp_path):
    command = [sys.executable, "-c", TRUNCATED, str(tmp_path / "c")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "True"


def test_the_command_line_says_which_generation_it_uses(tmp_path):
    path = tmp_path / "state"
    command = [
        "run", "--dataset", "generated", "--method", "analytic", "--seeds", "1",
        "--checkpoint", str(path), "--every", "0", "--json", "--out", str(tmp_path),
    ]  # fmt: skip
    assert CliRunner().invoke(app, command).exit_code == 0
    path.write_bytes(path.read_bytes()[:1000])
    again = [
        sys.executable,
        "-m",
        "evergraph",
        *command,
        "--resume",
    ]  # warnings are no errors there
    resumed = subprocess.run(again, capture_output=True, text=True, check=False)
    assert resumed.returncode == 0, resumed.stderr
    told = " ".join(resumed.stderr.split())
    assert told.count("Warning:") == 1
    assert "is truncated or damaged" in told
    assert "Traceback" not in told
