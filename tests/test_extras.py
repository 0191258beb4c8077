"""Optional dependencies that are not installed."""

import sys

import pytest

from evergraph.extras import PURPOSES, MissingExtraError, require


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
