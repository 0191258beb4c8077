"""Learning curves, read back from the files of TensorBoard and from MLflow's store."""

import struct

import kill_learn
import pytest
import typer.testing

from evergraph.cli import app
from evergraph.cli.curves import curves


def scalars(folder):
    """The points of the curves in a folder of TensorBoard, by name."""
    event_pb2 = pytest.importorskip("tensorboardX.proto.event_pb2")
    (file,) = folder.glob("events.out.tfevents.*")
    data, found = file.read_bytes(), {}
    while data:  # length, checksum, record, checksum
        (size,) = struct.unpack("<Q", data[:8])
        event = event_pb2.Event.FromString(data[12 : 12 + size])
        for value in event.summary.value:
            found.setdefault(value.tag, []).append((event.step, value.simple_value))
        data = data[16 + size :]
    return found


def test_learn_writes_curves_for_tensorboard(tmp_path):
    model, path = kill_learn.prepare(tmp_path, 400)
    arguments = ["learn", model, path, "--chunk", 100, "--curves", f"tensorboard:{tmp_path / 't'}"]
    done = typer.testing.CliRunner().invoke(app, [*map(str, arguments)])
    assert done.exit_code in (0, 1), done.output
    found = scalars(tmp_path / "t")
    assert set(found) == {"accuracy/all", "accuracy/last", "nodes", "edges"}
    assert len(found["nodes"]) == 4
    steps = [step for step, _ in found["nodes"]]
    assert steps == sorted(steps)
    assert 0 < found["accuracy/all"][-1][1] <= 1


def test_run_writes_a_curve_for_each_seed(tmp_path):
    place = f"tensorboard:{tmp_path / 't'}"
    command = ["run", "--dataset", "generated", "--seeds", "2"]
    command += ["--out", str(tmp_path / "out"), "--curves", place, "--json"]
    done = typer.testing.CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    found = scalars(tmp_path / "t")
    assert set(found) == {"accuracy/seed_0", "accuracy/seed_1"}
    assert all(len(points) > 1 for points in found.values())


def test_mlflow_takes_the_same_points(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    with curves("mlflow:growing") as point:
        point(3, {"accuracy/all": 0.5, "none": None})
        run = mlflow.active_run().info.run_id
    kept = mlflow.MlflowClient().get_metric_history(run, "accuracy/all")
    assert [(one.step, one.value) for one in kept] == [(3, 0.5)]


def test_a_target_that_nobody_knows_is_refused():
    with (
        pytest.raises(ValueError, match="tensorboard:FOLDER or mlflow:EXPERIMENT, got 'wandb:x'"),
        curves("wandb:x"),
    ):
        pass
