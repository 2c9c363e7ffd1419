"""An autoencoder of MNIST: 784 pixels in 30 numbers (after Hinton and Salakhutdinov, 2006)."""

from common import layers as B
from common import recipe

from caffe import NetSpec
from caffe import layers as L

WIDTHS = dict(encode1=1000, encode2=500, encode3=250, encode4=30, decode4=250, decode3=500, decode2=1000)
SPARSE = dict(type="gaussian", std=1, sparse=15)
PARAM = [dict(lr_mult=1, decay_mult=1), dict(lr_mult=1, decay_mult=0)]


def body(n, data):
    n["flatdata"] = L.Flatten(data)
    top = n["flatdata"]
    for name, width in WIDTHS.items():
        top = B.inner_product(n, name, top, width, param=PARAM, weight_filler=SPARSE)
        if name != "encode4":  # the code itself is linear
            n[f"{name}neuron"] = L.Sigmoid(top)
            top = n[f"{name}neuron"]
    return B.inner_product(n, "decode1", top, 784, param=PARAM, weight_filler=SPARSE)


def train_val():
    pixels = dict(scale=0.0039215684)  # to [0, 1]
    train = "examples/mnist/mnist_train_lmdb"
    n = NetSpec()
    n.data = L.Data(include=recipe.TRAIN, **recipe.lmdb(train, 100, **pixels))
    logits = body(n, n.data)
    n["cross_entropy_loss"] = L.SigmoidCrossEntropyLoss(logits, n["flatdata"], name="loss", loss_weight=1)
    n["decode1neuron"] = L.Sigmoid(logits)
    n["l2_error"] = L.EuclideanLoss(n["decode1neuron"], n["flatdata"], name="l2_loss", loss_weight=0)
    on_train = dict(include=dict(**recipe.TEST, stage="test-on-train"), **recipe.lmdb(train, 100, **pixels))
    net = recipe.with_test_data("MNISTAutoencoder", n, on_train)
    on_test = net.layer.add()
    on_test.CopyFrom(net.layer[1])
    on_test.include[0].stage[:] = ["test-on-test"]
    on_test.data_param.source = "examples/mnist/mnist_test_lmdb"
    net.layer.insert(2, net.layer.pop())
    return net


def files():
    return {
        "train_val.prototxt": train_val(),
        "deploy.prototxt": recipe.deploy(
            "MNISTAutoencoder", body, [1, 1, 28, 28], output="decode1neuron", output_type="Sigmoid"
        ),
        "solver.prototxt": recipe.solver(
            "mnist_autoencoder",
            test_state=[dict(stage="test-on-train"), dict(stage="test-on-test")],
            test_iter=[500, 100],
            test_interval=500,
            test_compute_loss=True,
            base_lr=0.01,
            lr_policy="step",
            gamma=0.1,
            stepsize=10000,
            display=100,
            max_iter=65000,
            momentum=0.9,
            weight_decay=0.0005,
            snapshot=10000,
        ),
    }
