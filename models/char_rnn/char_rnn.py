"""A character-level language model: two LSTMs that guess the next character (after Karpathy, 2015)."""

from common import layers as B
from common import recipe

from caffe import NetSpec
from caffe import layers as L

CHARACTERS = 128  # ASCII
STEPS = 50
# The first axis is time, the second the streams, which are read side by side.
UNIFORM = dict(type="uniform", min=-0.08, max=0.08)


def body(n, data, cont):
    n["embed"] = L.Embed(data, input_dim=CHARACTERS, num_output=64, bias_term=False, weight_filler=UNIFORM)
    top = n["embed"]
    for name in ("lstm1", "lstm2"):
        n[name] = L.LSTM(
            top, cont, recurrent_param=dict(num_output=256, weight_filler=UNIFORM, bias_filler=B.constant(0))
        )
        top = n[name]
    return B.inner_product(n, "predict", top, CHARACTERS, axis=2, weight_filler=UNIFORM)


def rows(part):
    return dict(hdf5_data_param=dict(source=f"examples/char_rnn/{part}.txt", batch_size=STEPS))


def train_val():
    n = NetSpec()
    # Top names are names of datasets; cont is 0 where a stream begins, else 1.
    n.data, n.cont, n.target = L.HDF5Data(ntop=3, include=recipe.TRAIN, **rows("train"))
    scores = body(n, n.data, n.cont)
    n.accuracy = L.Accuracy(scores, n.target, include=recipe.TEST, axis=2)
    n.loss = L.SoftmaxWithLoss(scores, n.target, softmax_param=dict(axis=2))
    return recipe.with_test_data("char_rnn", n, rows("test"))


def deploy():
    """One character of one stream at a time; the LSTMs keep their states between passes."""
    n = NetSpec()
    one = dict(shape=dict(dim=[1, 1]))
    n.data = L.Input(input_param=one)
    n.cont = L.Input(input_param=one)
    n.prob = L.Softmax(body(n, n.data, n.cont), axis=2)
    return recipe.for_use("char_rnn", n.to_proto())


def files():
    return {
        "train_val.prototxt": train_val(),
        "deploy.prototxt": deploy(),
        "solver.prototxt": recipe.solver(
            "char_rnn",
            type="Adam",
            test_iter=10,
            test_interval=200,
            base_lr=0.002,
            momentum=0.9,
            momentum2=0.999,
            lr_policy="step",
            gamma=0.3,
            stepsize=500,
            clip_gradients=5,
            display=50,
            max_iter=1000,
            snapshot=1000,
        ),
    }
