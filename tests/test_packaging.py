"""What is built: one version, every data file, and a wheel that works in an empty environment."""

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

import evergraph
from evergraph.extras import PURPOSES

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = PROJECT["project"]["optional-dependencies"]


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """The wheel and the sdist, made from a copy of what git tracks."""
    place = tmp_path_factory.mktemp("built")
    copy = place / "copy"
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, check=True).stdout
    for name in filter(None, names.decode().split("\0")):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).write_bytes((ROOT / name).read_bytes())
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(place), str(copy)]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return next(place.glob("*.whl")), next(place.glob("*.tar.gz"))


def test_there_is_one_version(built):
    assert "version" not in PROJECT["project"]
    wheel, sdist = built
    assert wheel.name.split("-")[1] == evergraph.__version__
    assert sdist.name == f"evergraph-{evergraph.__version__}.tar.gz"
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert newest[1] == evergraph.__version__


def test_the_wheel_holds_all_of_the_package_and_nothing_else(built):
    held = set(zipfile.ZipFile(built[0]).namelist())
    wanted = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "evergraph").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in held if ".dist-info/" not in name} == wanted


def test_the_sdist_builds_from_what_it_holds(built):
    with tarfile.open(built[1]) as sdist:
        held = {name.partition("/")[2] for name in sdist.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "evergraph/evaluate/chosen.json"} <= held


def test_every_extra_that_an_error_names_is_there():
    assert set(PURPOSES) <= set(EXTRAS)


def test_every_bound_admits_what_is_tested():
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if "==" in line)
    tested = {canonicalize_name(name): version for name, version in pins.items()}
    for text in PROJECT["project"]["dependencies"]:
        wanted = Requirement(text)
        assert wanted.specifier.contains(tested[canonicalize_name(wanted.name)]), text


@pytest.mark.slow
@pytest.mark.parametrize("extra", ["", *sorted(set(EXTRAS) - {"dev", "mlflow"})])
def test_the_wheel_works_in_an_empty_environment(built, extra, tmp_path):
    venv.create(tmp_path / "venv", with_pip=True)
    folder = tmp_path / "venv" / "bin"
    pip = [folder / "python", "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt"]
    subprocess.run([*pip, "torch"], check=True, cwd=tmp_path)
    name = f"{built[0]}[{extra}]" if extra else str(built[0])
    subprocess.run([*pip, name], check=True, cwd=tmp_path)
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    run = [folder / "evergraph", "run", "--dataset", "generated", "--seeds", "1"]
    done = subprocess.run(
        [*run, "--out", tmp_path], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "accuracy_matrix.png").exists()
