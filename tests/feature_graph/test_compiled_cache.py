"""Compiled loops are kept until any file of their folder changes."""

import os
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from numba.core.registry import CPUDispatcher

from evergraph.feature_graph import compiled

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
