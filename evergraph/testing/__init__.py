"""Checks for parts of your own, in the manner of scikit-learn's `check_estimator`."""

from evergraph.testing.faults import Injected, Outcome, inject
from evergraph.testing.learner import Check, check_learner, learner_checks

__all__ = ["Check", "Injected", "Outcome", "check_learner", "inject", "learner_checks"]
