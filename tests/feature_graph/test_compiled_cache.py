"""Compiled loops are kept until any file of their folder changes."""

import shutil
from importlib import import_module
from pathlib import Path

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
