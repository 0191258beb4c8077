"""What reads feature graphs: layers, heads, the FGN and its baselines (Eqs. 7-9)."""

from evergraph.nn.attention import FeatureAttention
from evergraph.nn.baselines import baseline
from evergraph.nn.fgn import FGN
from evergraph.nn.heads import Embedding, Head, PairReadout, Readout
from evergraph.nn.layers import FeatureBroadcast, FeatureConvolution, FeatureTransform
from evergraph.nn.model import Model, Requires
from evergraph.nn.norm import FeatureNorm

__all__ = [
    "FGN",
    "Embedding",
    "FeatureAttention",
    "FeatureBroadcast",
    "FeatureConvolution",
    "FeatureNorm",
    "FeatureTransform",
    "Head",
    "Model",
    "PairReadout",
    "Readout",
    "Requires",
    "baseline",
]
