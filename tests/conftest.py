"""What holds for all tests: one thread, and the same random numbers every time."""

import pytest
import torch
from hypothesis import HealthCheck, settings

settings.register_profile(
    "house",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("house")

torch.set_num_threads(1)  # small tensors gain nothing from more, and lose a lot on a busy machine


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)
