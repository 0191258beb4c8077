"""What a kill does to a model folder that is being taught."""

import random

import kill_and_resume
import pytest


@pytest.mark.slow
def test_a_lesson_killed_at_random_moments_leaves_the_old_model_or_the_new_one(tmp_path):
    assert kill_and_resume.lessons(tmp_path, 6, random.Random(1)) == 0
