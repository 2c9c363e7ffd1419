"""The built-in layers, one file per type.

A file is imported when the first net names its type: importing sixty of them would cost more than all
else that `import caffe` does. A new type is one line here.
"""

from __future__ import annotations

from ..layer_registry import announce

BUILT_IN = {
    "AbsVal": "absval",
    "Accuracy": "accuracy",
    "ArgMax": "argmax",
    "BatchNorm": "batch_norm",
    "BatchReindex": "batch_reindex",
    "Bias": "bias",
    "BNLL": "bnll",
    "Clip": "clip",
    "Concat": "concat",
    "ContrastiveLoss": "contrastive_loss",
    "Convolution": "convolution",
    "Crop": "crop",
    "Data": "data",
    "Deconvolution": "deconvolution",
    "Dropout": "dropout",
    "DummyData": "dummy_data",
    "Eltwise": "eltwise",
    "ELU": "elu",
    "Embed": "embed",
    "EuclideanLoss": "euclidean_loss",
    "Exp": "exp",
    "Filter": "filter",
    "Flatten": "flatten",
    "HDF5Data": "hdf5_data",
    "HDF5Output": "hdf5_output",
    "HingeLoss": "hinge_loss",
    "Im2col": "im2col",
    "ImageData": "image_data",
    "InfogainLoss": "infogain_loss",
    "InnerProduct": "inner_product",
    "Input": "input",
    "Log": "log",
    "LRN": "lrn",
    "LSTM": "lstm",
    "LSTMUnit": "lstm_unit",
    "MemoryData": "memory_data",
    "MultinomialLogisticLoss": "multinomial_logistic_loss",
    "MVN": "mvn",
    "Parameter": "parameter",
    "Pooling": "pooling",
    "Power": "power",
    "PReLU": "prelu",
    "Python": "python",
    "Reduction": "reduction",
    "ReLU": "relu",
    "Reshape": "reshape",
    "RNN": "rnn",
    "Scale": "scale",
    "Sigmoid": "sigmoid",
    "SigmoidCrossEntropyLoss": "sigmoid_cross_entropy_loss",
    "Silence": "silence",
    "Slice": "slice",
    "Softmax": "softmax",
    "SoftmaxWithLoss": "softmax_loss",
    "Split": "split",
    "SPP": "spp",
    "Swish": "swish",
    "TanH": "tanh",
    "Threshold": "threshold",
    "Tile": "tile",
    "WindowData": "window_data",
}

for _type, _module in BUILT_IN.items():
    announce(_type, f"{__name__}.{_module}")
