"""Âx of one item after the other, in a fixed order of operations."""

from __future__ import annotations

import numpy as np

from evergraph.feature_graph.compiled import exact_loop


@exact_loop
def propagated(ptr, feature, x_ptr, x_feature, x_value, m_ptr, m_feature, m_value):
    """Eq. (7) with the undirected Â of Eq. (4), columns divided by their absolute sums.

    `feature` holds the features of x and m, sorted, of each item. Values are integers.
    """
    out = np.zeros(feature.shape[0], np.int64)
    for b in range(ptr.shape[0] - 1):
        start, size = ptr[b], ptr[b + 1] - ptr[b]
        x, m = np.zeros(size), np.zeros(size)
        for values, source_ptr, source_feature, source in (
            (x, x_ptr, x_feature, x_value),
            (m, m_ptr, m_feature, m_value),
        ):
            at = 0
            for e in range(source_ptr[b], source_ptr[b + 1]):
                while feature[start + at] != source_feature[e]:
                    at += 1
                values[at] = source[e]
        total = np.zeros(size)
        column = np.empty(size)
        for j in range(size):
            if x[j] == 0:
                continue
            absolute = 0.0
            for i in range(size):
                product = x[i] * m[j] + m[i] * x[j]
                column[i] = np.sign(product) * np.sqrt(abs(product))
                absolute += abs(column[i])
            if absolute > 0:
                for i in range(size):
                    total[i] += column[i] / absolute * x[j]
        for i in range(size):
            out[start + i] = np.int64(np.rint(total[i]))
    return out
