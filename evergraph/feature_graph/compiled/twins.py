"""Compiled loops: feature nodes that are alike, found by hashing; see `compiled.support`."""

from __future__ import annotations

import numpy as np

from evergraph.feature_graph.compiled import loop


@loop
def twins(values, m, ptr, width):
    """Give the nodes of an item that have the same x and m one number.

    Numbers are given item after item, those in supp(x) first. Returns the number of each node
    `(N,)`, where the numbers of each item begin `(B + 1,)`, how many are in supp(x) `(B,)`, and for
    each number a node that has it and how many there are, `(V,)` each.
    """
    nodes = values.shape[0]
    key = _keys(values, m)
    number, example = np.empty(nodes, np.int64), np.empty(nodes, np.int64)
    size, start = np.zeros(nodes, values.dtype), np.zeros(ptr.shape[0], np.int64)
    inside, table, count = np.empty_like(width), np.empty(2, np.int32), 0
    for b in range(width.shape[0]):
        middle = ptr[b] + width[b]
        for first, last in ((ptr[b], middle), (middle, ptr[b + 1])):
            slots = 2
            while slots < 2 * (last - first):
                slots *= 2
            if slots > table.shape[0]:
                table = np.empty(slots, np.int32)
            table[:slots] = -1
            for i in range(first, last):
                slot = np.int64(key[i]) & (slots - 1)
                while table[slot] >= 0 and not _same(values, m, i, example[table[slot]]):
                    slot = (slot + 1) & (slots - 1)
                if table[slot] < 0:
                    table[slot] = count
                    example[count] = i
                    count += 1
                number[i] = table[slot]
                size[number[i]] += 1
            if last == middle:
                inside[b] = count - start[b]
        start[b + 1] = count
    return number, start, inside, example[:count].copy(), size[:count].copy()


@loop
def _keys(values, m):
    """A hash of x and m for every node."""
    words = values.itemsize // 4
    out = np.zeros(values.shape[0], np.uint32)
    for p in range(-1, m.shape[0]):
        bits = (values if p < 0 else m[p]).view(np.uint32)
        for w in range(words):
            for i in range(out.shape[0]):
                n = np.uint32((out[i] ^ bits[i * words + w]) * np.uint32(0x9E3779B1))
                out[i] = n ^ (n >> np.uint32(15))
    return out


@loop
def _same(values, m, i, j):
    same = values[i] == values[j]
    for p in range(m.shape[0]):
        same &= m[p, i] == m[p, j]
    return same
