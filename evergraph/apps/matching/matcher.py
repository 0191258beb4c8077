"""Two images in, good matches out; and it goes on learning while it works."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from evergraph.apps.matching.arrangements import (
    Arrangement,
    CandidateArrangement,
    graph_tensors,
    match_in_any_order,
)
from evergraph.apps.matching.assignment import Matches
from evergraph.apps.matching.candidates import Proposal, propose
from evergraph.apps.matching.features import Detector, detect, features
from evergraph.apps.matching.images import Image, read_image
from evergraph.apps.matching.network import CandidateNetwork, as_batch
from evergraph.apps.matching.paper import PaperArrangement, PaperNetwork
from evergraph.apps.matching.truth import Pair, verified_labels
from evergraph.learn.checkpoint import CheckpointError, read_checkpoint, write_checkpoint
from evergraph.learn.learner import Learner, Method
from evergraph.learn.memory import Memory, Reservoir
from evergraph.learn.methods import Replay
from evergraph.learn.training import Training

Array = NDArray[Any]


@dataclass(frozen=True)
class Matched:
    """The matches of two images.

    Attributes:
        keypoints0, keypoints1: `(N, 2)` all points found, x and y in pixels.
        matches: which of them belong together, the most confident first.
    """

    keypoints0: Array
    keypoints1: Array
    matches: Matches

    def arrays(self) -> dict[str, Array]:
        """What SuperGlue writes: `matches[i]` is the partner of point i or -1."""
        partner = np.full(len(self.keypoints0), -1)
        confidence = np.zeros(len(self.keypoints0), np.float32)
        partner[self.matches.first] = self.matches.second
        confidence[self.matches.first] = self.matches.confidence
        return {
            "keypoints0": self.keypoints0,
            "keypoints1": self.keypoints1,
            "matches": partner,
            "match_confidence": confidence,
        }


@dataclass(frozen=True)
class Online:
    """How a matcher learns from a stream, through the package's own learner.

    Attributes:
        method: how forgetting is fought.
        memory: of candidates; None for methods that need none.
        training: how gradients are used.
        seed: of the replay.
    """

    method: Method
    memory: Memory | None
    training: Training
    seed: int = 0

    @classmethod
    def default(cls, capacity: int = 2000, seed: int = 0) -> Online:
        """Replay from a reservoir of so many candidates, of about 2 kB each."""
        training = Training(
            optimizer="adam", lr=1e-3, steps=1, replay_batches=1, replay_batch_size=512
        )
        return cls(Replay(), Reservoir(capacity, seed=seed), training, seed)


class Matcher:
    """Finds the matches of two images.

    Args:
        arrangement: how features become matches; see `arrangements` and `paper`.
        detector: `sift` or `orb`, for images.
        points: of each image, at the most.
        online: how `learn` learns; replay from a reservoir by default.

    Example:
        >>> from evergraph.apps.matching.sources import photograph
        >>> image = photograph("astronaut.png")
        >>> found = Matcher.pretrained(points=64).match(image, image)
        >>> bool((found.matches.first == found.matches.second).all())
        True
    """

    def __init__(
        self,
        arrangement: Arrangement,
        detector: Detector = "sift",
        points: int = 512,
        online: Online | None = None,
    ) -> None:
        self.arrangement, self.detector, self.points = arrangement, detector, points
        self._online = online
        self._learner: Learner | None = None

    @classmethod
    def pretrained(cls, detector: Detector = "sift", points: int = 512) -> Matcher:
        """The matcher that comes with the package: trained on SIFT, good for ORB too."""
        if detector not in ("sift", "orb"):
            raise ValueError(f"detector must be sift or orb, got {detector!r}")
        path = files("evergraph.apps.matching") / "fgn.safetensors"
        return cls(cls.load(Path(str(path))).arrangement, detector, points)

    # -- matching ---------------------------------------------------------------------------

    def match(self, image0: Image | Path | str, image1: Image | Path | str) -> Matched:
        """Detect the points of two images (arrays or files) and match them."""
        first, second = (
            detect(
                read_image(image) if isinstance(image, Path | str) else image,
                self.detector,
                self.points,
            )
            for image in (image0, image1)
        )
        matches = match_in_any_order(self.arrangement, first, second)
        return Matched(first.keypoints, second.keypoints, matches)

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
        first, second = (
            features(
                keypoints[side],
                descriptors[side],
                None if scales is None else scales[side],
                None if orientations is None else orientations[side],
            )
            for side in (0, 1)
        )
        return match_in_any_order(self.arrangement, first, second)

    def match_pair(self, pair: Pair) -> Matches:
        """Match a pair whose features are known."""
        return match_in_any_order(self.arrangement, pair.first, pair.second)

    # -- learning ---------------------------------------------------------------------------

    @property
    def learner(self) -> Learner:
        """The learner behind `learn`."""
        if not isinstance(self.arrangement, CandidateArrangement):
            raise ValueError(
                "learning from a stream needs the candidate arrangement, got "
                f"{type(self.arrangement).__name__}"
            )
        if self._learner is None:
            how = self._online or Online.default()
            network = self.arrangement.network
            self._learner = Learner(network, how.method, how.memory, how.training, how.seed)
            self._learner.classes = [0, 1]  # false and true, whichever comes first
        return self._learner

    def learn(self, pair: Pair) -> int:
        """Learn from a pair of frames; returns how many candidates had a label.

        Labels come from the pair's truth (depth and poses, or a homography). If it judges
        nothing, they come from a robust estimate of the geometry from the matches of now; where
        that fails, nothing is learned.
        """
        learner = self.learner
        assert isinstance(self.arrangement, CandidateArrangement)
        graph = propose(pair.first, pair.second, self.arrangement.proposal)
        if not len(graph):
            return 0
        if pair.truth.judged.any():
            labels = pair.labels(graph.first, graph.second)
        else:
            labels = verified_labels(pair, graph, self.arrangement.score(graph))
        batch = as_batch(*graph_tensors(graph), torch.from_numpy(labels))
        if len(batch):
            learner.observe(batch)
        return len(batch)

    # -- saving -----------------------------------------------------------------------------

    def save(self, path: Path | str, extra: dict[str, Any] | None = None) -> None:
        """Write the matcher to a file, without the memory of its stream."""
        values = {
            **self.arrangement.values(),
            "detector": self.detector,
            "points": self.points,
            "extra": extra or {},
        }
        write_checkpoint(path, self.arrangement.tensors(), values)

    @classmethod
    def load(cls, path: Path | str) -> Matcher:
        """Read a matcher that `save` wrote."""
        if not Path(path).is_file():
            raise CheckpointError(f"no matcher at {path}; make one with `evergraph match train`")
        tensors, values = read_checkpoint(path)
        if values.get("arrangement") not in ("candidates", "paper"):
            raise CheckpointError(f"{path} is a checkpoint of this program but not a matcher")
        arrangement: Arrangement
        if values["arrangement"] == "paper":
            paper = PaperNetwork(**values["network"])
            paper.load_state_dict(tensors)
            arrangement = PaperArrangement(paper)
        else:
            network = CandidateNetwork(**values["network"])
            if tensors["embed.0.weight"].shape != network.embed[0].weight.shape:
                raise CheckpointError(
                    f"{path} was trained on other features of candidates; train it again with "
                    "`evergraph match train`"
                )
            network.load_state_dict(tensors)
            proposal = Proposal(**values["proposal"])
            arrangement = CandidateArrangement(
                network, values["threshold"], values["beyond"], proposal
            )
        return cls(arrangement, values["detector"], values["points"])
