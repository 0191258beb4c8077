# %% [markdown]
# # Matching a pair of photographs
#
# One photograph, seen again from another side: the points of both images are proposed to each
# other, and a small network says which pairs belong together. Needs `pip install
# 'evergraph[matching]'`.

# %%
from pathlib import Path

import cv2
import numpy as np
from skimage import data

from evergraph.apps.matching.images import draw_matches
from evergraph.apps.matching.matcher import Matcher

first = cv2.cvtColor(data.astronaut(), cv2.COLOR_RGB2GRAY)
height, width = first.shape

# %% [markdown]
# ## A second view whose truth is known
#
# A homography takes each point of the first image to its place in the second.

# %%
corners = np.float32([[0, 0], [width, 0], [width, height], [0, height]])
moved = corners + np.float32([[40, 25], [-30, 60], [-60, -20], [25, -45]])
truth = cv2.getPerspectiveTransform(corners, moved)
second = cv2.warpPerspective(first, truth, (width, height))

# %% [markdown]
# ## Matches
#
# The matcher comes with the package and has 74 kB. It was trained on photographs of the same
# collection, so that this is an example and not a measurement; see docs/matching.md for those.

# %%
found = Matcher.pretrained().match(first, second)
ends0 = found.keypoints0[found.matches.first]
ends1 = found.keypoints1[found.matches.second]
there = cv2.perspectiveTransform(ends0[None].astype(np.float64), truth)[0]
error = np.linalg.norm(there - ends1, axis=1)
score = float((error < 3).mean())
print(f"{len(ends0)} matches, {score:.1%} of them within 3 pixels")

# %% [markdown]
# ## A picture

# %%
pictures = [cv2.cvtColor(image, cv2.COLOR_GRAY2BGR) for image in (first, second)]
out = Path("out/photographs.png")
out.parent.mkdir(exist_ok=True)
draw_matches(pictures, [ends0, ends1], found.matches.confidence, out)
print(f"picture in {out}")
