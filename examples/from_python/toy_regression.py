"""The toy regression: y = 2.0 x0 + 1.5 x1 + 0.5 with noise; the net finds the three numbers.

    python examples/from_python/toy_regression.py

toy_regression.prototxt and toy_regression_solver.prototxt, beside this file, say the same in prototxt.
"""

from __future__ import annotations

import numpy as np

from caffe import model as M

WEIGHTS, BIAS = np.array([2.0, 1.5], np.float32), 0.5


def batches():
    """Batches of 64, for ever; the same in every run."""
    draw = np.random.default_rng(1)
    while True:
        x = draw.standard_normal((64, 2)).astype(np.float32)
        y = x @ WEIGHTS + BIAS + 0.1 * draw.standard_normal(64).astype(np.float32)
        yield x, y[:, None]


def main() -> M.Model:
    with M.Model("toy_regression", seed=1) as m:
        x, y = m.data(batches, tops=("x", "y"))
        prediction = m.fc(x, 1, weight_filler={"type": "gaussian", "std": 0.1}, name="prediction")
        loss = m.euclidean_loss(prediction, y)
    m.minimize(loss, "SGD", base_lr=0.1, lr_policy="step", stepsize=20, gamma=0.9)
    history = m.fit(100)

    weight, bias = (m.parameters[f"prediction/{name}"].data for name in ("weight", "bias"))
    print(f"loss {history.losses[0]:.3f} -> {history.losses[-1]:.4f}")
    print(f"weights {weight.ravel().round(3)}, wanted {WEIGHTS}; bias {bias.round(3)}, wanted {BIAS}")
    assert np.abs(weight - WEIGHTS).max() < 0.05 and abs(bias[0] - BIAS) < 0.05
    print("the net at x = (1, 1):", m.run(prediction, {x: [[1.0, 1.0]]}))
    return m


if __name__ == "__main__":
    main()
