"""Bézier curves over the layers of a model: a few control points stand for one factor per layer.

A curve of degree n has control points P_0 … P_n = (layer, factor), with the layer axis scaled to [0, 1]:

    B(t) = Σ_i  C(n, i) · (1 − t)^(n−i) · t^i · P_i,      t in [0, 1]

Layer ℓ of L gets the factor B_y(t) at the t where B_x(t) = ℓ / (L − 1). With layers of the control points that do
not decrease, B_x is monotone and that t exists. Cubic (four points) is the choice of arXiv 2503.04355; where the paper
is silent (where the points start, their range), the choices here are this project's own.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.special import comb

BISECTIONS = 60  # halvings of [0, 1]: below the spacing of float64 at 1


def evaluate(points: NDArray[np.float64], t: NDArray[np.float64]) -> NDArray[np.float64]:
    """Points of the curve, shape (len(t), 2), for control points of shape (n + 1, 2) and parameters t in [0, 1]."""
    degree = len(points) - 1
    i = np.arange(degree + 1)
    weights = comb(degree, i) * (1 - t[:, None]) ** (degree - i) * t[:, None] ** i
    return weights @ points


def even_points(factors: tuple[float, ...]) -> NDArray[np.float64]:
    """Control points with the given factors at layers spaced evenly over [0, 1]; then B_x(t) = t."""
    return np.column_stack([np.linspace(0.0, 1.0, len(factors)), np.asarray(factors, dtype=np.float64)])


def factors_per_layer(points: NDArray[np.float64], num_layers: int) -> NDArray[np.float64]:
    """One factor per layer, shape (num_layers,).

    Raises:
        ValueError: fewer than two control points, layers that decrease, or a curve that does not span [0, 1].
    """
    layers = points[:, 0]
    if len(points) < 2 or np.any(np.diff(layers) < 0) or layers[0] != 0.0 or layers[-1] != 1.0:
        raise ValueError(f"control points need layers from 0 to 1 that do not decrease, got {layers.tolist()}")
    wanted = np.linspace(0.0, 1.0, num_layers)
    low, high = np.zeros(num_layers), np.ones(num_layers)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        left = evaluate(points, middle)[:, 0] < wanted
        low, high = np.where(left, middle, low), np.where(left, high, middle)
    t = (low + high) / 2
    t[0], t[-1] = 0.0, (1.0 if num_layers > 1 else 0.0)
    return evaluate(points, t)[:, 1]
