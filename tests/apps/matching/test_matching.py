"""Candidates, decisions, networks and the matcher: oracles, laws and bad input."""

import json
import math
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from zlib import compress, crc32

import cv2
import numpy as np
import pytest
import torch
from matching_pairs import easy_pair, random_features, texture

from evergraph.apps.matching import baselines
from evergraph.apps.matching.arrangements import (
    KINDS,
    SHAPE,
    best_cut,
    candidate_network,
    candidate_task,
    graph_batch,
    one_to_one,
    probability,
)
from evergraph.apps.matching.candidates import NAMES, NUM_FEATURES, Proposal, propose
from evergraph.apps.matching.evaluate import areas, evaluate, judge
from evergraph.apps.matching.features import canonical_order, detect, features
from evergraph.apps.matching.images import SUFFIXES, header_size, read_image, to_gray
from evergraph.apps.matching.matcher import Matcher
from evergraph.apps.matching.truth import PIXELS, Matches
from evergraph.feature_graph import feature_adjacency, propagate
from evergraph.graph.neighbors import Linked
from evergraph.learn.checkpoint import CheckpointError, read_checkpoint, write_checkpoint
from experiments.matching_categories import tolerance_curve


def graph_of(points=40, **changes):
    pair = easy_pair(points)
    return propose(pair.first, pair.second, Proposal(**changes)), pair


def matcher(**changes):
    return Matcher("fgn", **changes)


# -- candidates ---------------------------------------------------------------------------------


def test_candidates_are_the_most_similar_points():
    graph, pair = graph_of(candidates=2, guided=0)
    for point in range(len(pair.first)):
        similarity = [float(pair.first.descriptors[point] @ d) for d in pair.second.descriptors]
        best = sorted(range(len(similarity)), key=lambda j: -similarity[j])[:2]
        assert graph.second[graph.first == point].tolist() == best
        column = graph.features[graph.first == point, NAMES.index("similarity")]
        assert column == pytest.approx([similarity[j] for j in best], abs=1e-5)


def test_of_equally_similar_points_the_earlier_ones_are_proposed():
    first, second = random_features(20), random_features(30, seed=1)
    alike = replace(second, descriptors=np.repeat(first.descriptors[:6], 5, axis=0))
    graph = propose(first, alike, Proposal(candidates=3, guided=0))
    similarity = first.descriptors @ alike.descriptors.T
    expected = np.argsort(-similarity, axis=1, kind="stable")[:, :3]
    assert graph.second.reshape(-1, 3).tolist() == expected.tolist()
    column = graph.features[:, NAMES.index("column ratio")].reshape(-1, 3)
    for i, j in np.ndindex(*expected.shape):  # against the best other row of its column
        near, far = (
            np.sqrt(max(2 - 2 * s, 1e-4))
            for s in (
                similarity[i, expected[i, j]],
                np.delete(similarity[:, expected[i, j]], i).max(),
            )
        )
        assert column[i, j] == pytest.approx(np.clip(near / far - 1, -1, 2), abs=1e-4)


def agreement(first, second, a, b, graph, how):
    """Eq. by eq.: how well the transforms of two candidates predict each other."""
    ends = [(first.keypoints[graph.first[e]], second.keypoints[graph.second[e]]) for e in (a, b)]
    moved0, moved1 = (ends[1][side] - ends[0][side] for side in (0, 1))
    strain = 0.0
    for e in (a, b):
        i, j = graph.first[e], graph.second[e]
        turn = second.orientations[j] - first.orientations[i]
        scale = second.scales[j] / first.scales[i]
        c, s = scale * math.cos(turn), scale * math.sin(turn)
        predicted = np.array([[c, -s], [s, c]]) @ moved0
        allowed = how.slack * (np.hypot(*predicted) + np.hypot(*moved1)) + how.tolerance
        strain += (np.hypot(*(predicted - moved1)) / allowed) ** 2
    return math.exp(-strain)


def test_weights_against_the_plain_loop():
    how = Proposal(candidates=2, guided=0, nearby=5, neighbors=6)
    pair = easy_pair(20)
    graph = propose(pair.first, pair.second, how)
    for e in range(len(graph)):
        distance = np.linalg.norm(
            pair.first.keypoints - pair.first.keypoints[graph.first[e]], axis=1
        )
        near = np.argsort(distance)[1:6]
        found = {}
        for other in range(len(graph)):
            if graph.first[other] in near and graph.second[other] != graph.second[e]:
                found[other] = agreement(pair.first, pair.second, e, other, graph, how)
        top = sorted(found.values(), reverse=True)[:6]
        assert sorted(graph.weight[e][graph.weight[e] > 1e-6], reverse=True) == pytest.approx(
            [w for w in top if w > 1e-6], rel=1e-3, abs=1e-6
        )
        for other, weight in zip(graph.index[e], graph.weight[e], strict=True):
            if weight > 1e-6:
                assert weight == pytest.approx(found[int(other)], rel=1e-3, abs=1e-6)


def test_true_candidates_agree_with_their_neighbors():
    graph, _ = graph_of(60, candidates=3, guided=0)
    true = graph.first == graph.second
    support = graph.weight.sum(1)
    assert support[true].mean() > 5 * support[~true].mean()
    off = graph.features[:, NAMES.index("consensus")]
    assert np.isfinite(graph.features).all()
    assert off[true].max() < 0.1


def test_a_point_that_looks_like_no_other_is_proposed_by_its_place():
    pair = easy_pair(60)
    rng = np.random.default_rng(0)
    strange = rng.permutation(60)[:6]
    table = pair.second.descriptors.copy()
    table[strange] = -table[strange]  # as unlike their partners as can be
    second = replace(pair.second, descriptors=table)
    plain = propose(pair.first, second, Proposal(candidates=2, guided=0))
    guided = propose(pair.first, second, Proposal(candidates=2, guided=1))
    for graph, wanted in ((plain, 0), (guided, len(strange))):
        found = [((graph.first == p) & (graph.second == p)).any() for p in strange]
        assert sum(found) == wanted
    own = np.isin(guided.first, strange) & (guided.first == guided.second)
    assert guided.features[own, NAMES.index("off the guide")].max() < 0.5
    assert guided.features[own, NAMES.index("guide")].min() > 0
    other = np.isin(guided.first, strange) & ~own
    assert guided.features[other, NAMES.index("off the guide")].min() > 0.5


def test_no_point_proposes_another_twice():
    graph, _ = graph_of(40, candidates=3, guided=2)
    ends = set(zip(graph.first.tolist(), graph.second.tolist(), strict=True))
    assert len(ends) == len(graph) == 40 * 5


def test_a_matcher_of_other_features_is_refused(tmp_path):
    tool = matcher()
    path = tmp_path / "old.safetensors"
    tool.save(path)
    tensors, values = read_checkpoint(path)
    name = "encoder.layers.0.weight"
    tensors[name] = tensors[name][:, :19].contiguous()
    write_checkpoint(path, tensors, values)
    with pytest.raises(CheckpointError, match="other features"):
        Matcher.load(path)


@pytest.mark.parametrize("points", [0, 1, 2, 3, 8, 30])
def test_any_number_of_points(points):
    pair = easy_pair(points)
    graph = propose(pair.first, pair.second)
    assert graph.features.shape == (len(graph), NUM_FEATURES)
    assert np.isfinite(graph.features).all()
    found = matcher(threshold=0.0).match_pair(pair)
    assert len(found) <= points


# -- decisions ----------------------------------------------------------------------------------


def greedy(first, second, score, threshold):
    taken = []
    for e in sorted(range(len(score)), key=lambda e: -score[e]):
        free = all(first[e] != first[t] and second[e] != second[t] for t in taken)
        if score[e] >= threshold and free:
            taken.append(e)
    return {(int(first[e]), int(second[e])) for e in taken}


def test_one_to_one_is_the_greedy_loop():
    rng = np.random.default_rng(0)
    for _ in range(20):
        first, second = rng.integers(0, 12, (2, 60))
        score = rng.uniform(size=60)
        found = one_to_one(first, second, score, 0.4)
        pairs = set(zip(found.first.tolist(), found.second.tolist(), strict=True))
        assert pairs == greedy(first, second, score, 0.4)
        assert (np.diff(found.confidence) <= 0).all()


def test_the_cut_is_where_expected_f1_is_largest():
    rng = np.random.default_rng(0)
    for _ in range(2):
        sure = np.sort(rng.uniform(size=30))[::-1]
        matches = Matches(np.arange(30), np.arange(30), sure)
        expected = [2 * sure[:k].sum() / (k + sure.sum()) for k in range(1, 31)]
        assert len(best_cut(matches)) == 1 + int(np.argmax(expected))
    assert len(best_cut(matches.strongest(0))) == 0


# -- networks -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_graph_and_its_items_give_the_same_logits(kind):
    graph, pair = graph_of(24)
    network = candidate_network(kind)
    batch = graph_batch(graph, pair.labels(graph.first, graph.second))
    whole = network(batch)
    packed = batch.compact()
    assert isinstance(batch.neighbors, Linked)
    assert not isinstance(packed.neighbors, Linked)
    assert torch.allclose(network(packed), whole, atol=1e-5)
    some = torch.tensor([5, 0, 17])
    assert torch.allclose(network(batch.select(some)), whole[some], atol=1e-5)
    one = batch.select(torch.tensor([5]))
    assert torch.allclose(network(one)[0], whole[5], atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_every_parameter_gets_a_gradient(kind):
    graph, _ = graph_of(24)
    network = candidate_network(kind)
    network(graph_batch(graph)).square().sum().backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert bool(parameter.grad.abs().sum() > 0), name


def leaky(score):
    return score if score > 0 else 0.2 * score


def dumb_message(network, layer, kind, e, h, links, i):
    """What candidate i collects, term by term."""
    index, weight = links.index[i].tolist(), links.weight[i].tolist()
    block = network.blocks[layer]
    if kind == "gcn":
        return block.value(sum(w * e[j] for j, w in zip(index, weight, strict=True)) / 4)
    attention = network.attentions[layer if kind == "gat" else 0]
    center, around = attention.center[:, 0], attention.neighbor[:, 0]
    score = [leaky(center @ e[i] + around @ e[j] + attention.bias[0]) for j in index]
    if kind == "gat":
        prior = [math.log(w + 1e-3) for w in weight]
        share = torch.stack([s + p for s, p in zip(score, prior, strict=True)]).softmax(0)
        return block.value(sum(g * e[j] for g, j in zip(share, index, strict=True)))
    gates = [torch.sigmoid(s) * w for s, w in zip(score, weight, strict=True)]
    mean = sum(g * network.project(e[j]) for g, j in zip(gates, index, strict=True)) / len(index)
    x = network.project(e[i]).view(SHAPE)
    adjacency = feature_adjacency(x, mean.view(1, *SHAPE))
    return propagate(adjacency, block.value(h).view(SHAPE)).flatten() / SHAPE[1] ** 0.5


def dumb_logits(network, kind, batch):
    """The equations of a network, candidate by candidate."""
    e = network.encoder.layers(batch.x[:, 0, : network.encoder.inputs])
    out = []
    for i in range(len(batch)):
        h = e[i]
        for layer, block in enumerate(network.blocks):
            given = h
            if kind != "mlp":
                message = dumb_message(network, layer, kind, e, h, batch.neighbors, i)
                given = torch.cat([h, message])
            h = h + block.update(given)
        head = network.head
        out.append(torch.einsum("cf,fck->k", h.view(SHAPE), head.weight) + head.bias)
    return torch.stack(out)


@pytest.mark.parametrize("kind", KINDS)
def test_networks_are_the_dumb_loop_over_their_equations(kind):
    graph, pair = graph_of(12)
    batch = graph_batch(graph, pair.labels(graph.first, graph.second))
    batch = replace(
        batch,
        x=batch.x.double(),
        neighbors=Linked(batch.neighbors.index, batch.neighbors.weight.double()),
    )
    network = candidate_network(kind).double()
    found, expected = network(batch), dumb_logits(network, kind, batch)
    assert torch.allclose(found, expected, atol=1e-9)
    task, gradients = candidate_task(), []
    for logits in (found, expected):
        network.zero_grad()
        task.loss(logits, batch).backward()
        gradients.append({name: p.grad.clone() for name, p in network.named_parameters()})
    for name, gradient in gradients[0].items():
        assert torch.allclose(gradient, gradients[1][name], rtol=1e-6, atol=1e-8), name


def test_prediction_gives_the_numbers_of_training():
    graph, _ = graph_of(24)
    network = candidate_network("fgn")
    with_gradient = network(graph_batch(graph))
    with torch.no_grad():
        assert torch.allclose(network(graph_batch(graph)), with_gradient, atol=1e-5)


def test_neighbors_in_any_order():
    graph, _ = graph_of(20)
    batch = graph_batch(graph)
    order = torch.randperm(graph.index.shape[1])
    links = Linked(batch.neighbors.index[:, order], batch.neighbors.weight[:, order])
    for kind in KINDS:
        network = candidate_network(kind)
        other = network(replace(batch, neighbors=links))
        assert torch.allclose(network(batch), other, atol=1e-5)


def test_the_scale_of_gcn_is_what_the_search_found():
    path = Path(__file__).parents[3] / "results/searches.json"
    trials = json.loads(path.read_text())["searches"]["matching"]["trials"]
    means = [np.mean(trial["validation_f1"]) for trial in trials]
    assert [trial["validation_mean"] for trial in trials] == pytest.approx(means)
    chosen = tuple(trials[int(np.argmax(means))]["settings"]["message_scale"])
    assert candidate_network("gcn").blocks[0].scale == chosen


def test_a_message_is_scaled_before_and_after_v():
    batch = graph_batch(graph_of(12)[0])
    for kind in ("gcn", "fgn"):
        network = candidate_network(kind, message_scale=(3.0, 0.5))
        plain = candidate_network(kind, message_scale=(1.0, 1.0))
        plain.load_state_dict(network.state_dict())
        with torch.no_grad():
            for block in plain.blocks:
                block.value.weight *= 1.5
                block.value.bias *= 0.5
        assert torch.allclose(network(batch), plain(batch), atol=1e-5)


def test_networks_refuse_what_they_cannot_be():
    with pytest.raises(ValueError, match="kind must be one of fgn, gcn, gat, mlp, got 'gin'"):
        candidate_network("gin")
    batch = graph_batch(graph_of(8)[0])
    with pytest.raises(ValueError, match=r"x must have shape \(B, 1, 21\) for this model"):
        candidate_network("fgn")(replace(batch, x=batch.x[..., :20]))


# The least confident five of 60 matches, before the checkpoint got new parameter names.
SHIPPED = [
    (47, 47, 0.990569),
    (38, 38, 0.986653),
    (24, 24, 0.975456),
    (56, 56, 0.971300),
    (50, 50, 0.942582),
]


def test_the_shipped_matcher_gives_the_matches_it_always_gave():
    pair = easy_pair(60, noise=0.9)
    found = Matcher.pretrained().match_pair(pair)
    assert len(found) == 60
    rows = zip(found.first.tolist(), found.second.tolist(), found.confidence.tolist(), strict=True)
    for (i, j, confidence), row in zip(SHIPPED, list(rows)[-5:], strict=True):
        assert row[:2] == (i, j)
        assert row[2] == pytest.approx(confidence, abs=1e-5)


# -- the matcher --------------------------------------------------------------------------------


def test_matches_do_not_depend_on_the_order_of_points():
    pair = easy_pair(50)
    tool = matcher(threshold=0.2)
    sides = (pair.first, pair.second)
    orders = [np.random.default_rng(seed).permutation(50) for seed in (0, 1)]
    mixed = [side.take(order) for side, order in zip(sides, orders, strict=True)]

    def run(sides):
        return tool.match_features(
            *(tuple(getattr(s, name) for s in sides)
              for name in ("keypoints", "descriptors", "scales", "orientations"))
        )  # fmt: skip

    plain, shuffled = run(sides), run(mixed)
    assert len(plain)
    back = {
        (int(orders[0][i]), int(orders[1][j]), float(c))
        for i, j, c in zip(shuffled.first, shuffled.second, shuffled.confidence, strict=True)
    }
    assert back == {
        (int(i), int(j), float(c))
        for i, j, c in zip(plain.first, plain.second, plain.confidence, strict=True)
    }


def test_twins_are_told_apart_by_their_descriptors():
    one = random_features(6)
    twins = one.take(np.zeros(6, int))
    twins = type(twins)(twins.keypoints, one.descriptors, twins.scales, twins.orientations)
    order = np.random.default_rng(3).permutation(6)
    assert (order[canonical_order(twins.take(order))] == canonical_order(twins)).all()


@pytest.mark.parametrize("detector", ["sift", "orb", "corners"])
def test_an_image_matches_itself(detector):
    found = Matcher.pretrained(detector, points=80).match(texture(), texture())
    assert len(found.matches) > 30
    assert (found.matches.first == found.matches.second).mean() > 0.95
    arrays = found.arrays()
    assert set(arrays) == {"keypoints0", "keypoints1", "matches", "match_confidence"}
    assert (arrays["matches"][found.matches.first] == found.matches.second).all()


def test_kinds_of_images_give_the_same_gray():
    gray = texture(32)
    color = cv2.cvtColor(gray, cv2.COLOR_GRAY2BGR)
    kinds = [
        gray[..., None], color, cv2.cvtColor(gray, cv2.COLOR_GRAY2BGRA),
        gray.astype(np.uint16) * 257, gray / 255, gray.astype(np.float32),
    ]  # fmt: skip
    for image in kinds:
        assert np.abs(to_gray(image).astype(int) - gray).max() <= 1


@pytest.mark.parametrize("image", [np.zeros((64, 64), np.uint8), np.zeros((1, 1), np.uint8)])
def test_nothing_to_see_is_an_empty_result(image):
    found = Matcher.pretrained().match(image, texture())
    assert len(found.matches) == 0
    assert found.arrays()["matches"].shape == (0,)


def test_descriptors_of_any_width_without_scales():
    pair = easy_pair(30)
    found = matcher(threshold=0.0).match_features(
        (pair.first.keypoints, pair.second.keypoints),
        (pair.first.descriptors, pair.second.descriptors),
    )
    assert len(found) > 10


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"descriptors": np.zeros((5, 9))}, "same width, got 8 and 9"),
        ({"keypoints": np.zeros((5, 3))}, r"keypoints must have shape \(N, 2\), got \(5, 3\)"),
        ({"descriptors": np.zeros((4, 8))}, r"descriptors must have shape \(5, D\), got \(4, 8\)"),
        ({"scales": np.zeros(5)}, "scales must be positive, got 0"),
        ({"scales": np.ones(4)}, r"scales must have shape \(5,\), got \(4,\)"),
        ({"orientations": np.full(5, np.nan)}, "orientations must be finite, got nan at point 0"),
    ],
)
def test_features_that_cannot_be(change, message):
    good = random_features(5)
    parts = {name: getattr(good, name) for name in vars(good)}
    bad = {**parts, **change}
    with pytest.raises(ValueError, match=message):
        matcher().match_features(**{name: (parts[name], bad[name]) for name in parts})


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (np.zeros((0, 5)), "at least one pixel"),
        (np.zeros((4, 4, 2)), "must have shape"),
        (np.full((4, 4), np.nan), "must be finite"),
        (np.zeros((4, 4), complex), "bytes, 16-bit numbers or floats, got complex"),
    ],
)
def test_images_that_cannot_be(image, message):
    with pytest.raises(ValueError, match=message):
        detect(image)


def claiming(width, height, depth=8):
    """A PNG of a few bytes whose header claims a size."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, depth, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", compress(b"")), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)


@pytest.mark.parametrize("side", [60_000, 10_001])
def test_a_header_that_claims_too_many_pixels(side, tmp_path):
    path = tmp_path / "large.png"
    path.write_bytes(claiming(side, side))
    message = f"at most 100,000,000 pixels, got {side:,} × {side:,} .*; scale the image down"
    with pytest.raises(ValueError, match=message):
        read_image(path)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_sizes_are_read_from_the_header(suffix):
    image = np.zeros((7, 300), np.uint8) if suffix == ".pgm" else np.zeros((7, 300, 3), np.uint8)
    data = cv2.imencode(suffix, image)[1].tobytes()
    assert header_size(data) == (300, 7)
    for end in range(0, min(len(data), 400), 3):
        assert header_size(data[:end]) in (None, (300, 7))


def test_sizes_of_rarer_headers():
    color = np.random.default_rng(0).integers(0, 256, (40, 300, 3), np.uint8)
    for quality in (20, 101):  # lossy and lossless
        webp = cv2.imencode(".webp", color, [cv2.IMWRITE_WEBP_QUALITY, quality])[1].tobytes()
        assert header_size(webp) == (300, 40)
    alpha = b"RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0\x10\0\0\0" + bytes([43, 1, 0, 39, 0, 0])
    assert header_size(alpha) == (300, 40)
    big_endian = struct.pack(">4sIH", b"MM\0*", 8, 2)
    big_endian += struct.pack(">HHIHxx", 256, 3, 1, 300) + struct.pack(">HHII", 257, 4, 1, 40)
    assert header_size(big_endian) == (300, 40)
    assert header_size(b"BM" + bytes(12) + struct.pack("<IHH", 12, 300, 40)) == (300, 40)
    assert header_size(b"BM" + bytes(12) + struct.pack("<Iii", 40, 300, -40)) == (300, 40)
    assert header_size(b"P6\n# a comment\n300\n# 7\n40\n255\n") == (300, 40)
    progressive = cv2.imencode(".jpg", color, [cv2.IMWRITE_JPEG_PROGRESSIVE, 1])[1].tobytes()
    padded = progressive[:2] + b"\xff\xe1\x00\x09\xff\xc0\x00\x11\x08\x01\x01\xff" + progressive[2:]
    assert header_size(padded) == (300, 40)  # a frame inside another segment does not count


def test_many_threads_may_read_at_once(tmp_path):
    good, bad = tmp_path / "good.png", tmp_path / "bad.png"
    cv2.imwrite(str(good), texture())
    bad.write_bytes(good.read_bytes()[:-5])
    code = (
        "import os, sys\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "from evergraph.apps.matching.images import read_image\n"
        "def read(path):\n"
        "    try:\n"
        "        return read_image(path).shape\n"
        "    except ValueError:\n"
        "        os.write(2, b'.')\n"
        "with ThreadPoolExecutor(4) as pool:\n"
        "    found = list(pool.map(read, sys.argv[1:] * 100))\n"
        "assert found == [(96, 96), None] * 100\n"
        "os.write(2, b'end')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, good, bad], capture_output=True, text=True, check=True
    )
    assert done.stderr == "." * 100 + "end"


def test_files_that_are_no_images(tmp_path):
    with pytest.raises(ValueError, match="must be a file that exists"):
        read_image(tmp_path / "none.png")
    with pytest.raises(ValueError, match="must be a file that exists"):
        read_image(tmp_path)
    whole = [cv2.imencode(suffix, texture())[1].tobytes() for suffix in (".png", ".jpg", ".bmp")]
    cut = [data[:size] for data in whole for size in (10, 40, len(data) // 2)]
    for content in (b"", b"not a picture", b"\x7fELF" * 99, claiming(0, 5), claiming(64, 64), *cut):
        path = tmp_path / "broken.png"
        path.write_bytes(content)
        with pytest.raises(ValueError, match="empty, truncated or no picture"):
            Matcher.pretrained().match(path, path)


def test_a_matcher_survives_its_file(tmp_path):
    tool = matcher(threshold=0.2)
    path = tmp_path / "matcher.safetensors"
    tool.save(path, {"note": "test"})
    pair = easy_pair()
    before, after = tool.match_pair(pair), Matcher.load(path).match_pair(pair)
    assert before.first.tolist() == after.first.tolist()
    assert before.confidence.tolist() == after.confidence.tolist()


def test_files_that_are_no_matchers(tmp_path):
    path = tmp_path / "matcher.safetensors"
    with pytest.raises(CheckpointError, match="no matcher at"):
        Matcher.load(path)
    matcher().save(path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match="truncated or damaged"):
        Matcher.load(path)


def test_settings_that_cannot_be():
    with pytest.raises(ValueError, match=r"threshold must lie in 0..1, got 2"):
        matcher(threshold=2)
    with pytest.raises(ValueError, match="candidates must be at least 1, got 0"):
        Proposal(candidates=0)
    with pytest.raises(ValueError, match="detector must be sift, orb or corners, got 'surf'"):
        detect(texture(), "surf")
    with pytest.raises(ValueError, match="points must be at least 1, got 0"):
        detect(texture(), points=0)


def test_probability_is_the_softmax():
    logits = torch.randn(5, 2)
    assert torch.allclose(probability(logits), logits.softmax(1)[:, 1])


# -- baselines and judgment ---------------------------------------------------------------------


def test_the_ratio_test_is_the_plain_loop():
    pair = easy_pair(30, noise=0.8)
    found = baselines.ratio_test(pair, 0.8)
    expected = set()
    distance = np.linalg.norm(
        pair.first.descriptors[:, None] - pair.second.descriptors[None], axis=-1
    )
    for i in range(30):
        order = np.argsort(distance[i])
        mutual = np.argmin(distance[:, order[0]]) == i
        if mutual and distance[i, order[0]] <= 0.8 * distance[i, order[1]]:
            expected.add((i, int(order[0])))
    assert set(zip(found.first.tolist(), found.second.tolist(), strict=True)) == expected
    assert expected


@pytest.mark.parametrize("name", list(baselines.settled()))
def test_every_baseline_finds_an_easy_pair(name):
    pair = easy_pair(120)
    assert evaluate([pair], baselines.settled()[name])["f1"] > 0.5
    assert len(baselines.settled()[name](easy_pair(0))) == 0


def test_lightglue_is_a_row_where_its_weights_are(tmp_path, monkeypatch):
    kornia = pytest.importorskip("kornia.feature")
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    assert "LightGlue" not in baselines.settled()
    path = baselines.lightglue_weights()
    assert path.is_relative_to(tmp_path)
    path.parent.mkdir(parents=True)
    fresh = kornia.LightGlue(None, input_dim=128, add_scale_ori=True)
    torch.save({k: v for k, v in fresh.state_dict().items() if "threshold" not in k}, path)
    method = baselines.settled()["LightGlue"]
    assert "LightGlue" not in baselines.settled("orb")
    side = random_features(40, 128)
    pair = replace(easy_pair(40), first=side, second=side)
    found = method(pair)  # with weights that know nothing
    assert len(found) <= 40
    assert len(set(found.second.tolist())) == len(found)
    none = side.take(np.arange(0))
    assert len(method(replace(pair, first=none))) == 0


def test_judgment_of_known_matches():
    pair = easy_pair(10)
    right = one_to_one(np.arange(10), np.arange(10), np.linspace(1, 0.1, 10), 0.0)
    score = judge(pair, right, geometry=True)
    assert (score.precision, score.recall) == (1.0, 1.0)
    assert max(score.corner) < 0.1
    wrong = one_to_one(np.arange(10), (np.arange(10) + 1) % 10, np.linspace(1, 0.1, 10), 0.0)
    assert judge(pair, wrong).recall == 0
    hidden = replace(pair, truth=replace(pair.truth, judged=np.arange(10) > 3))
    score = judge(hidden, right)
    assert (len(score.errors), len(score.possible), score.share) == (10, 6, 0.6)
    assert baselines.oracle(hidden).first.tolist() == list(range(4, 10))
    moved = replace(pair, second=pair.second.take(np.arange(4)))  # the others have no partner
    dumb = [
        min(range(4), key=lambda j: np.linalg.norm(place - pair.second.keypoints[j]))
        for place in pair.truth.forward
    ]
    near = [
        j if np.linalg.norm(place - pair.second.keypoints[j]) <= PIXELS else -1
        for j, place in zip(dumb, pair.truth.forward, strict=True)
    ]
    assert moved.partners.tolist() == near
    errors = np.array([0.1, 0.4, 2.0])
    assert tolerance_curve(errors, [0.25, 0.5, 5]) == pytest.approx([1 / 3, 2 / 3, 1])
    assert areas([0, 1, 20], [10]) == pytest.approx([(1 + 0.9 + 0) / 3])


def test_foreign_features_are_brought_to_unit_length():
    found = features([[1, 2], [3, 4]], [[3.0, 4.0], [0.0, 0.0]])
    assert np.linalg.norm(found.descriptors, axis=1).tolist() == [1, 0]
    assert len(features([], [])) == 0
