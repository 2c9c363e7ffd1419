"""A database of few images: as many of each class, drawn at random from another database.

python few_images.py FROM_LMDB TO_LMDB IMAGES_PER_CLASS [SEED]
"""

from __future__ import annotations

import sys

import numpy as np

from caffe.db import open_db
from caffe.proto.caffe_pb2 import Datum


def few_images(source: str, target: str, per_class: int, seed: int = 0) -> int:
    """Write the new LMDB `target`; returns how many images it has. Their order is random, too."""
    with open_db(source, "lmdb") as db:
        cursor, records = db.cursor(), []
        while cursor.valid():
            records.append(cursor.value())
            cursor.next()
    labels = np.array([Datum.FromString(record).label for record in records])
    rng = np.random.default_rng(seed)
    chosen = [rng.choice(np.flatnonzero(labels == c), per_class, replace=False) for c in np.unique(labels)]
    order = rng.permutation(np.concatenate(chosen))
    with open_db(target, "lmdb", "new") as db:
        transaction = db.transaction()
        for i, record in enumerate(order):
            transaction.put(b"%08d" % i, records[record])
        transaction.commit()
    return len(order)


if __name__ == "__main__":
    if len(sys.argv) not in (4, 5):
        sys.exit(__doc__)
    print(few_images(*sys.argv[1:3], *map(int, sys.argv[3:])), "images written to", sys.argv[2])
