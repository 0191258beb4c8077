"""Small tables of people, and settings for models of them."""

import numpy as np

from evergraph.model import Settings

SMALL = Settings(landmarks=16, held_out=30)


def people(size: int = 240, seed: int = 0) -> tuple[dict, dict]:
    """Two kinds of people, of different age and country, who know their own kind."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 2, size)
    nodes = {
        "id": [f"p{k}" for k in range(size)],
        "age": (30 + 20 * kind + rng.normal(0, 8, size)).round(1).tolist(),
        "country": [["de", "fr", "it"][c] for c in (kind + rng.integers(0, 2, size))],
        "joined": ["2024-03-01" if k % 7 else "" for k in range(size)],
        "label": ["young" if k == 0 else "old" for k in kind],
    }
    ends = rng.integers(0, size, (600, 2))
    same = ends[(kind[ends[:, 0]] == kind[ends[:, 1]]) & (ends[:, 0] != ends[:, 1])]
    edges = {"source": [f"p{k}" for k in same[:, 0]], "target": [f"p{k}" for k in same[:, 1]]}
    return nodes, edges


def row(nodes, k):
    return {name: column[k] for name, column in nodes.items()}


def table(rows):
    names = sorted({name for row in rows for name in row})
    return {name: [row.get(name) for row in rows] for name in names}
