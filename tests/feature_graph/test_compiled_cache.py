"""Compiled loops are kept until any file of their folder changes."""

import fcntl
import os
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from numba.core.errors import TypingError
from numba.core.registry import CPUDispatcher

from evergraph.feature_graph import compiled
from evergraph.feature_graph.compiled import support
from evergraph.feature_graph.compiled.kept import Files, compiled_before
from evergraph.feature_graph.compiled.support import _root

FOLDER = Path(compiled.__file__).parent


def test_a_change_of_any_file_counts(tmp_path):
    copy = shutil.copytree(FOLDER, tmp_path / "compiled", ignore=lambda *_: {"__pycache__"})
    before = compiled.sources(copy)
    assert before == compiled.sources(FOLDER)
    (copy / "support.py").write_text((copy / "support.py").read_text() + "\n")
    assert compiled.sources(copy) != before


def test_every_loop_is_kept_under_the_hash_of_all_files():
    loops = []
    for file in FOLDER.glob("[a-z]*.py"):
        module = import_module(f"{compiled.__name__}.{file.stem}")
        loops += [made for made in vars(module).values() if isinstance(made, CPUDispatcher)]
    assert len(loops) > 30
    for made in loops:
        assert made._cache._cache_file._source_stamp == compiled.sources(FOLDER)


def test_it_is_known_whether_loops_were_compiled_before(tmp_path, capsys, monkeypatch):
    from types import SimpleNamespace

    from evergraph.cli.console import use_threads

    made = SimpleNamespace(_cache=SimpleNamespace(_cache_file=Files(tmp_path, "aA", "new")))
    Files(tmp_path, "aA", "old").save("float32", "earlier")
    assert not compiled_before(made)
    monkeypatch.setattr(support, "adjacency", made)
    use_threads(1)
    assert "compiles its loops" in capsys.readouterr().err
    Files(tmp_path, "bB", "new").save("float32", "code")
    assert compiled_before(made)
    use_threads(1)
    assert capsys.readouterr().err == ""


def test_what_other_sources_left_is_not_read_and_goes(tmp_path):
    old, new, other = (Files(tmp_path, name, stamp) for name, stamp in ("aA", "aB", "bA"))
    for files in (old, other):
        files.save("float32", files._base.name)
    assert new.load("float32") is None
    new.save("float64", "later")
    assert (new.load("float64"), new.load("float32"), old.load("float32")) == ("later", None, None)
    assert other.load("float32") == "b"


COMPILE = """
import sys
import numpy as np
from evergraph.feature_graph.compiled.support import _root, _roots
kind = np.dtype(sys.argv[1])
one, four = np.ones(1, kind), np.full(4, 4, kind)
print("ready", flush=True)
sys.stdin.readline()
inner, outer = _roots(one, four, four, 1, np.empty(4, kind))
made = sum(sum(each.stats.cache_misses.values()) for each in (_root, _roots))
print(made, inner, outer)
"""


def test_processes_that_begin_together_compile_each_loop_once(tmp_path):
    place = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    started = [
        subprocess.Popen([sys.executable, "-c", COMPILE, kind], env=place, **pipes)
        for kind in ("float32", "float64", "float32", "float64")
    ]
    for process in started:
        assert process.stdout.readline() == "ready\n"
    for process in started:
        process.stdin.write("\n")
        process.stdin.flush()
    found = [process.communicate()[0].split() for process in started]
    assert [numbers[1:] for numbers in found] == [
        ["4.0", "24.0"]
    ] * 4  # no type's code is another's
    kinds = [int(numbers[0]) for numbers in found]
    assert kinds[0] + kinds[2] == kinds[1] + kinds[3] == 2  # two loops of each type


def test_a_loop_that_cannot_be_compiled_is_left_to_others():
    files = _root._cache._cache_file
    with pytest.raises(TypingError):
        _root("text")
    with open(f"{files._base}.lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with pytest.raises(BlockingIOError), open(lock.name) as another:
            fcntl.flock(another, fcntl.LOCK_EX | fcntl.LOCK_NB)


LEARN = """
import hashlib, torch
from evergraph.datasets import generate
from evergraph.nn import FGN
from evergraph.stream import node_continuum
torch.set_num_threads(1)
torch.manual_seed(0)
model = FGN(500, 3, concatenate=True, dropout=0.3, hops=2)
optimizer = torch.optim.Adam(model.parameters())
digest = hashlib.sha256()
for batch in node_continuum(generate(), hops=2):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(batch), batch.target % 3).backward()
    optimizer.step()
for value in model.state_dict().values():
    digest.update(value.numpy().tobytes())
print(digest.hexdigest())
"""


@pytest.mark.slow
def test_loops_from_disk_give_the_bits_of_those_just_compiled(tmp_path):
    place = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", LEARN]
    found = [subprocess.check_output(command, env=place, text=True) for _ in range(3)]
    assert len(set(found)) == 1
    assert any(tmp_path.rglob("*.nbc"))


@pytest.mark.slow
def test_no_sum_depends_on_where_arrays_lie(tmp_path):
    place = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}  # loops from disk have no LLVM code
    script = Path(__file__).parent / "address_checks.py"
    out = subprocess.check_output([sys.executable, str(script)], env=place, text=True)
    assert int(out.rsplit("LOOKED AT", 1)[1]) > 100
    assert "FOUND" not in out
