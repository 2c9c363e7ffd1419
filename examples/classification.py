"""Classification: a trained net, an image file, and the likeliest answers.

    python examples/classification.py

Trains the digits model for a minute's fraction, then does what every script that uses a net does: load it,
make images ready for it with a Transformer, run it, read its output and what stands inside it.
"""

from __future__ import annotations

import cv2
import numpy as np

import caffe
from caffe.resources import data_path

MODEL = data_path("models", "digits")


def trained_weights(iterations: int) -> str:
    solver = caffe.get_solver(str(MODEL / "solver.prototxt"))
    solver.step(iterations)
    solver.net.save("digits.caffemodel")
    return "digits.caffemodel"


def write_test_images(count: int) -> list[tuple[str, int]]:
    """Some of the digits that are not trained on as image files, and what they show."""
    with np.load(MODEL / "digits.npz") as data:
        pixels, labels = data["pixels"][1500:], data["labels"][1500:]
    files = []
    for k in range(count):
        # 16 shades as 256, and larger, as a photograph would be.
        image = cv2.resize(pixels[k] * 15, (64, 64), interpolation=cv2.INTER_CUBIC)
        cv2.imwrite(f"digit_{k}.png", image)
        files.append((f"digit_{k}.png", int(labels[k])))
    return files


def main(iterations: int = 300) -> float:
    """Returns the share of images that are recognised."""
    weights = trained_weights(iterations)
    files = write_test_images(20)

    net = caffe.Net(str(MODEL / "deploy.prototxt"), weights, caffe.TEST)
    net.blobs["data"].reshape(len(files), 1, 8, 8)

    transformer = caffe.io.Transformer({"data": net.blobs["data"].data.shape})
    transformer.set_transpose("data", (2, 0, 1))  # (H, W, C) to (C, H, W)
    # Images have values in [0, 1], and so had the digits in training.

    for k, (path, _) in enumerate(files):
        image = caffe.io.load_image(path, color=False)
        net.blobs["data"].data[k] = transformer.preprocess("data", image)
    prob = net.forward()["prob"]

    for k, (path, label) in enumerate(files[:3]):
        best = prob[k].argsort()[::-1][:3]
        answers = ", ".join(f"{digit} ({prob[k, digit]:.2f})" for digit in best)
        print(f"{path}, which is a {label}: {answers}")

    print("\nblobs:", {name: blob.data.shape for name, blob in net.blobs.items()})
    print("parameters:", {name: [p.data.shape for p in blobs] for name, blobs in net.params.items()})
    print("most active in conv2:", net.blobs["conv2"].data[0].max(axis=(1, 2)).argmax())

    right = float((prob.argmax(axis=1) == [label for _, label in files]).mean())

    # In one call: resizing, ten crops (which tiny digits do not like), averaging.
    classifier = caffe.Classifier(str(MODEL / "deploy.prototxt"), weights, image_dims=(9, 9))
    images = [caffe.io.load_image(path, color=False) for path, _ in files]
    averaged = float((classifier.predict(images).argmax(axis=1) == [label for _, label in files]).mean())
    print(f"recognised: {right:.0%}; with ten crops each: {averaged:.0%}")
    return right


if __name__ == "__main__":
    main()
