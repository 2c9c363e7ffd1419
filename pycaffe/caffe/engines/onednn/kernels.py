"""Importing this module adds the engine's rows to the table of kernels."""

from . import concat as concat
from . import convolution as convolution
from . import deconvolution as deconvolution
from . import eltwise as eltwise
from . import inner_product as inner_product
from . import lrn as lrn
from . import neuron as neuron
from . import normalization as normalization
from . import pooling as pooling
from . import prelu as prelu
from . import recurrent as recurrent
from . import reduction as reduction
from . import sharing as sharing
from . import softmax as softmax
from . import softmax_loss as softmax_loss
from . import update as update
