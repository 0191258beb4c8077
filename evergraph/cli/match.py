"""The commands that match images, and learn to."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from evergraph.cli.console import (
    AsJson,
    Out,
    Seed,
    complaints,
    progress,
    publish,
    remark,
    use_threads,
    written,
)
from evergraph.cli.match_options import (
    Certain,
    MatcherFile,
    OtherDetector,
    OutFolder,
    Points,
    Saved,
    Threshold,
    open_matcher,
)
from evergraph.cli.match_output import methods_table, numbers

match = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Match the points of images, and learn to."
)


@match.command("pair")
def match_pair(
    first: Annotated[Path, typer.Argument(help="An image.")],
    second: Annotated[Path, typer.Argument(help="Another image of the same thing.")],
    out: OutFolder = Path("out"),
    matcher: MatcherFile = None,
    detector: OtherDetector = None,
    points: Points = 1024,
    threshold: Threshold = None,
    certain: Certain = None,
    verify: Annotated[
        str, typer.Option(help="`homography`, `fundamental` or `essential`: what matches agree on.")
    ] = "",
    intrinsics: Annotated[
        str, typer.Option(help="fx,fy,cx,cy of both cameras, or of each: fx,fy,cx,cy;fx,fy,cx,cy.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Match two images: matches.npz (SuperGlue's keys), a picture.

    `keypoints0` and `keypoints1` hold the points, `matches` the partner of each point of the first
    image or -1, `match_confidence` how sure that is. In the picture blue lines are sure, red ones
    are not. With --verify, `inliers` tells which points have a match that agrees with the `model`
    (3 × 3, estimated with MAGSAC++), and the picture shows only those; `essential` needs
    --intrinsics and adds the pose, `rotation` and `translation`.
    """
    with complaints():
        import numpy as np

        from evergraph.apps.matching.images import draw_matches, read_image, to_color
        from evergraph.apps.matching.verify import check_model, read_cameras

        quiet_threads()
        cameras = read_cameras(intrinsics) if intrinsics else None
        if verify:
            check_model(verify, cameras, "verify")
        tool = open_matcher(matcher, detector, points, threshold, certain)
        images = [read_image(path) for path in (first, second)]
        start = time.perf_counter()
        found = tool.match(*images)
        if verify:
            found = found.verified(verify, cameras)  # type: ignore[arg-type]
        seconds = time.perf_counter() - start
        out.mkdir(parents=True, exist_ok=True)
        np.savez(out / "matches.npz", allow_pickle=False, **found.arrays())
        matches = found.matches
        kept = slice(None) if found.geometry is None else found.geometry.inliers
        ends = found.keypoints0[matches.first[kept]], found.keypoints1[matches.second[kept]]
        shown = [to_color(image) for image in images]
        draw_matches(shown, ends, matches.confidence[kept], out / "matches.png")
    result: dict[str, object] = {
        "points0": len(found.keypoints0),
        "points1": len(found.keypoints1),
        "matches": len(matches),
        "same_scene": len(matches) > 0,
        "mean_confidence": float(matches.confidence.mean()) if len(matches) else None,
        **({} if found.geometry is None else {"inliers": int(found.geometry.inliers.sum())}),
        "seconds": seconds,
    }
    publish(result, as_json, None, lambda: numbers(f"{first.name} and {second.name}", result))
    if not as_json:
        if not len(matches):
            remark("These do not seem to be images of one scene: no matches.", "yellow")
        typer.echo(f"Matches and a picture of them are in {out}/")


@match.command("video")
def match_video(
    folder: Annotated[
        Path, typer.Argument(help="Images in the order of their names, or one TartanAir sequence.")
    ],
    learn: Annotated[
        bool, typer.Option(help="Learn from depth and poses, or from geometry (RANSAC) without.")
    ] = False,
    memory: Annotated[int, typer.Option(help="Candidates that are kept for replay.")] = 2000,
    width: Annotated[int, typer.Option(min=32, help="Larger frames are scaled down to it.")] = 640,
    save: Annotated[Path | None, written("Where the matcher goes in the end.")] = None,
    matcher: MatcherFile = None,
    detector: OtherDetector = None,
    points: Points = 512,
    threshold: Threshold = None,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Match every frame with the one before, and learn if asked to.

    Shows matches per second while it runs. With depth and poses it also tells precision, recall
    and F1 of what was matched before it was learned.
    """
    with complaints():
        from evergraph.apps.matching.evaluate import judge, summarize
        from evergraph.apps.matching.matcher import replay_learner
        from evergraph.apps.matching.sources import TRUTH, layout_of, video_length, video_pairs
        from evergraph.evaluate.evidence import provenance

        evidence = provenance()
        quiet_threads()
        tool = open_matcher(matcher, detector, points, threshold)
        truth = TRUTH["tartanair"] if layout_of(folder) == "tartanair" else "none"
        if learn:
            tool.learner = replay_learner(tool.network, memory)
        total = matches = labels = 0
        seconds, scores = 0.0, []
        with progress(as_json) as shown:
            task = shown.add_task("matching", total=video_length(folder))
            for pair in video_pairs(folder, width, points, tool.detector):
                start = time.perf_counter()
                found = tool.match_pair(pair)
                seconds += time.perf_counter() - start
                if pair.truth.judged.any():
                    scores.append(judge(pair, found))
                if learn:
                    labels += tool.learn(pair)
                total, matches = total + 1, matches + len(found)
                rate = f"{matches / max(seconds, 1e-9):,.0f} matches per second"
                shown.update(task, advance=1, description=f"{len(found)} matches, {rate}")
        if save is not None:
            tool.save(save, {"learned_from": labels, **evidence})
    result: dict[str, object] = {
        **evidence,
        "truth": truth,
        "pairs": total,
        "matches": matches,
        "matches_per_second": matches / max(seconds, 1e-9),
        "milliseconds_per_pair": 1e3 * seconds / max(total, 1),
        "learned_candidates": labels,
        **(summarize(scores) if any(s.recall == s.recall for s in scores) else {}),
    }
    title = f"{folder.name}, frame to frame, truth: {truth}"
    publish(result, as_json, out, lambda: numbers(title, result))


@match.command("train")
def match_train(
    folder: Annotated[
        Path | None,
        typer.Argument(help="Images, or TartanAir's layout; default: scikit-image's and -learn's."),
    ] = None,
    save: Saved = Path("out/matcher.safetensors"),
    kind: Annotated[str, typer.Option(help="fgn, gcn, gat or mlp.")] = "fgn",
    pairs: Annotated[int, typer.Option(min=2, help="Pairs to make.")] = 1000,
    steps: Annotated[
        int | None,
        typer.Option(min=1, help="Gradient steps, 8 pairs each; default: 300, to adapt 150."),
    ] = None,
    detector: Annotated[str, typer.Option(help="`sift`, `orb` or `corners`.")] = "sift",
    bare: Annotated[
        bool,
        typer.Option("--bare", help="Adapt --matcher to points without scale or orientation."),
    ] = False,
    wide: Annotated[
        bool, typer.Option("--wide", help="Adapt --matcher to views turned and tilted by far.")
    ] = False,
    matcher: MatcherFile = None,
    points: Points = 256,
    seed: Seed = 0,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Train a matcher; about one CPU minute by default.

    Plain images are warped by random homographies and get photometric noise; TartanAir's layout
    gives truth from depth and poses. A fifth of the images or pairs is held out to tell how good
    it is.
    """
    with complaints():
        from evergraph.apps.matching.homography import WIDE, Views
        from evergraph.apps.matching.train import GENTLE, Fit, train
        from evergraph.evaluate.evidence import provenance

        evidence = provenance()
        quiet_threads()
        seen = WIDE if wide else Views()
        views = replace(seen, points=points, detector=detector)  # type: ignore[arg-type]
        with progress(as_json) as shown:
            how = GENTLE if bare or wide else Fit()
            how = replace(how, steps=steps or how.steps)
            start = open_matcher(matcher, None, points, None) if bare or wide else None
            task = shown.add_task("making pairs, then training", total=how.steps)
            follow = lambda step: shown.update(task, completed=step)  # noqa: E731
            tool, result = train(folder, kind, pairs, how, views, seed, follow, start, bare)  # type: ignore[arg-type]
        tool.save(save, {**result, **evidence})
    result = {**evidence, **result}
    publish(result, as_json, out, lambda: numbers(f"{kind} on {folder or 'pictures'}", result))
    if not as_json:
        typer.echo(f"The matcher is in {save}")


@match.command("evaluate")
def match_evaluate(
    folder: Annotated[
        Path, typer.Argument(help="HPatches', Oxford's or TartanAir's layout, or plain images.")
    ],
    count: Annotated[int, typer.Option("--pairs", min=1, help="Pairs at the most.")] = 200,
    apart: Annotated[int, typer.Option(min=1, help="Frames between the two of a pair.")] = 1,
    matcher: MatcherFile = None,
    detector: OtherDetector = None,
    points: Points = 512,
    threshold: Threshold = None,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Judge a matcher beside the ratio test, GMS and AdaLAM.

    Precision, recall and F1 within 3 pixels (hidden points are not judged), the mean error of the
    150 most confident matches, and the area under the curve of the homography's corner error
    (1, 3, 5 pixels) or of the pose error (5, 10, 20 degrees).
    """
    with complaints():
        from evergraph.apps.matching.baselines import settled
        from evergraph.apps.matching.evaluate import evaluate
        from evergraph.apps.matching.sources import TRUTH, judged_pairs, layout_of
        from evergraph.evaluate.evidence import provenance

        evidence = provenance()
        quiet_threads()
        tool = open_matcher(matcher, detector, points, threshold)
        methods = {**settled(tool.detector), "evergraph": tool.match_pair}
        with progress(as_json) as shown:
            task = shown.add_task("reading pairs", total=len(methods))
            found = judged_pairs(folder, count, apart, points, tool.detector)
            rows = []
            for name, method in methods.items():
                shown.update(task, description=name)
                rows.append({"method": name, **evaluate(found, method, geometry=True)})
                shown.advance(task)
    layout = layout_of(folder)
    about = {"folder": folder.name, "layout": layout, "truth": TRUTH[layout], "pairs": len(found)}
    result: dict[str, object] = {**evidence, **about, "rows": rows}
    title = f"{len(found)} pairs of {folder.name}, truth from {TRUTH[layout]}"
    publish(result, as_json, out, lambda: methods_table(title, rows))


def quiet_threads() -> None:
    """One thread for torch, NumPy and OpenCV, and none of OpenCV's messages.

    Small images are quickest so; further threads of NumPy's would mostly spin.
    """
    from evergraph.extras import require

    use_threads(1)
    require("threadpoolctl", "matching").threadpool_limits(1)
    cv2 = require("cv2", "matching")
    cv2.setNumThreads(1)
    cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)
