"""One item of each kind, followed through the modules: docs/pipeline.md shows the three walks."""

import sys
from pathlib import Path

import torch

import evergraph
from evergraph import FGN, Learner, Replay, Reservoir, Training, node_continuum
from evergraph.datasets import generate

ROOT = Path(evergraph.__file__).parent
QUICK = Training(lr=0.01, steps=1, replay_batches=1, replay_batch_size=10)
SHARED = {
    "feature_graph/neighborhoods",
    "learn/learner",
    "learn/memory",
    "learn/methods/replay",
    "learn/tasks",
    "learn/training",
    "nn/fgn",
    "nn/model",
    "stream/batch",
}


def modules_touched(action):
    """The modules of the package whose functions run while an action runs."""
    found = set()

    def note(frame, event, _):
        if event == "call":
            name = frame.f_code.co_filename
            if name.startswith(str(ROOT)):
                found.add(str(Path(name).relative_to(ROOT).with_suffix("")))

    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
    return found


def test_a_node_of_a_citation_graph():
    data = generate()
    stream = node_continuum(data)
    learner = Learner(FGN(data.graph.num_features), Replay(), Reservoir(50), QUICK)

    def walk():
        batch = stream.source.batch(torch.tensor([0]))
        learner.observe(batch)
        learner.predict(batch)

    found = modules_touched(walk)
    assert found >= SHARED | {"stream/source", "graph/graph", "feature_graph/support"}
    assert found >= {"feature_graph/fused"}  # the compiled path of `evergraph run`
    assert not any(name.startswith("apps/") for name in found)


def test_a_window_of_sensors():
    from evergraph.apps.action.network import network
    from evergraph.apps.action.recording import generate as recordings
    from evergraph.apps.action.windows import cut

    data = recordings()
    windows = cut(data.recordings, data.activities, length=50, stride=50)
    learner = Learner(network("fgn", data.layout, features=25), Replay(), Reservoir(50), QUICK)

    def walk():
        batch = windows.batch(torch.tensor([0]))
        learner.observe(batch)
        learner.predict(batch)

    found = modules_touched(walk)
    assert found >= SHARED | {"feature_graph/lean", "nn/attention", "nn/layers", "nn/heads"}
    assert found >= {"apps/action/windows", "apps/action/network"}
    assert not any(name.startswith("apps/matching") for name in found)


def test_a_pair_of_images():
    from evergraph.apps.matching.homography import Views, album_pairs
    from evergraph.apps.matching.matcher import Matcher
    from evergraph.apps.matching.sources import photograph

    (pair,) = album_pairs([photograph("astronaut.png")], 1, 0, Views(points=64))
    matcher = Matcher.pretrained(points=64)

    def walk():
        assert matcher.learn(pair) > 0
        matcher.match_pair(pair)

    found = modules_touched(walk)
    assert found >= SHARED | {"feature_graph/lean", "nn/attention", "nn/blocks", "nn/heads"}
    assert found >= {"apps/matching/candidates", "apps/matching/matcher"}
    assert not any(name.startswith("apps/action") for name in found)
