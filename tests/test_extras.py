"""Optional dependencies that are not installed."""

import subprocess
import sys

import pytest

from evergraph.extras import PURPOSES, MissingExtraError, require

MISSING = "image matching needs OpenCV; install it with pip install 'evergraph[matching]'"
# A process of its own, so that modules which hold OpenCV are not imported twice here.
WITHOUT_OPENCV = """
import sys
from importlib.abc import MetaPathFinder

class Hide(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "cv2":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hide())
"""


def run(code):
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_OPENCV + code], capture_output=True, text=True, check=False
    )


def test_an_installed_module_is_returned():
    assert require("json.decoder", "matching") is sys.modules["json.decoder"]


@pytest.mark.parametrize("extra", PURPOSES)
def test_a_missing_package_names_the_extra(extra, monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", None)  # as if it were not installed
    with pytest.raises(MissingExtraError) as error:
        require("cv2", extra)
    assert f"needs OpenCV; install it with pip install 'evergraph[{extra}]'" in str(error.value)
    assert isinstance(error.value, ValueError)
    assert isinstance(error.value, ImportError)


def test_a_broken_package_keeps_its_own_error(tmp_path, monkeypatch):
    (tmp_path / "broken_package.py").write_text("import a_module_that_nobody_has\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="a_module_that_nobody_has") as error:
        require("broken_package", "matching")
    assert not isinstance(error.value, MissingExtraError)


def test_modules_of_image_matching_name_the_extra():
    names = ["features", "truth", "homography", "tartanair", "evaluate", "sources", "matcher"]
    shown = run(f"""
from importlib import import_module
for name in {names}:
    try:
        import_module(f"evergraph.apps.matching.{{name}}")
    except ImportError as error:
        print(error)
""")
    assert shown.stdout.splitlines() == [MISSING] * len(names)


def test_the_command_line_reports_it_in_one_line():
    shown = run(
        "from evergraph.cli import app; app(['match', 'pair', 'a.png', 'b.png'], prog_name='x')"
    )
    assert shown.returncode == 2
    assert " ".join(shown.stderr.split()) == f"Error: {MISSING}"
