"""Partitions of small graphs, by hand and at random."""

import numpy as np

from benchmarks.partitions import cut, loads, streamed


def test_loads_of_a_square_with_a_diagonal():
    """Nodes 0 and 1 are in one part, 2 and 3 in the other; 0-1, 2-3 are kept, three are cut."""
    source, target = np.array([0, 2, 0, 1, 0]), np.array([1, 3, 2, 3, 3])
    found = loads(np.array([0, 0, 1, 1]), source, target)
    assert found["cut"] == 3 / 5
    assert found["ghosts_per_node"] == 1.0  # each node has a neighbor in the other part
    assert (found["nodes_skew"], found["held_skew"], found["edges_skew"]) == (1.0, 1.0, 1.0)


def test_a_stream_of_two_cliques_is_cut_between_them():
    clique = [(a, b) for a in range(20) for b in range(a)]
    pairs = np.array([*clique, *((a + 20, b + 20) for a, b in clique), (0, 20)])
    ends = np.concatenate([pairs, pairs[:, ::-1]])
    ends = ends[np.argsort(ends[:, 0], kind="stable")]
    indptr = np.r_[0, np.cumsum(np.bincount(ends[:, 0]))]
    owner = streamed(indptr, ends[:, 1], 2)
    one, other = (np.bincount(part, minlength=2) for part in (owner[:20], owner[20:]))
    assert min(one.max(), other.max()) >= 16  # the first know no neighbors, and parts are bounded
    assert one.argmax() != other.argmax()


def test_a_streaming_partition_cuts_less_than_a_hash():
    hashed, streaming = cut(2_000, 4.0, [4])
    assert abs(hashed["cut"] - 3 / 4) < 0.03
    assert streaming["cut"] < hashed["cut"] - 0.1
    assert streaming["nodes_skew"] < 1.11
