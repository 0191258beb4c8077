# %% [markdown]
# # The paper's Cora experiment, equation by equation
#
# Cora is a graph of papers: features are words, edges are citations, classes are topics.
# Without the data a generated graph of the same kind takes its place.

# %%
import torch

from evergraph import FGN, Analytic, Learner, node_continuum
from evergraph.datasets import DatasetNotFound, load
from evergraph.feature_graph import feature_adjacency, neighborhood_mean, normalize, propagate

try:
    data = load("cora")
except DatasetNotFound:
    data = load("generated")
print(data)

# %% [markdown]
# ## Eq. (1): the stream
#
# Items come one class after the other, ten at a time. An item carries its own features and
# those of its neighbors.

# %%
stream = node_continuum(data, scenario="class")
batch = next(iter(stream))
item = batch.select(torch.tensor([0]))
print(item, "of class", int(item.target))

# %% [markdown]
# ## Eq. (5): the mean of the neighbors
#
# The sum over neighbors in Eq. (4) needs only their mean m, since x is the same in all its
# terms.

# %%
x = item.x.to_dense().reshape(1, 1, -1)  # (B, C, F)
mean = neighborhood_mean(item.neighbors, num_items=1)  # (B, P, C, F)
print("words of the paper:", int((x > 0).sum()), "of its neighbors:", int((mean > 0).sum()))

# %% [markdown]
# ## Eqs. (3), (4), (6): the feature graph
#
# Words are nodes. Two words are connected if one stands in the paper and the other around it.
# The matrix is formed here to look at it; the library never does.

# %%
adjacency = feature_adjacency(x, mean.to_dense() if mean.is_sparse else mean)
graph = normalize(adjacency)
share = float((adjacency != 0).double().mean())
print("matrix", tuple(adjacency.shape[-2:]), f"{100 * share:.2f} % of it is not zero")
print("symmetric:", bool(torch.equal(adjacency, adjacency.mT)))

# %% [markdown]
# ## Eq. (7): a broadcast layer
#
# Every word collects from the words it is connected to; then channels are mixed.

# %%
collected = propagate(graph, x)
print("collected", tuple(collected.shape), "nonzero:", int((collected != 0).sum()))

# %% [markdown]
# ## The network, and Eq. (10)
#
# `FGN` stacks such layers, and a replayed memory keeps it from forgetting. That takes a minute;
# here the closed form learns the whole stream from the same feature graphs, in one pass,
# without any memory.

# %%
learner = Learner(FGN(data.graph.num_features), Analytic())
for batch in stream:
    learner.observe(batch)
score = learner.evaluate(stream.test())
print(f"accuracy on all test papers: {score:.3f}")
