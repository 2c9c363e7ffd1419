"""LeNet's shape on the digits that ship with the package: built, trained, tested and saved from Python.

    python examples/from_python/lenet.py

Writes lenet.prototxt, lenet.caffemodel and solver.prototxt into the working directory; afterwards
`caffe train -solver solver.prototxt` gives the same numbers, bit for bit.
"""

from __future__ import annotations

from caffe import model as M


def build() -> M.Model:
    with M.Model("lenet", seed=1) as m:
        x, y = m.data(
            "dataset://digits/train",
            batch_size=60,
            test="dataset://digits/test",
            test_batch_size=99,
            scale=1 / 255,
        )
        h = m.max_pool(m.conv(x, 20, kernel_size=3, pad=1), 2)
        h = m.max_pool(m.conv(h, 50, kernel_size=3, pad=1), 2)
        h = m.relu(m.fc(h, 500))
        score = m.fc(h, 10, name="score")
        loss = m.softmax_loss(score, y)
        m.accuracy(score, y)
    m.minimize(
        loss,
        "SGD",
        base_lr=0.01,
        momentum=0.9,
        weight_decay=0.0005,
        lr_policy="inv",
        gamma=1e-4,
        power=0.75,
    )
    return m


def main() -> M.Model:
    m = build()
    history = m.fit(iterations=300, test_every=100)
    for iteration, outputs in history.tests:
        print(f"iteration {iteration}: accuracy {outputs['accuracy']:.4f}, loss {outputs['loss']:.4f}")
    m.save("lenet.prototxt", "lenet.caffemodel", "solver.prototxt")
    return m


if __name__ == "__main__":
    main()
