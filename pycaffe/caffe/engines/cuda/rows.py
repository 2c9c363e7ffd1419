"""Importing this module adds all rows of the engine to the table of kernels."""

from . import affine as affine
from . import convolution as convolution
from . import data as data
from . import dropout as dropout
from . import eltwise as eltwise
from . import inner_product as inner_product
from . import items as items
from . import losses as losses
from . import lstm_unit as lstm_unit
from . import neurons as neurons
from . import normalisation as normalisation
from . import pooling as pooling
from . import recurrent as recurrent
from . import shapes as shapes
from . import softmax as softmax
from . import solvers as solvers
