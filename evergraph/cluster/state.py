"""What is known of all shards together: statistics and landmarks, sums and the holdout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from evergraph.cluster.asking import Shards
from evergraph.cluster.folder import Change
from evergraph.cluster.partition import route
from evergraph.datasets.schema import Schema
from evergraph.feature_graph.fixed_point import Embedding, Rows
from evergraph.learn.exact import Learned
from evergraph.learn.solution import Holdout, Solution
from evergraph.learn.sums import Sums
from evergraph.model.folder import Settings
from evergraph.model.state import Base, fingerprint, first_landmarks, landmark_rows


@dataclass(frozen=True)
class Joint:
    """What all shards make rows with.

    Attributes:
        settings: of the model.
        schema: with the statistics of all base nodes.
        landmarks: of all base nodes.
        compared: their features.
        embedding: makes rows.
    """

    settings: Settings
    schema: Schema
    landmarks: Sequence[Base]
    compared: Rows
    embedding: Embedding

    @classmethod
    def of(cls, settings: Settings, schema: Schema, landmarks: Sequence[Base]) -> Joint:
        """All that follows from statistics and landmarks."""
        compared, width = landmark_rows(schema, landmarks), max(schema.width, 1)
        embedding = Embedding(settings.blocks, width, settings.hops, compared)
        return cls(settings, schema, landmarks, compared, embedding)

    def fingerprint(self) -> str:
        """A hash of all this."""
        names = [name for name, _ in self.landmarks]
        return fingerprint(self.settings, self.schema, names, self.compared)


class State:
    """What shards have told, and brings them up to date.

    Args:
        shards: which are asked.
        settings: of the model.

    Attributes:
        joint: what all shards make rows with.
    """

    joint: Joint

    def __init__(self, shards: Shards, settings: Settings) -> None:
        self.shards, self.settings = shards, settings
        self._stale = True  # whether a shard may lack means of its ghosts
        self._learned: Learned | None = None
        self._solved: Solution | None = None
        shards.lost = self.lose

    def lose(self) -> None:
        """A shard has died: what was gathered from it may be of an earlier state."""
        self._learned = self._solved = None
        self._stale = True

    def join(self) -> None:
        """Join the statistics and landmarks of all shards, and let them follow."""
        schema, *others = (Schema.from_json(text) for text in self.shards.all("holding.share"))
        for other in others:
            schema.merge(other)
        count = self.settings.landmarks
        parts = self.shards.all("holding.landmarks", count)
        chosen = first_landmarks(chain.from_iterable(parts), count)
        self.shards.all("follow", schema.to_json(), chosen)
        self.joint = Joint.of(self.settings, schema, chosen)
        self._send_means(everything=True)

    def know(self) -> None:
        """Take what was joined from the shards."""
        schema, landmarks = self.shards.all("holding.followed")[0]
        self.joint = Joint.of(self.settings, Schema.from_json(schema), landmarks)

    def make(self, change: Change) -> None:
        """Let all shards take a change."""
        self._learned = self._solved = None
        if change.refit is not None:
            self.shards.all("holding.refit", change.number, Schema.from_json(change.refit))
            self.join()
            return
        each = route(change.events, self.shards.count)
        stale = self.shards.engine.each("learn", [(change.number, part) for part in each])
        if self.shards.count > 1:
            self.shards.exchange("give_ghosts", "take_ghosts")
        if any(stale):
            self.join()
        else:
            self._send_means(everything=False)

    def _send_means(self, everything: bool) -> None:
        if self.shards.count > 1 and self.settings.hops > 1:
            waves = self.shards.all("border", everything or self._stale)
            self.shards.exchange("give_means", "take_means", waves)
        self._stale = False

    def gather(self) -> Learned:
        """The sums and the holdout of all shards: those that one machine has."""
        if self._learned is None:
            if self._stale:
                self._send_means(everything=True)
            self._learned = self._gathered()
        return self._learned

    def _gathered(self) -> Learned:
        limit, joint = self.settings.held_out, self.joint
        keys = self.shards.all("settle")
        cut = sorted(chain.from_iterable(keys))[:limit][-1:]
        counts = [sum(key <= cut[0] for key in own) if cut else 0 for own in keys]
        with self.shards.timed("messages"):
            found = self.shards.engine.each("collect", [(count,) for count in counts])
        sums = Sums(joint.embedding.size)
        for part, _ in found:
            sums.merge(part)
        held = [one for _, one in found]
        key = np.concatenate([one.keys for one in held])
        order = np.argsort(key, kind="stable")
        rows = np.concatenate([one.rows for one in held])[order]
        labels = list(chain.from_iterable(one.labels for one in held))
        holdout = Holdout(rows, [labels[at] for at in order.tolist()], key[order] % 4 == 0)
        return Learned(joint.embedding, joint.compared, None, limit, sums, holdout)

    def solution(self) -> Solution:
        """The classifier of now; solved again only if something has changed."""
        if self._solved is None:
            learned = self.gather()
            if not {*learned.sums.counts, *learned.held.labels}:
                raise ValueError(
                    "nothing has been learned yet: the graph has no labels; learn some"
                )
            self._solved = learned.prepare()()
        return self._solved
