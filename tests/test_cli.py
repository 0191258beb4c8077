"""The program: what it prints, what it writes, how it fails."""

from typer.testing import CliRunner

from evergraph.cli import app

runner = CliRunner()


def test_help_names_every_command():
    text = runner.invoke(app, ["--help"]).output
    assert "run" in text
    assert "bench" in text


def test_the_main_job_ends_with_an_accuracy():
    result = runner.invoke(app, ["run", "--epochs", "1"])
    assert result.exit_code == 0, result.output
    assert "of papers never seen" in result.output
