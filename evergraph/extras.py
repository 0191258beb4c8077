"""Optional dependencies: import them, or say which extra installs them."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

PURPOSES = {
    "matching": "image matching",
    "adalam": "the AdaLAM baseline",
    "action": "the ExtraTrees baseline",
    "serve": "the service",
    "redis": "a stream of Redis",
    "ray": "a cluster",
    "tensorboard": "a curve in TensorBoard",
    "mlflow": "a curve in MLflow",
}
PACKAGES = {"cv2": "OpenCV", "skimage": "scikit-image", "sklearn": "scikit-learn", "ray": "Ray"}


class MissingExtraError(ImportError, ValueError):
    """An optional dependency is not installed; the message says how to install it."""


def require(module: str, extra: str) -> ModuleType:
    """Import an optional module.

    Args:
        module: full name of the module, for example `cv2` or `kornia.feature.adalam`.
        extra: extra of this package that installs it, a key of `PURPOSES`.

    Raises:
        MissingExtraError: if the package of the module is not installed.

    Example:
        >>> require("math", "matching").sqrt(4)
        2.0
    """
    root = module.partition(".")[0]
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != root:
            raise  # the package is there, and one of its own dependencies is not
        raise MissingExtraError(
            f"{PURPOSES[extra]} needs {PACKAGES.get(root, root)}; install it with "
            f"pip install 'evergraph[{extra}]'",
            name=root,
        ) from error
