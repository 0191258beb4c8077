"""The model folder: a growing graph on disk, and a classifier that always follows it."""

from evergraph.model.classifier import GraphClassifier
from evergraph.model.folder import Settings
from evergraph.model.model import Model, open
from evergraph.prediction import Explanation, Prediction

__all__ = ["Explanation", "GraphClassifier", "Model", "Prediction", "Settings", "open"]
