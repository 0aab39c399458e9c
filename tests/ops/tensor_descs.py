"""Reads tensor_tables.txt, and makes valid descriptions of the operators there, for any ranks and types.

The makers give sizes and attributes by field name, small and with as few equal sizes as can be. What an attribute
says fits the sizes. Tuples are sizes, and lists of tuples the sizes of several tensors: `made` adds the types, and
the counts of lists.
"""

import re
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path

from tests.ops.operator_tables import DATA_TYPES, LEVELS, TYPE_SETS, reaches

FOUR_BITS = ["UINT4", "INT4"]  # of QUANTIZE and DEQUANTIZE alone

# ---- the tables --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tensor:
    name: str
    letters: tuple[str, ...]
    rank: str
    array: bool
    optional: bool

    def letter(self, k=0):
        return self.letters[min(k, len(self.letters) - 1)]


@dataclass(frozen=True)
class Table:
    ranks: dict[str, range]
    types: dict[str, list[str]]
    open: frozenset[str]
    """The letters behind which there may be other types."""


@dataclass(frozen=True)
class Facts:
    name: str
    functions: tuple[str, ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    attributes: dict[str, str]
    in_place: tuple[str, ...]
    tables: dict[str, Table]

    def __repr__(self):
        return "-".join([self.name, *self.functions[:1]])

    @property
    def tensors(self):
        return self.inputs + self.outputs

    @property
    def introduced(self):
        return next(iter(self.tables))

    @property
    def levels(self):
        """The levels that have it."""
        return LEVELS[LEVELS.index(self.introduced) :]

    @property
    def edges(self):
        """The levels at which a table begins, and the newest."""
        return list(dict.fromkeys([*self.tables, LEVELS[-1]]))

    @property
    def ends(self):
        """The oldest level that has it, and the newest."""
        return list(dict.fromkeys([self.introduced, LEVELS[-1]]))

    @property
    def spans(self):
        """The levels at which a table begins, and those at which it ends: what is allowed never becomes less."""
        last = [LEVELS[LEVELS.index(level) - 1] for level in [*self.tables][1:]]
        return sorted({*self.tables, *last, LEVELS[-1]}, key=LEVELS.index)

    @cached_property
    def letters(self):
        return list(dict.fromkeys(letter for t in self.tensors for letter in t.letters))

    def table(self, level):
        reached = [name for name in self.tables if reaches(level, name)]
        return self.tables[reached[-1]] if reached else None

    def types(self, level):
        """The first types of all letters."""
        return {letter: types[0] for letter, types in self.table(level).types.items()}

    def ranks(self, level):
        """Four, or what is nearest to it."""
        ranges = self.table(level).ranks
        return {name: min(max(4, ranks[0]), ranks[-1]) for name, ranks in ranges.items()}

    def tried(self, level, letter):
        """Types of which it is known whether the letter may stand for them."""
        table = self.table(level)
        if letter not in table.open:
            return DATA_TYPES
        return [*table.types[letter], *FOUR_BITS, "UNKNOWN"]

    def outside(self, level, letter):
        """A type that the letter cannot have."""
        allowed = self.table(level).types[letter]
        return next(t for t in reversed(self.tried(level, letter)) if t not in (*allowed, "UNKNOWN"))


def read_tensor(text):
    name, letters, *marks = text.split()
    rank = marks[marks.index("rank") + 1] if "rank" in marks else ""
    return Tensor(name, tuple(letters.split("/")), rank, "array" in marks, "optional" in marks)


def read_table(ranks, types):
    ranges = {}
    for part in ranks.removeprefix("rank ").split(", "):
        *names, said = part.split()
        low, _, high = said.partition("..")
        ranges |= dict.fromkeys(names or [""], range(int(low), int(high or low) + 1))
    rows = {letter: said.split() for letter, said in (row.split(" ", 1) for row in types.split(", "))}
    behind = {letter: [t for n in row for t in TYPE_SETS.get(n, [n])] for letter, row in rows.items()}
    unknown = frozenset(letter for letter, row in behind.items() if "?" in row)
    return Table(ranges, {letter: [t for t in row if t != "?"] for letter, row in behind.items()}, unknown)


def read_facts(paragraph):
    heading, tensors, *lines = [line.strip() for line in paragraph.splitlines()]
    name, _, functions = heading.partition(" of ")
    attributes, in_place, tables = {}, None, {}
    for line in lines:
        if line.startswith("attributes: "):
            attributes = dict(a.split(" ", 1) for a in line.removeprefix("attributes: ").split(", "))
        elif line.startswith("in place: "):
            names = line.removeprefix("in place: ")
            in_place = () if names == "none" else tuple(names.split(", "))
        else:
            level, ranks, types = re.split(" {2,}", line)
            tables[level] = read_table(ranks, types)
    sides = [side.split(", ") for side in re.split("(?:^| )-> ", tensors)]
    inputs, outputs = (tuple(read_tensor(text) for text in side if text) for side in sides)
    return Facts(
        name, tuple(functions.split(", ")) if functions else (), inputs, outputs, attributes, in_place, tables
    )


_, *PARAGRAPHS = Path(__file__).with_name("tensor_tables.txt").read_text().rstrip().split("\n\n")
TABLES = [read_facts(paragraph) for paragraph in PARAGRAPHS]
"""One for each operator, and for REDUCE one for each table that it has."""
TENSOR_FACTS = {}
"""The first table of each operator."""
for _facts in TABLES:
    TENSOR_FACTS.setdefault(_facts.name, _facts)


# ---- makers ------------------------------------------------------------------------------------------


class Impossible(Exception):
    """There is no such operator of so few dimensions, whatever its sizes."""


class Draft:
    """Of what a description is to be."""

    def __init__(self, ranks, types):
        self.ranks, self.types, self.rank = ranks, types, ranks[""]

    @property
    def sizes(self):
        """Different sizes at the end, ones before."""
        return self.pad((2, 3, 4, 5)[-self.rank :])

    @property
    def spatial(self):
        """How many dimensions are behind the first two."""
        if self.rank < 3:
            raise Impossible
        return self.rank - 2

    @property
    def lead(self):
        """Some dimensions before a matrix."""
        if self.rank < 2:
            raise Impossible
        return (1, 1, 1, 1, 1, 1, 1, 2)[10 - self.rank :]

    @property
    def channels(self):
        """The size of the second dimension alone."""
        return (1, self.sizes[1], *(1,) * (self.rank - 2)) if self.rank > 1 else self.sizes

    def pad(self, sizes, rank=""):
        """These sizes behind ones."""
        wanted = self.ranks[rank]
        if wanted < max(len(sizes), 1):
            raise Impossible
        return (1,) * (wanted - len(sizes)) + tuple(sizes)

    def last(self, size):
        """The sizes with another one at the end."""
        return (*self.sizes[:-1], size)

    def each(self, value, last=None):
        """A list with an entry for each dimension."""
        return [value] * (self.rank - 1) + [value if last is None else last]


MAKERS = {}


def makes(*names):
    def register(maker):
        MAKERS.update(dict.fromkeys(names, maker))
        return maker

    return register


@makes("CONVOLUTION")
def convolution(m):
    n = m.spatial
    return {
        "InputTensor": (1, 2) + (4,) * n,
        "FilterTensor": (3, 2) + (3,) * n,
        "BiasTensor": (1, 3) + (1,) * n,
        "OutputTensor": (1, 3) + (2,) * n,
        "Mode": "CROSS_CORRELATION",
        "Direction": "FORWARD",
        "Strides": [1] * n,
        "Dilations": [1] * n,
        "StartPadding": [0] * n,
        "EndPadding": [0] * n,
        "OutputPadding": [0] * n,
        "GroupCount": 1,
    }


def without_fields(fields, *names):
    return {name: value for name, value in fields.items() if name not in names}


@makes("CONVOLUTION_INTEGER")
def convolution_integer(m):
    ones = {"InputZeroPointTensor": m.pad((), "z"), "FilterZeroPointTensor": m.pad((), "z")}
    return without_fields(convolution(m), "BiasTensor", "Mode", "Direction", "OutputPadding") | ones


@makes("QUANTIZED_LINEAR_CONVOLUTION")
def quantized_convolution(m):
    ones = {
        "InputScaleTensor": m.pad((), "a"),
        "InputZeroPointTensor": m.pad((), "b"),
        "FilterScaleTensor": m.pad((), "c"),
        "FilterZeroPointTensor": m.pad((), "d"),
        "OutputScaleTensor": m.pad((), "e"),
        "OutputZeroPointTensor": m.pad((), "f"),
    }
    return without_fields(convolution(m), "Mode", "Direction", "OutputPadding") | ones


@makes("GEMM")
def gemm(m):
    return {
        "ATensor": (*m.lead, 2, 3),
        "BTensor": (*m.lead, 3, 4),
        "CTensor": (*m.lead, 2, 4),
        "OutputTensor": (*m.lead, 2, 4),
        "TransA": "NONE",
        "TransB": "NONE",
        "Alpha": 1.0,
        "Beta": 1.0,
    }


def product_of_matrices(m):
    return {"ATensor": (*m.lead, 2, 3), "BTensor": (*m.lead, 3, 4), "OutputTensor": (*m.lead, 2, 4)}


@makes("MATRIX_MULTIPLY_INTEGER")
def matrix_multiply_integer(m):
    ones = {"AZeroPointTensor": m.pad((), "a"), "BZeroPointTensor": m.pad((), "b")}
    return product_of_matrices(m) | ones


SCALES = ["AScaleTensor", "AZeroPointTensor", "BScaleTensor", "BZeroPointTensor"]


@makes("QUANTIZED_LINEAR_MATRIX_MULTIPLY")
def quantized_matrix_multiply(m):
    names = [*SCALES, "OutputScaleTensor", "OutputZeroPointTensor"]
    return product_of_matrices(m) | dict.fromkeys(names, m.pad((), "s"))


@makes("MATRIX_MULTIPLY_INTEGER_TO_FLOAT")
def matrix_multiply_integer_to_float(m):
    fields = product_of_matrices(m)
    return fields | dict.fromkeys(SCALES, m.pad((), "s")) | {"BiasTensor": fields["OutputTensor"]}


@makes("REDUCE")
def reduce(m):
    # the function is that of the table
    return {"InputTensor": m.sizes, "OutputTensor": m.last(1), "Axes": [m.rank - 1]}


@makes("ARGMIN", "ARGMAX")
def argmin(m):
    return reduce(m) | {"AxisDirection": "INCREASING"}


def windows(m):
    n = m.spatial
    return {"Strides": [2] * n, "WindowSize": [2] * n, "StartPadding": [0] * n, "EndPadding": [0] * n}


@makes("MAX_POOLING")
def max_pooling(m):
    n = m.spatial
    return {"InputTensor": (1, 2) + (4,) * n, "OutputTensor": (1, 2) + (2,) * n} | windows(m)


@makes("AVERAGE_POOLING")
def average_pooling(m):
    return max_pooling(m) | {"IncludePadding": False}


@makes("AVERAGE_POOLING1")
def average_pooling1(m):
    return average_pooling(m) | {"Dilations": [1] * m.spatial}


@makes("LP_POOLING")
def lp_pooling(m):
    return max_pooling(m) | {"P": 2}


@makes("LP_POOLING1")
def lp_pooling1(m):
    return lp_pooling(m) | {"Dilations": [1] * m.spatial}


@makes("MAX_POOLING1")
def max_pooling1(m):
    fields = max_pooling(m)
    return fields | {"OutputIndicesTensor": fields["OutputTensor"]}


@makes("MAX_POOLING2")
def max_pooling2(m):
    return max_pooling1(m) | {"Dilations": [1] * m.spatial}


@makes("QUANTIZED_LINEAR_AVERAGE_POOLING")
def quantized_average_pooling(m):
    ones = {
        "InputScaleTensor": m.pad((), "a"),
        "InputZeroPointTensor": m.pad((), "b"),
        "OutputScaleTensor": m.pad((), "c"),
        "OutputZeroPointTensor": m.pad((), "d"),
    }
    return average_pooling1(m) | ones


@makes("AVERAGE_POOLING_GRAD")
def average_pooling_grad(m):
    n = m.spatial
    tensors = {"InputGradientTensor": (1, 2) + (2,) * n, "OutputGradientTensor": (1, 2) + (4,) * n}
    return tensors | windows(m) | {"IncludePadding": False}


@makes("MAX_POOLING_GRAD")
def max_pooling_grad(m):
    fields = without_fields(average_pooling_grad(m), "IncludePadding")
    return fields | {"InputTensor": fields["OutputGradientTensor"], "Dilations": [1] * m.spatial}


@makes("MAX_UNPOOLING")
def max_unpooling(m):
    small = m.pad((1, 2, 2, 2))
    return {"InputTensor": small, "IndicesTensor": small, "OutputTensor": m.pad((1, 2, 4, 4))}


@makes("ROI_POOLING")
def roi_pooling(m):
    return {
        "InputTensor": m.pad((1, 2, 4, 4)),
        "ROITensor": m.pad((1, 1, 3, 5)),
        "OutputTensor": m.pad((3, 2, 5, 6)),
        "SpatialScale": 1.0,
        "PooledSize": {"Width": 6, "Height": 5},
    }


@makes("ROI_ALIGN")
def roi_align(m):
    return {
        "InputTensor": m.pad((1, 2, 4, 4)),
        "ROITensor": m.pad((3, 4), "o"),
        "BatchIndicesTensor": m.pad((3,), "i"),
        "OutputTensor": m.pad((3, 2, 5, 6)),
        "ReductionFunction": "AVERAGE",
        "InterpolationMode": "LINEAR",
        "SpatialScaleX": 1.0,
        "SpatialScaleY": 1.0,
        "OutOfBoundsInputValue": 0.0,
        "MinimumSamplesPerOutput": 1,
        "MaximumSamplesPerOutput": 4,
    }


@makes("ROI_ALIGN1")
def roi_align1(m):
    return roi_align(m) | {"InputPixelOffset": 0.5, "OutputPixelOffset": -0.5, "AlignRegionsToCorners": False}


@makes("ROI_ALIGN_GRAD")
def roi_align_grad(m):
    fields = roi_align1(m)
    tensors = {
        "InputGradientTensor": fields["OutputTensor"],
        "OutputGradientTensor": fields["InputTensor"],
        "OutputROIGradientTensor": fields["ROITensor"],
    }
    return without_fields(fields, "OutputTensor", "OutOfBoundsInputValue") | tensors


@makes("SLICE")
def slice_(m):
    return {
        "InputTensor": m.sizes,
        "OutputTensor": m.last(2),
        "Offsets": m.each(0, 1),
        "Sizes": [*m.last(2)],
        "Strides": m.each(1, 3),
    }


def window_of_slice(m):
    return {
        "InputWindowOffsets": m.each(0, 1),
        "InputWindowSizes": [*m.last(4)],
        "InputWindowStrides": m.each(1, 3),
    }


@makes("SLICE1")
def slice1(m):
    return {"InputTensor": m.sizes, "OutputTensor": m.last(2)} | window_of_slice(m)


@makes("SLICE_GRAD")
def slice_grad(m):
    return {"InputGradientTensor": m.last(2), "OutputGradientTensor": m.sizes} | window_of_slice(m)


@makes("CAST")
def cast(m):
    return {"InputTensor": m.sizes, "OutputTensor": m.sizes}


@makes("SPLIT")
def split(m):
    return {"InputTensor": m.sizes, "OutputTensors": [m.last(2), m.last(3)], "Axis": m.rank - 1}


@makes("JOIN")
def join(m):
    return {"InputTensors": [m.last(2), m.last(3)], "OutputTensor": m.sizes, "Axis": m.rank - 1}


@makes("PADDING")
def padding(m):
    return {
        "InputTensor": m.sizes,
        "OutputTensor": m.last(8),
        "PaddingMode": "CONSTANT",
        "PaddingValue": 1.0,
        "StartPadding": m.each(0, 1),
        "EndPadding": m.each(0, 2),
    }


@makes("PADDING1")
def padding1(m):
    return padding(m) | {"PaddingValueDataType": m.types["T"], "PaddingValue": 1}


@makes("VALUE_SCALE_2D")
def value_scale_2d(m):
    sizes = m.pad((2, 3, 4, 5))
    return {"InputTensor": sizes, "OutputTensor": sizes, "Scale": 2.0, "Bias": [1.0, 2.0, 3.0]}


@makes("UPSAMPLE_2D")
def upsample_2d(m):
    return {
        "InputTensor": (*m.lead, 2, 3),
        "OutputTensor": (*m.lead, 4, 9),
        "ScaleSize": {"Width": 3, "Height": 2},
        "InterpolationMode": "LINEAR",
    }


@makes("GATHER")
def gather(m):
    return {
        "InputTensor": m.sizes,
        "IndicesTensor": m.pad((6,)),
        "OutputTensor": m.last(6),
        "Axis": m.rank - 1,
        "IndexDimensions": 1,
    }


@makes("GATHER_ELEMENTS")
def gather_elements(m):
    return {
        "InputTensor": m.sizes,
        "IndicesTensor": m.last(2),
        "OutputTensor": m.last(2),
        "Axis": m.rank - 1,
    }


@makes("GATHER_ND")
def gather_nd(m):
    """Indices of one dimension choose from the input's first; of one element where that is all there is."""
    one = m.rank == 1
    return {
        "InputTensor": m.sizes,
        "IndicesTensor": m.pad((1,) if one else (6, 1)),
        "OutputTensor": m.pad((1,) if one else (6, *m.sizes[1:])),
        "InputDimensionCount": m.rank,
        "IndicesDimensionCount": 1 if one else 2,
    }


@makes("GATHER_ND1")
def gather_nd1(m):
    return gather_nd(m) | {"BatchDimensionCount": 0}


@makes("SCATTER")
def scatter(m):
    return {
        "InputTensor": m.sizes,
        "IndicesTensor": m.last(2),
        "UpdatesTensor": m.last(2),
        "OutputTensor": m.sizes,
        "Axis": m.rank - 1,
    }


@makes("SCATTER_ND")
def scatter_nd(m):
    fields = gather_nd(m)
    return fields | {"UpdatesTensor": fields["OutputTensor"], "OutputTensor": m.sizes}


@makes("SPACE_TO_DEPTH")
def space_to_depth(m):
    return {"InputTensor": m.pad((1, 2, 4, 6)), "OutputTensor": m.pad((1, 8, 2, 3)), "BlockSize": 2}


@makes("DEPTH_TO_SPACE")
def depth_to_space(m):
    return {"InputTensor": m.pad((1, 8, 2, 3)), "OutputTensor": m.pad((1, 2, 4, 6)), "BlockSize": 2}


@makes("SPACE_TO_DEPTH1")
def space_to_depth1(m):
    return space_to_depth(m) | {"Order": "DEPTH_COLUMN_ROW"}


@makes("DEPTH_TO_SPACE1")
def depth_to_space1(m):
    return depth_to_space(m) | {"Order": "DEPTH_COLUMN_ROW"}


@makes("TILE")
def tile(m):
    return {"InputTensor": m.sizes, "OutputTensor": m.last(15), "Repeats": m.each(1, 3)}


@makes("TOP_K")
def top_k(m):
    return {
        "InputTensor": m.sizes,
        "OutputValueTensor": m.last(2),
        "OutputIndexTensor": m.last(2),
        "Axis": m.rank - 1,
        "K": 2,
    }


@makes("TOP_K1")
def top_k1(m):
    return top_k(m) | {"AxisDirection": "INCREASING"}


@makes("BATCH_NORMALIZATION")
def batch_normalization(m):
    names = ["MeanTensor", "VarianceTensor", "ScaleTensor", "BiasTensor"]
    return cast(m) | dict.fromkeys(names, m.channels) | {"Spatial": True, "Epsilon": 1e-5}


@makes("BATCH_NORMALIZATION_GRAD", "BATCH_NORMALIZATION_TRAINING_GRAD")
def batch_normalization_grad(m):
    names = [
        "MeanTensor",
        "VarianceTensor",
        "ScaleTensor",
        "OutputScaleGradientTensor",
        "OutputBiasGradientTensor",
    ]
    all_of_it = dict.fromkeys(["InputTensor", "InputGradientTensor", "OutputGradientTensor"], m.sizes)
    return all_of_it | dict.fromkeys(names, m.channels) | {"Epsilon": 1e-5}


@makes("BATCH_NORMALIZATION_TRAINING")
def batch_normalization_training(m):
    names = ["ScaleTensor", "BiasTensor", "OutputMeanTensor", "OutputVarianceTensor"]
    all_of_it = dict.fromkeys(["InputTensor", "FusedAddTensor", "OutputTensor"], m.sizes)
    return all_of_it | dict.fromkeys(names, m.channels) | {"Epsilon": 1e-5}


@makes("MEAN_VARIANCE_NORMALIZATION")
def mean_variance_normalization(m):
    names = ["InputTensor", "ScaleTensor", "BiasTensor", "OutputTensor"]
    own = {"CrossChannel": False, "NormalizeVariance": True, "Epsilon": 1e-5}
    return dict.fromkeys(names, m.pad((2, 3, 4, 5))) | own


@makes("MEAN_VARIANCE_NORMALIZATION1")
def mean_variance_normalization1(m):
    names = ["InputTensor", "ScaleTensor", "BiasTensor", "OutputTensor"]
    own = {"Axes": [m.rank - 1], "NormalizeVariance": True, "Epsilon": 1e-5}
    return dict.fromkeys(names, m.sizes) | own


@makes("MEAN_VARIANCE_NORMALIZATION2")
def mean_variance_normalization2(m):
    own = {"UseMean": True, "UseVariance": True}
    return without_fields(mean_variance_normalization1(m), "NormalizeVariance") | own


def local_response(m):
    return {"CrossChannel": True, "LocalSize": 3, "Alpha": 1e-4, "Beta": 0.75, "Bias": 1.0}


@makes("LOCAL_RESPONSE_NORMALIZATION")
def local_response_normalization(m):
    return dict.fromkeys(["InputTensor", "OutputTensor"], m.pad((2, 3, 4, 5))) | local_response(m)


@makes("LOCAL_RESPONSE_NORMALIZATION_GRAD")
def local_response_normalization_grad(m):
    names = ["InputTensor", "InputGradientTensor", "OutputGradientTensor"]
    return dict.fromkeys(names, m.pad((2, 3, 4, 5))) | local_response(m)


@makes("LP_NORMALIZATION")
def lp_normalization(m):
    return cast(m) | {"Axis": m.rank - 1, "Epsilon": 1e-5, "P": 2}


RELU = {"Type": "ACTIVATION_RELU", "Desc": {}}


def recurrent(m, gates, activations, directions=1):
    """A sequence of 2 with 3 in a batch, from 4 values to 5."""
    return {
        "InputTensor": m.pad((1, 2, 3, 4)),
        "WeightTensor": m.pad((1, directions, gates * 5, 4)),
        "RecurrenceTensor": m.pad((1, directions, gates * 5, 5)),
        "BiasTensor": m.pad((1, 1, directions, 2 * gates * 5)),
        "HiddenInitTensor": m.pad((1, directions, 3, 5)),
        "SequenceLengthsTensor": m.pad((1, 1, 1, 3)),
        "OutputSequenceTensor": m.pad((2, directions, 3, 5)),
        "OutputSingleTensor": m.pad((1, directions, 3, 5)),
        "ActivationDescs": [RELU] * (activations * directions),
        "Direction": "FORWARD" if directions == 1 else "BIDIRECTIONAL",
    }


@makes("RNN")
def rnn(m, directions=1):
    return recurrent(m, 1, 1, directions)


@makes("GRU")
def gru(m, directions=1):
    return recurrent(m, 3, 2, directions) | {"LinearBeforeReset": False}


@makes("LSTM")
def lstm(m, directions=1):
    own = {
        "CellMemInitTensor": m.pad((1, directions, 3, 5)),
        "PeepholeTensor": m.pad((1, 1, directions, 15)),
        "OutputCellSingleTensor": m.pad((1, directions, 3, 5)),
        "ClipThreshold": 1.0,
        "UseClipThreshold": False,
        "CoupleInputForget": False,
    }
    return recurrent(m, 4, 3, directions) | own


@makes("DIAGONAL_MATRIX")
def diagonal_matrix(m):
    return {"OutputTensor": (*m.lead, 2, 3), "Offset": 0, "Value": 1.0}


@makes("DIAGONAL_MATRIX1")
def diagonal_matrix1(m):
    sizes = (*m.lead, 2, 3)
    own = {"ValueDataType": m.types["T"], "Value": 1, "DiagonalFillBegin": 0, "DiagonalFillEnd": 1}
    return {"InputTensor": sizes, "OutputTensor": sizes} | own


@makes("ONE_HOT")
def one_hot(m):
    return {
        "IndicesTensor": m.last(1),
        "ValuesTensor": m.pad((2,)),
        "OutputTensor": m.sizes,
        "Axis": m.rank - 1,
    }


@makes("RESAMPLE")
def resample(m):
    tensors = {"InputTensor": m.sizes, "OutputTensor": m.last(10)}
    return tensors | {"InterpolationMode": "LINEAR", "Scales": m.each(1.0, 2.0)}


@makes("RESAMPLE1")
def resample1(m):
    return resample(m) | {"InputPixelOffsets": m.each(0.5), "OutputPixelOffsets": m.each(-0.5)}


@makes("RESAMPLE2")
def resample2(m):
    return resample1(m) | {"RoundingDirection": "DECREASING"}


@makes("RESAMPLE3")
def resample3(m):
    return resample2(m) | {"Antialiased": False}


@makes("RESAMPLE_GRAD")
def resample_grad(m):
    tensors = {"InputGradientTensor": m.last(10), "OutputGradientTensor": m.sizes}
    return without_fields(resample1(m), "InputTensor", "OutputTensor") | tensors


@makes("RESAMPLE_GRAD1")
def resample_grad1(m):
    return resample_grad(m) | {"RoundingDirection": "DECREASING"}


@makes("FILL_VALUE_CONSTANT")
def fill_value_constant(m):
    return {"OutputTensor": m.sizes, "ValueDataType": m.types["T"], "Value": 1}


@makes("FILL_VALUE_SEQUENCE")
def fill_value_sequence(m):
    return {"OutputTensor": m.sizes, "ValueDataType": m.types["T"], "ValueStart": 1, "ValueDelta": 2}


@makes("CUMULATIVE_SUMMATION")
def cumulative_summation(m):
    return cast(m) | {"Axis": m.rank - 1, "AxisDirection": "INCREASING", "HasExclusiveSum": False}


@makes("CUMULATIVE_PRODUCT")
def cumulative_product(m):
    return cast(m) | {"Axis": m.rank - 1, "AxisDirection": "INCREASING", "HasExclusiveProduct": False}


@makes("REVERSE_SUBSEQUENCES")
def reverse_subsequences(m):
    return cast(m) | {"SequenceLengthsTensor": m.last(1), "Axis": m.rank - 1}


@makes("RANDOM_GENERATOR")
def random_generator(m):
    state = m.pad((6,), "s")
    return {
        "InputStateTensor": state,
        "OutputTensor": m.sizes,
        "OutputStateTensor": state,
        "Type": "PHILOX_4X32_10",
    }


@makes("NONZERO_COORDINATES")
def nonzero_coordinates(m):
    """Three elements in a row, whose coordinates are one number each."""
    return {
        "InputTensor": m.pad((3,)),
        "OutputCountTensor": m.pad((), "c"),
        "OutputCoordinatesTensor": m.pad((3, 1), "d"),
    }


@makes("ADAM_OPTIMIZER")
def adam_optimizer(m):
    kinds = ["Parameters", "FirstMoment", "SecondMoment"]
    names = ["GradientTensor", *(f"{side}{kind}Tensor" for side in ("Input", "Output") for kind in kinds)]
    own = {"LearningRate": 0.1, "Beta1": 0.9, "Beta2": 0.999, "Epsilon": 1e-8}
    return dict.fromkeys(names, m.sizes) | {"TrainingStepTensor": m.pad(())} | own


@makes("DYNAMIC_QUANTIZE_LINEAR")
def dynamic_quantize_linear(m):
    return cast(m) | {"OutputScaleTensor": m.pad(()), "OutputZeroPointTensor": m.pad(())}


@makes("QUANTIZE", "DEQUANTIZE")
def quantize(m):
    return cast(m) | {"QuantizationType": "SCALE_ZERO_POINT", "QuantizationTensors": [m.pad(()), m.pad(())]}


@makes("UNFOLD")
def unfold(m):
    """Three in a batch, two channels, windows of 2 along the last dimension; the others are ones."""
    n = m.spatial
    return {
        "InputTensor": (3, 2) + (1,) * (n - 1) + (4,),
        "OutputTensor": m.pad((3, 4, 3)),
        "WindowSizes": [1] * (n - 1) + [2],
        "Strides": [1] * n,
        "Dilations": [1] * n,
        "StartPadding": [0] * n,
        "EndPadding": [0] * n,
    }


@makes("FOLD")
def fold(m):
    fields = unfold(m)
    return fields | {"InputTensor": fields["OutputTensor"], "OutputTensor": fields["InputTensor"]}


def attention(m, heads):
    """Two in a batch, sequences of 3, 5 in the past, 2 heads of 4; then the other ways to say the same."""
    past, present = m.pad((2, 2, 5, 4), "k"), m.pad((2, 2, 8, 4), "k")
    sequence = m.pad((2, 3, 8))
    query, key, value = ({f"{kind}Tensor": sequence} for kind in ("Query", "Key", "Value"))
    stacked = m.pad((2, 3, 2, 2, 4), "s")
    common = {"OutputTensor": sequence, "Scale": 0.5, "MaskFilterValue": -1e4, "MaskType": "NONE"} | heads
    alone = query | key | value
    yield (
        common
        | alone
        | {
            "BiasTensor": m.pad((24,), "b"),
            "RelativePositionBiasTensor": m.pad((2, 2, 3, 8), "p"),
            "PastKeyTensor": past,
            "PastValueTensor": past,
            "OutputPresentKeyTensor": present,
            "OutputPresentValueTensor": present,
        }
    )
    mask = {"MaskTensor": m.pad((8,), "m"), "MaskType": "KEY_QUERY_SEQUENCE_LENGTH_START_END"}
    yield common | alone | mask
    yield common | value | {"StackedQueryKeyTensor": stacked}
    yield common | query | {"StackedKeyValueTensor": stacked}
    yield common | {"StackedQueryKeyValueTensor": m.pad((2, 3, 2, 3, 4), "s")}


@makes("MULTIHEAD_ATTENTION")
def multihead_attention(m):
    return [*attention(m, {"HeadCount": 2})]


@makes("MULTIHEAD_ATTENTION1")
def multihead_attention1(m):
    return [*attention(m, {"QueryHeadCount": 2, "KeyValueHeadCount": 2})]


# ---- descriptions ------------------------------------------------------------------------------------


def drafts(facts, ranks, types):
    """The fields of valid descriptions, in one of which each tensor is.

    Raises:
        Impossible: none has so few dimensions.
    """
    made = MAKERS[facts.name](Draft(ranks, types))
    made = made if isinstance(made, list) else [made]
    own = {"Function": facts.functions[0]} if facts.functions else {}
    return [own | fields for fields in made]


def described(facts, types, fields):
    """The description with these fields: tuples are sizes."""
    fields = dict(fields)
    for t in facts.tensors:
        value = fields.get(t.name)
        if isinstance(value, tuple):
            fields[t.name] = of_type(types[t.letter()], value)
        elif t.array and isinstance(value, list):
            fields[t.name] = [
                of_type(types[t.letter(k)], v) if isinstance(v, tuple) else v for k, v in enumerate(value)
            ]
    lists = [value for value in fields.values() if isinstance(value, list)]
    counts = {name: len(lists[0]) for name, kind in facts.attributes.items() if "count" in kind and lists}
    return {"Type": facts.name, "Desc": counts | fields}


def of_type(data_type, sizes):
    return {"DataType": data_type, "Sizes": list(sizes)}


def plain(facts, level, variant=0, *, ranks=None, types=None, **changes):
    """A description that the level takes, with these changes."""
    ranks, types = facts.ranks(level) | (ranks or {}), facts.types(level) | (types or {})
    return described(facts, types, drafts(facts, ranks, types)[variant] | changes)


def having(facts, level, name):
    """Which of the descriptions has a tensor; none has PastSequenceLengthsTensor, which is TBD."""
    made = drafts(facts, facts.ranks(level), facts.types(level))
    return next((k for k, fields in enumerate(made) if name in fields), None)


def combinations(facts, level):
    """All types that its letters can have together."""
    table = facts.table(level)
    rows = product(*(table.types[letter] for letter in facts.letters))
    return [dict(zip(facts.letters, row, strict=True)) for row in rows]
