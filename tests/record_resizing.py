"""Writes tests/resizing_of_skimage_0_13.npz, what scikit-image and SciPy gave in the original's day.

Run with Python 3.6, scikit-image 0.13.1, SciPy 1.1.0, NumPy 1.14.6 and Pillow 5.4.1 (docs/decisions/
0020-resizing.md):  python3.6 tests/record_resizing.py
"""

import os

import numpy as np
import scipy
import skimage
import skimage.io
import skimage.transform
from scipy import ndimage

HERE = os.path.dirname(os.path.abspath(__file__))
# Sizes from and to: growing, shrinking, both, single rows and pixels.
RGB = [
    ((7, 9, 3), (5, 4)),
    ((5, 4, 3), (11, 13)),
    ((6, 6, 1), (6, 9)),
    ((8, 5, 3), (3, 10)),
    ((1, 4, 3), (3, 7)),
    ((4, 4, 3), (1, 1)),
    ((13, 17, 1), (29, 5)),
    ((3, 2, 3), (2, 3)),
]
OTHER = [((7, 9, 2), (5, 4)), ((5, 4, 5), (11, 13)), ((6, 6, 4), (6, 9)), ((8, 5, 21), (3, 10))]
IMAGES = ["color.bmp", "gray.jpg", "gray.png", "gray16.png", "palette.png", "prog.jpg", "rgba.png"]


def main():
    versions = [np, scipy, skimage]
    record = {"versions": ", ".join("%s %s" % (m.__name__, m.__version__) for m in versions)}  # noqa: UP031
    draw = np.random.RandomState(3)
    for kind, cases in (("rgb", RGB), ("other", OTHER)):
        for number, (shape, size) in enumerate(cases):
            image = (draw.uniform(size=shape) * 200 - 50).astype(np.float32)
            record["%s_%d_image" % (kind, number)] = image  # noqa: UP031
            for order in range(6):
                # Images had to be in [0, 1] for scikit-image; mode="constant" was its default.
                least, most = image.min().astype(float), image.max().astype(float)
                if kind == "rgb":
                    unit = (image - least) / (most - least)
                    result = skimage.transform.resize(unit, size, order=order, mode="constant")
                    result = result * (most - least) + least
                else:
                    scale = [new / float(old) for new, old in zip(size, shape)] + [1]  # noqa: B905
                    result = ndimage.zoom(image, scale, order=order)
                record["%s_%d_order_%d" % (kind, number, order)] = result.astype(np.float32)  # noqa: UP031
    for name in IMAGES:
        path = os.path.join(HERE, "golden", "data", "images", "odd", name)
        for kind in ("color", "grey"):
            pixels = skimage.io.imread(path, as_grey=kind == "grey")
            record["%s_%s" % (kind, name)] = skimage.img_as_float(pixels).astype(np.float32)  # noqa: UP031
    np.savez_compressed(os.path.join(HERE, "resizing_of_skimage_0_13.npz"), **record)


main()
