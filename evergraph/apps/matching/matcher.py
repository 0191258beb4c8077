"""Two images in, good matches out; and it goes on learning while it works."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evergraph.apps.matching.arrangements import (
    Kind,
    candidate_network,
    candidate_task,
    decide,
    graph_batch,
    one_to_one,
    score,
)
from evergraph.apps.matching.candidates import CandidateGraph, Proposal, propose
from evergraph.apps.matching.features import (
    Detector,
    ImageFeatures,
    canonical_order,
    check_detector,
    detect,
    features,
)
from evergraph.apps.matching.frames import at_least_mutual, missing, with_frames
from evergraph.apps.matching.images import Image, read_image
from evergraph.apps.matching.truth import PIXELS, Matches, Pair, sorted_matches
from evergraph.apps.matching.verify import Geometry, Model, epipolar_distance, verify
from evergraph.learn.checkpoint import CheckpointError, read_checkpoint, write_checkpoint
from evergraph.learn.learner import Learner
from evergraph.learn.memory import Reservoir
from evergraph.learn.methods import Replay
from evergraph.learn.training import Training
from evergraph.nn.fgn import FGN

Array = NDArray[Any]
SURE = 0.5  # minimum probability of the matches that a fundamental matrix is estimated from
FEWEST = 16  # inliers that an estimate needs to be used
CERTAIN = 0.7  # probability of the matches that two images of one scene have several of
SAVED = ("kind", "threshold", "detector", "points")  # in a file, beside network and proposal
WRONG = 3 * PIXELS  # distance from the epipolar line beyond which a candidate is false


@dataclass(frozen=True)
class Matched:
    """The matches of two images.

    Attributes:
        keypoints0, keypoints1: `(N, 2)` all points found, x and y in pixels.
        matches: which of them belong together, the most confident first.
        geometry: what they agree on, see `verified`; None if they were not verified.
    """

    keypoints0: Array
    keypoints1: Array
    matches: Matches
    geometry: Geometry | None = None

    def verified(
        self,
        model: Model = "fundamental",
        cameras: tuple[Array, Array] | None = None,
        tolerance: float | None = None,
    ) -> Matched:
        """The same with the geometry that its matches agree on, see `verify`."""
        ends = self.keypoints0[self.matches.first], self.keypoints1[self.matches.second]
        return replace(self, geometry=verify(*ends, model, cameras, tolerance))

    def arrays(self) -> dict[str, Array]:
        """What SuperGlue writes: `matches[i]` is the partner of point i or -1.

        Verified matches have `inliers` `(N0,)`, `model`, and with an essential matrix `rotation`
        and `translation`.
        """
        partner = np.full(len(self.keypoints0), -1)
        confidence = np.zeros(len(self.keypoints0), np.float32)
        partner[self.matches.first] = self.matches.second
        confidence[self.matches.first] = self.matches.confidence
        points = {"keypoints0": self.keypoints0, "keypoints1": self.keypoints1}
        found = {**points, "matches": partner, "match_confidence": confidence}
        if self.geometry is not None:
            inliers = np.zeros(len(self.keypoints0), bool)
            inliers[self.matches.first] = self.geometry.inliers
            found |= {"inliers": inliers, **self.geometry.arrays()}
        return found


def replay_learner(network: FGN, capacity: int = 2000, seed: int = 0) -> Learner:
    """Learn with replay from a reservoir of so many candidates, of about 2 kB each."""
    training = Training("adam", 1e-3, steps=1, replay_batches=1, replay_batch_size=512)
    memory = Reservoir(capacity, seed=seed)
    return Learner(network, Replay(), memory, training, seed, candidate_task())


@dataclass
class Matcher:
    """Finds the matches of two images: detects points, proposes candidates, scores them, decides.

    Attributes:
        kind: of the network.
        threshold: least probability of a match; None cuts every pair where F1 is expected to be
            largest, see `best_cut`.
        proposal: how candidates are proposed.
        network: scores candidates; a new one if None.
        bare: scores those of points without scale or orientation; if None, `network` does.
        detector: `sift`, `orb` or `corners`, for images.
        points: of each image, at the most.
        certain: how many matches of a probability of 0.7 or more two images need to be taken as
            views of one scene; images with fewer have no matches at all. 0 returns all there are.
        learner: of a network; `replay_learner` of the one that scored the first pair if None.

    Example:
        >>> from evergraph.apps.matching.sources import photograph
        >>> image = photograph("astronaut.png")
        >>> found = Matcher.pretrained(points=64).match(image, image)
        >>> bool((found.matches.first == found.matches.second).all())
        True
    """

    kind: Kind = "fgn"
    threshold: float | None = None
    proposal: Proposal = field(default_factory=Proposal)
    network: FGN = None  # type: ignore[assignment]
    bare: FGN | None = None
    detector: Detector = "sift"
    points: int = 512
    certain: int = 4
    learner: Learner | None = None

    def __post_init__(self) -> None:
        """Reject what is no probability and no detector."""
        if self.threshold is not None and not 0 <= self.threshold <= 1:
            raise ValueError(f"threshold must lie in 0..1, got {self.threshold}")
        if self.certain < 0:
            raise ValueError(f"certain must be 0 or more matches, got {self.certain}")
        check_detector(self.detector)
        self.network = self.network or candidate_network(self.kind, self.proposal.neighbors)

    @classmethod
    def pretrained(cls, detector: Detector = "sift", points: int = 512) -> Matcher:
        """The matcher that comes with the package: trained on SIFT, good for ORB too.

        It has a second network for points without scale or orientation.
        """
        folder = Path(str(files("evergraph.apps.matching")))
        tool, other = (cls.load(folder / f"{name}.safetensors") for name in ("fgn", "fgn_bare"))
        return replace(tool, bare=other.network, detector=detector, points=points)

    # -- matching ---------------------------------------------------------------------------

    def match(self, image0: Image | Path | str, image1: Image | Path | str) -> Matched:
        """Detect the points of two images (arrays or files) and match them."""
        images = (read_image(i) if isinstance(i, Path | str) else i for i in (image0, image1))
        first, second = (detect(image, self.detector, self.points) for image in images)
        return Matched(first.keypoints, second.keypoints, self._match(first, second))

    def match_features(
        self,
        keypoints: tuple[ArrayLike, ArrayLike],
        descriptors: tuple[ArrayLike, ArrayLike],
        scales: tuple[ArrayLike, ArrayLike] | None = None,
        orientations: tuple[ArrayLike, ArrayLike] | None = None,
    ) -> Matches:
        """Match points that somebody else found; everything comes as a pair, one per image.

        Args:
            keypoints: `(N, 2)` each, x and y in pixels.
            descriptors: `(N, D)` each, of any width D, compared by their cosine.
            scales: `(N,)` each; unknown scales are taken as equal.
            orientations: `(N,)` each, radians; unknown ones are taken as equal.
        """
        rest = ((None, None) if part is None else part for part in (scales, orientations))
        first, second = (
            features(*side) for side in zip(keypoints, descriptors, *rest, strict=True)
        )
        return self._match(first, second)

    def match_pair(self, pair: Pair) -> Matches:
        """Match a pair whose features are known."""
        return self._match(pair.first, pair.second)

    def _match(self, first: ImageFeatures, second: ImageFeatures) -> Matches:
        """Match so that the order in which points come changes nothing, not even a rounding."""
        order0, order1 = canonical_order(first), canonical_order(second)
        first, second = first.take(order0), second.take(order1)
        graph, network = self._propose(first, second)
        likely = score(network, graph)
        found = decide(graph, likely, self.threshold)
        if len(one_to_one(graph.first, graph.second, likely, CERTAIN)) < self.certain:
            found = found.strongest(0)
        if any(missing(first, second)):
            found = at_least_mutual(first, second, found)
        return sorted_matches(order0[found.first], order1[found.second], found.confidence)

    def _propose(self, first: ImageFeatures, second: ImageFeatures) -> tuple[CandidateGraph, FGN]:
        """The candidates of two images, and the network that scores points like these."""
        network = self.bare if any(missing(first, second)) else None
        return propose(*with_frames(first, second), self.proposal), network or self.network

    # -- learning ---------------------------------------------------------------------------

    def learn(self, pair: Pair) -> int:
        """Learn from a pair of frames; returns how many candidates had a label.

        Labels come from the pair's truth (depth and poses, or a homography). If it judges
        nothing, they come from a robust estimate of the geometry from the matches of now; where
        that fails, nothing is learned.
        """
        graph, network = self._propose(pair.first, pair.second)
        if not len(graph):
            return 0
        if pair.truth.judged.any():
            labels = pair.labels(graph.first, graph.second)
        else:
            labels = verified_labels(pair, graph, score(network, graph))
        known = int((labels >= 0).sum())
        if known:
            self.learner = self.learner or replay_learner(network)
            self.learner.observe(graph_batch(graph, labels))
        return known

    # -- saving -----------------------------------------------------------------------------

    def save(self, path: Path | str, extra: dict[str, Any] | None = None) -> None:
        """Write the matcher to a file, without the memory of its stream."""
        values = {name: getattr(self, name) for name in SAVED}
        about = {"arrangement": "candidates", "proposal": asdict(self.proposal)}
        about |= {**values, "extra": extra or {}}
        write_checkpoint(path, self.network.state_dict(), about)

    @classmethod
    def load(cls, path: Path | str) -> Matcher:
        """Read a matcher that `save` wrote."""
        if not Path(path).is_file():
            raise CheckpointError(f"no matcher at {path}; make one with `evergraph match train`")
        tensors, values = read_checkpoint(path)
        if values.get("arrangement") != "candidates":
            raise CheckpointError(f"{path} is a checkpoint of this program but not a matcher")
        own = {name: values[name] for name in SAVED}
        tool = cls(proposal=Proposal(**values["proposal"]), **own)
        shapes = {name: part.shape for name, part in tool.network.state_dict().items()}
        if shapes != {name: part.shape for name, part in tensors.items()}:
            raise CheckpointError(
                f"{path} was trained on other features of candidates; train it again with "
                "`evergraph match train`"
            )
        tool.network.load_state_dict(tensors)
        return tool


def verified_labels(pair: Pair, graph: CandidateGraph, probabilities: Array) -> Array:
    """Labels of candidates `(E,)` from geometric verification: 1 true, 0 false, -1 unknown.

    A fundamental matrix is estimated from confident matches (MAGSAC). Its inliers are true.
    Candidates that share a keypoint with an inlier, or lie far from the epipolar line, are false.
    The rest is unknown, since false candidates may lie near the line by chance. The ground truth
    of the pair is not used.
    """
    unknown = np.full(len(graph), -1)
    matches = one_to_one(graph.first, graph.second, probabilities, SURE)
    if len(matches) < FEWEST:
        return unknown
    found = verify(*pair.points(matches), "fundamental")
    kept = found.inliers
    if found.model is None or int(kept.sum()) < FEWEST:
        return unknown
    partner = np.full(len(pair.first), -1)
    partner[matches.first[kept]] = matches.second[kept]
    taken = np.zeros(len(pair.second), bool)
    taken[matches.second[kept]] = True
    true = partner[graph.first] == graph.second
    rival = (partner[graph.first] >= 0) | taken[graph.second]
    ends = pair.first.keypoints[graph.first], pair.second.keypoints[graph.second]
    far = epipolar_distance(*ends, found.model) > WRONG
    return np.where(true, 1, np.where(rival | far, 0, unknown))
