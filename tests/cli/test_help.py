"""The help of every command can be read on a terminal of 80 columns, with nothing cut off."""

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from evergraph.cli import app


def paths(command, path=()):
    yield path
    for name, inner in getattr(command, "commands", {}).items():
        yield from paths(inner, (*path, name))


EVERY = list(paths(get_command(app)))


@pytest.mark.parametrize("path", EVERY, ids=" ".join)
def test_help_fits_80_columns(path):
    done = CliRunner().invoke(app, [*path, "--help"], prog_name="evergraph", env={"COLUMNS": "80"})
    assert done.exit_code == 0
    lines = done.output.splitlines()
    assert lines[0].startswith(" ".join(["Usage: evergraph", *path]))
    assert max(map(len, lines)) <= 80
    assert not any(line.endswith(("...", "…")) for line in lines if line.startswith("  "))


@pytest.mark.parametrize("path", EVERY, ids=" ".join)
def test_every_option_has_a_help(path):
    command = get_command(app)
    for name in path:
        command = command.commands[name]
    assert command.help
    for parameter in command.params:
        assert getattr(parameter, "help", None) or parameter.name == "help", parameter.name
