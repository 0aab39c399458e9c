"""What each level allows of all operators that are not element-wise, against tensor_tables.txt."""

import random
from collections import Counter
from dataclasses import dataclass, field

import pytest
from operator_tables import DATA_TYPES, FACTS, LEVELS, RANKS, reaches, takes
from tensor_descs import (
    PARAGRAPHS,
    RELU,
    TABLES,
    TENSOR_FACTS,
    Draft,
    Impossible,
    combinations,
    described,
    drafts,
    gru,
    having,
    lstm,
    of_type,
    plain,
    rnn,
    without_fields,
)

import anydml as dml
from anydml.ops.catalog import CATALOG

NAN = float("nan")

every_table = pytest.mark.parametrize("facts", TABLES, ids=repr)
every_operator = pytest.mark.parametrize("facts", TENSOR_FACTS.values(), ids=TENSOR_FACTS)


def those(condition):
    """The operators of which a thing is true, as parameters."""
    chosen = {name: facts for name, facts in TENSOR_FACTS.items() if condition(facts)}
    assert chosen
    return pytest.mark.parametrize("facts", chosen.values(), ids=chosen)


def put(desc, **fields):
    return desc | {"Desc": desc["Desc"] | fields}


def drop(desc, name):
    return desc | {"Desc": without_fields(desc["Desc"], name)}


def retyped(desc, name, data_type, k=0):
    """With another type of one tensor; `k` is its place in a list."""
    value = desc["Desc"][name]
    if not isinstance(value, list):
        return put(desc, **{name: value | {"DataType": data_type}})
    return put(desc, **{name: [*value[:k], value[k] | {"DataType": data_type}, *value[k + 1 :]]})


def reason(level, desc):
    """What is said against a description, for the message of an assertion."""
    return level, desc, dml.validate(desc, feature_level=dml.FeatureLevel[f"FL_{level}"])


# ---- tensors -----------------------------------------------------------------------------------------


def test_the_tables_have_all_operators_that_are_not_element_wise():
    assert len(TABLES) == len(PARAGRAPHS) == 89
    assert len(TENSOR_FACTS) == 85
    assert not TENSOR_FACTS.keys() & FACTS.keys()
    assert len(TENSOR_FACTS) + len(FACTS) == 177
    names = {name for name in dml.OperatorType.__members__ if name not in ("INVALID", "SCATTER_ELEMENTS")}
    assert names == {*TENSOR_FACTS, *FACTS}


@every_operator
def test_the_makers_give_all_fields(facts):
    for level in facts.levels:
        for k, fields in enumerate(drafts(facts, facts.ranks(level), facts.types(level))):
            desc = plain(facts, level, k)["Desc"]
            tensors = {t.name for t in facts.tensors}
            assert fields.keys() <= desc.keys() <= tensors | facts.attributes.keys()
            wanted = {t.name for t in facts.tensors if not t.optional}
            wanted |= {a for a, kind in facts.attributes.items() if kind != "activation optional"}
            assert wanted <= desc.keys()


@every_operator
def test_an_operator_has_the_tables_tensors_and_works_in_place_as_they_say(facts):
    (operator,) = [operator for operator in CATALOG if operator.name == facts.name]
    assert [operand.name for operand in operator.inputs] == [t.name for t in facts.inputs]
    assert [operand.name for operand in operator.outputs] == [t.name for t in facts.outputs]
    assert tuple(operator.in_place) == facts.in_place


@every_table
def test_an_operator_exists_from_its_level_on(facts):
    for level in LEVELS:
        if reaches(level, facts.introduced):
            for k in range(len(drafts(facts, facts.ranks(level), facts.types(level)))):
                desc = plain(facts, level, k)
                assert takes(level, desc), reason(level, desc)
        else:
            assert not takes(level, plain(facts, facts.introduced)), level


def of_rank(facts, level, name, rank):
    """A description with another rank of all tensors that share it, or of ones where it cannot be made so."""
    for k in range(len(drafts(facts, facts.ranks(level), facts.types(level)))):
        try:
            desc = plain(facts, level, k, ranks={name: rank})
        except Impossible:
            assert rank not in facts.table(level).ranks[name], "no description of this rank"
            desc = plain(facts, level, k)
            ones = {
                t.name: [one | {"Sizes": [1] * rank} for one in desc["Desc"][t.name]]
                if t.array
                else desc["Desc"][t.name] | {"Sizes": [1] * rank}
                for t in facts.tensors
                if t.rank == name and t.name in desc["Desc"]
            }
            desc = put(desc, **ones)
        if any(t.rank == name and t.name in desc["Desc"] for t in facts.tensors):
            return desc
    return None


@every_table
def test_an_operator_takes_exactly_its_ranks(facts):
    """All ranks where a table begins, its edges where it ends; a rank with a name of its own alone."""
    for level in facts.spans:
        for name, ranks in facts.table(level).ranks.items():
            edges = {ranks[0] - 1, ranks[0], ranks[-1], ranks[-1] + 1}
            for rank in RANKS if level in facts.tables else sorted(edges):
                desc = of_rank(facts, level, name, rank)
                if desc is not None:
                    assert takes(level, desc) is (rank in ranks), (name, rank, *reason(level, desc))


@every_table
def test_an_operator_takes_exactly_its_types(facts):
    """One letter after the other, of each function."""
    for level in facts.spans:
        table = facts.table(level)
        for letter in facts.letters:
            bearer = next(t.name for t in facts.tensors if letter in t.letters)
            k = having(facts, level, bearer)
            allowed = table.types[letter]
            edges = dict.fromkeys([allowed[0], allowed[-1], facts.outside(level, letter)])
            for data_type in facts.tried(level, letter) if level in facts.tables else edges:
                for function in facts.functions or [None]:
                    changes = {"Function": function} if function else {}
                    desc = plain(facts, level, k, types={letter: data_type}, **changes)
                    wanted = data_type in allowed
                    assert takes(level, desc) is wanted, (letter, data_type, *reason(level, desc))


@pytest.mark.parametrize("facts", [f for f in TABLES if len(f.letters) > 1], ids=repr)
def test_types_that_are_not_tied_combine_freely(facts):
    for level in facts.tables:
        rows = combinations(facts, level)
        for types in random.Random(facts.name).sample(rows, min(len(rows), 60)):
            desc = plain(facts, level, types=types)
            assert takes(level, desc), reason(level, desc)


UNCERTAIN_TYPES = {
    "QUANTIZE",
    "DEQUANTIZE",
}  # nothing is said of how the types of scale and zero point are tied


@every_table
def test_tensors_of_one_letter_have_one_type(facts):
    uses = Counter(letter for t in facts.tensors for letter in (t.letters * (2 if t.array else 1)))
    for level in facts.tables:
        table, types = facts.table(level), facts.types(level)
        for t in facts.tensors:
            variant = having(facts, level, t.name)
            if variant is None:
                continue
            desc = plain(facts, level, variant)
            for k in range(len(desc["Desc"][t.name]) if t.array else 1):
                letter = t.letter(k)
                others = {facts.outside(level, letter)}
                if uses[letter] > 1 and not (t.array and facts.name in UNCERTAIN_TYPES):
                    others |= {*table.types[letter]} - {types[letter]}
                for data_type in sorted(others):
                    wrong = retyped(desc, t.name, data_type, k)
                    assert not takes(level, wrong), (level, t.name, k, data_type)


UNTIED_RANKS = {  # nothing is said of how the ranks of these are tied
    "MULTIHEAD_ATTENTION",
    "MULTIHEAD_ATTENTION1",
    "FOLD",  # the page asks for equal ranks, and has an example with others
    "UNFOLD",
}


@those(lambda facts: facts.name not in UNTIED_RANKS)
def test_tensors_that_share_a_rank_have_one_rank(facts):
    level = "6_4"
    shared = Counter(t.rank for t in facts.tensors for _ in range(2 if t.array else 1))
    for t in facts.tensors:
        if shared[t.rank] < 2:
            continue
        k = having(facts, level, t.name)
        desc = plain(facts, level, k)
        said = desc["Desc"][t.name]
        for one in said if isinstance(said, list) else [said]:
            longer = one | {"Sizes": [1, *one["Sizes"]]}
            value = (
                [longer if other is one else other for other in said] if isinstance(said, list) else longer
            )
            assert not takes(level, put(desc, **{t.name: value})), t.name


NOT_ALONE = {  # optional tensors that others make necessary: these are among the cases below
    ("MEAN_VARIANCE_NORMALIZATION", "ScaleTensor"),
    ("MEAN_VARIANCE_NORMALIZATION", "BiasTensor"),
    ("MEAN_VARIANCE_NORMALIZATION1", "ScaleTensor"),
    ("MEAN_VARIANCE_NORMALIZATION1", "BiasTensor"),
    ("ROI_ALIGN_GRAD", "InputTensor"),
    *(
        (f"MULTIHEAD_ATTENTION{n}", f"{kind}Tensor")
        for n in ("", "1")
        for kind in (
            "Query Key Value StackedQueryKey StackedKeyValue StackedQueryKeyValue Mask PastKey PastValue"
        ).split()
    ),
}


@every_operator
def test_only_optional_tensors_may_be_missing(facts):
    for level in facts.edges:
        for t in facts.tensors:
            k = having(facts, level, t.name)
            if k is None or (facts.name, t.name) in NOT_ALONE:
                continue
            desc = plain(facts, level, k)
            for one in (drop(desc, t.name), put(desc, **{t.name: None})):
                assert takes(level, one) is t.optional, (t.name, *reason(level, one))


# ---- attributes --------------------------------------------------------------------------------------

OF_LISTS = ["one", 7, {}, ["zero"], [NAN], [[0]], [None], [{}]]
OF_ENUMERATIONS = ["NONSENSE", "", -1, 99, NAN, [], {}, ["NONE"], "HALVES_TO_NEAREST_EVEN"]
WRONG_SIZES = [
    {"Width": 2},
    {"Height": 2},
    {"Width": "two", "Height": 2},
    {"Width": -1, "Height": 2},
    {"Width": 2.5, "Height": 2},
    {"Width": 2, "Height": 2, "Depth": 2},
]
WRONG = {  # none of these is a value of its kind
    "float": ["one", [1.0], {}, {"Float32": 1.0}],
    "scalar": ["one", [1], [], {}],
    "bool": ["one", [True], {}, NAN],
    "uint": ["one", [1], {}, -1, 1.5, NAN, 2**32],
    "int": ["one", [1], {}, 1.5, NAN, 2**31, -(2**31) - 1],
    "size_2d": ["one", 2, NAN, {}, *WRONG_SIZES],
    "uints": [*OF_LISTS, [0.5], [-1], [2**32]],
    "ints": [*OF_LISTS, [0.5], [2**31]],
    "floats": [*OF_LISTS[:4], [[0]], [None], [{}]],
    "axes": [*OF_LISTS, [0.5], [-1], [2**32]],
    "count optional": ["one", [1], {}, -1, 1.5, NAN],
    "tensor_data_type": ["NONSENSE", "UNKNOWN", "", NAN, [], {}],
    "activation optional": [1, [], "NONSENSE", {"Desc": {}}, {"Type": "NONSENSE", "Desc": {}}],
    "activations": [1, "NONSENSE", RELU, [1], ["NONSENSE"], [None], [{"Desc": {}}], [{"Type": "NONSENSE"}]],
}


def is_required(facts, name):
    return "optional" not in facts.attributes[name]


UNCERTAIN = {("BATCH_NORMALIZATION_GRAD", "Epsilon")}  # the header's schema calls it optional, by mistake


@every_operator
def test_a_field_must_be_there_unless_it_is_optional(facts):
    for level in facts.edges:
        desc = plain(facts, level)
        for name in facts.attributes:
            if (facts.name, name) not in UNCERTAIN:
                for one in (drop(desc, name), put(desc, **{name: None})):
                    assert takes(level, one) is not is_required(facts, name), (name, *reason(level, one))


@those(lambda facts: facts.attributes)
def test_a_field_takes_only_values_of_its_kind(facts):
    desc = plain(facts, "6_4")
    assert takes("6_4", desc), reason("6_4", desc)
    for name, kind in facts.attributes.items():
        for value in WRONG.get(kind, OF_ENUMERATIONS):
            # a list is as long as it is to be
            if isinstance(value, list) and isinstance(desc["Desc"].get(name), list):
                value = value * len(desc["Desc"][name])
            assert not takes("6_4", put(desc, **{name: value})), (name, value)


@every_operator
def test_a_tensor_takes_only_descriptions_of_tensors(facts):
    for t in facts.tensors:
        k = having(facts, "6_4", t.name)
        if k is None:
            continue
        desc = plain(facts, "6_4", k)
        said = desc["Desc"][t.name]
        if t.array:
            huge = said[-1] | {"Sizes": [2**31] * len(said[-1]["Sizes"])}
            values = ["one", 7, {}, [], ["one"], [None], [[]], [{}], [said], {"0": said[0]}]
            values += [["one", *said[1:]], ["one", huge], [said[0], huge], [huge, "one"]]
        else:
            values = ["one", 7, [], {}, [7], said | {"Sizes": "4"}, said | {"Sizes": [-1] * 4}, [said, said]]
            values += [
                without_fields(said, "Sizes"),
                without_fields(said, "DataType"),
                said | {"Nonsense": 1},
            ]
            values += [said | {"Sizes": [2**31] * len(said["Sizes"])}]
            values += [said | {"DataType": "NONSENSE"}, said | {"Sizes": [0] * len(said["Sizes"])}]
        for value in values:
            assert not takes("6_4", put(desc, **{t.name: value})), (t.name, value)


@those(lambda facts: any("count" in kind for kind in facts.attributes.values()))
def test_a_count_is_the_length_of_its_list(facts):
    (name,) = [name for name, kind in facts.attributes.items() if "count" in kind]
    for level in facts.edges:
        desc = plain(facts, level)
        count = desc["Desc"][name]
        assert takes(level, desc), reason(level, desc)
        for wrong in (0, count - 1, count + 1, 2**32 - 1):
            assert not takes(level, put(desc, **{name: wrong})), (level, wrong)


@every_operator
def test_a_field_of_another_operator_is_unknown(facts):
    own = {t.name for t in facts.tensors} | facts.attributes.keys()
    strange = {
        name: value
        for other in TENSOR_FACTS.values()
        for name, value in plain(other, "6_4")["Desc"].items()
        if name not in own
    }
    desc = plain(facts, "6_4")
    assert takes("6_4", desc), reason("6_4", desc)
    for name in [*random.Random(facts.name).sample(sorted(strange), 8), "Nonsense", ""]:
        assert not takes("6_4", put(desc, **{name: strange.get(name, 1.0)})), name


ALWAYS_ALL = {  # all values of these go with any sizes
    "convolution_mode": ["CONVOLUTION", "CROSS_CORRELATION"],
    "interpolation_mode": ["NEAREST_NEIGHBOR", "LINEAR"],
    "axis_direction": ["INCREASING", "DECREASING"],
    "depth_space_order": ["DEPTH_COLUMN_ROW", "COLUMN_ROW_DEPTH"],
    "random_generator_type": ["PHILOX_4X32_10"],
    "bool": [False, True],
}


@those(lambda facts: ALWAYS_ALL.keys() & facts.attributes.values())
def test_a_choice_takes_all_its_values(facts):
    for level in facts.edges:
        for name, kind in facts.attributes.items():
            if name == "Spatial" and not reaches(level, "4_0"):
                continue  # it asks for sizes
            for value in ALWAYS_ALL.get(kind, []):
                desc = plain(facts, level, **{name: value})
                assert takes(level, desc), (name, *reason(level, desc))


# ---- fused activations -------------------------------------------------------------------------------

FUSED = """
    LINEAR SIGMOID HARD_SIGMOID TANH SCALED_TANH RELU LEAKY_RELU THRESHOLDED_RELU ELU CELU SCALED_ELU
    SOFTPLUS PARAMETRIC_SOFTPLUS SOFTSIGN IDENTITY SHRINK GELU
"""
FUSIBLE = {f"ACTIVATION_{name}": FACTS[f"ACTIVATION_{name}"].introduced for name in FUSED.split()}
CLIP = {"ELEMENT_WISE_CLIP": "6_0"}
SOFTMAX = {"ACTIVATION_SOFTMAX": "6_1", "ACTIVATION_SOFTMAX1": "6_1"}
MORE = {"CONVOLUTION": CLIP, "GEMM": CLIP | SOFTMAX}
BEGINNINGS = sorted({*FUSIBLE.values(), *CLIP.values(), *SOFTMAX.values()}, key=LEVELS.index)
FUSING = {*BEGINNINGS, *(LEVELS[LEVELS.index(level) - 1] for level in BEGINNINGS[1:]), LEVELS[-1]}
"""The levels at which activations begin to be fused, and those before."""


def activation(name, **fields):
    values = {"float": 1.0, "axes": [3], "scalar": 1, "tensor_data_type": "FLOAT32"}
    kinds = FACTS[name].attributes if name in FACTS else {}
    own = {attribute: values[kind] for attribute, kind in kinds.items() if kind in values}
    return {"Type": name, "Desc": own | fields}


@those(lambda facts: "FusedActivation" in facts.attributes)
def test_activations_fuse_from_their_own_level_on(facts):
    since = FUSIBLE | MORE.get(facts.name, {})
    assert len(FUSIBLE) == 17
    for level in sorted(FUSING.intersection(facts.levels)):
        others = [*FACTS, *TENSOR_FACTS, "NONSENSE"] if level == "6_4" else ["ELEMENT_WISE_ADD1", "GEMM"]
        for name in {**FUSIBLE, **CLIP, **SOFTMAX, **dict.fromkeys(others)}:
            desc = plain(facts, level, FusedActivation=activation(name))
            wanted = name in since and reaches(level, since[name])
            assert takes(level, desc) is wanted, (level, name)


@those(lambda facts: "FusedActivation" in facts.attributes)
def test_a_fused_activation_has_its_attributes_and_no_tensors(facts):
    sizes = of_type("FLOAT32", (2, 3, 4, 5))
    for good in (RELU, activation("ACTIVATION_ELU", InputTensor=None, OutputTensor=None)):
        assert takes("6_4", plain(facts, "6_4", FusedActivation=good)), good
    for bad in (
        activation("ACTIVATION_RELU", InputTensor=sizes, OutputTensor=sizes),
        activation("ACTIVATION_RELU", OutputTensor=sizes),
        activation("ACTIVATION_RELU", Alpha=1.0),
        activation("ACTIVATION_ELU", Alpha="one"),
        {"Type": "ACTIVATION_ELU", "Desc": {}},
        activation("ACTIVATION_RELU", FusedActivation=RELU),
    ):
        assert not takes("6_4", plain(facts, "6_4", FusedActivation=bad)), bad


@those(lambda facts: "ActivationDescs" in facts.attributes)
def test_a_recurrent_network_takes_activations(facts):
    for level in sorted(FUSING.intersection(facts.levels)):
        count = len(plain(facts, level)["Desc"]["ActivationDescs"])
        for name in [*FUSIBLE, "ELEMENT_WISE_ADD1", "GEMM", "NONSENSE"]:
            wanted = name in FUSIBLE and reaches(level, FUSIBLE[name])
            activations = [RELU] * (count - 1) + [activation(name)]
            assert takes(level, plain(facts, level, ActivationDescs=activations)) is wanted, (level, name)


# ---- sizes, ranges, and fields that depend on others ---------------------------------------------------


@dataclass(frozen=True)
class Case:
    """What a change makes of a valid description of rank 4: tuples are sizes, None is a field left out."""

    ok: bool
    level: str
    """Where there is none, the first level that has the operator, and the newest."""
    change: dict = field(default_factory=dict)
    variant: int = 0

    def __repr__(self):
        changes = ", ".join(f"{name}={value}" for name, value in self.change.items())
        return f"{'yes' if self.ok else 'no'}({changes}) of description {self.variant}"


def yes(level="", variant=0, /, **change):
    return Case(True, level, change, variant)


def no(level="", variant=0, /, **change):
    return Case(False, level, change, variant)


def twice(level, /, **change):
    """Not yet at the level before, but from this one on."""
    return (no(LEVELS[LEVELS.index(level) - 1], **change), yes(level, **change))


def lists(*names, length=4, good=0):
    """Lists that are too short or too long."""
    for name in names:
        yield no(**{name: [good] * (length - 1)})
        yield no(**{name: [good] * (length + 1)})
        yield no(**{name: []})


def in_directions(maker):
    return maker(Draft({"": 4}, {}), 2)


SPATIAL = lists("Strides", "StartPadding", "EndPadding", length=2, good=1)
SPATIAL = [*SPATIAL, no(Strides=[0, 2]), no(Strides=[2, 0])]

# Input {1, 2, 4, 4}, filter {3, 2, 3, 3}, output {1, 3, 2, 2}.
CONVOLUTION = [
    yes(),
    *SPATIAL,
    *lists("Dilations", length=2, good=1),
    no(Dilations=[0, 1]),
    no(DimensionCount=1),
    no(DimensionCount=4),
    no(OutputTensor=(1, 3, 3, 2)),
    no(OutputTensor=(1, 3, 2, 1)),
    no(OutputTensor=(2, 3, 2, 2)),
    no(OutputTensor=(1, 2, 2, 2)),
    no(OutputTensor=(1, 4, 2, 2)),
    yes(FilterTensor=(3, 2, 4, 1), OutputTensor=(1, 3, 1, 4)),
    no(FilterTensor=(3, 2, 5, 1), OutputTensor=(1, 3, 1, 4)),
    no(FilterTensor=(3, 3, 3, 3)),
    no(FilterTensor=(3, 1, 3, 3)),
    yes(InputTensor=(5, 2, 4, 4), OutputTensor=(5, 3, 2, 2)),
    no(InputTensor=(1, 2, 2, 4), OutputTensor=(1, 3, 1, 2)),
    yes(InputTensor=(1, 2, 5, 6), Strides=[2, 2]),
    no(InputTensor=(1, 2, 5, 7), Strides=[2, 2]),
    yes(InputTensor=(1, 2, 5, 6), Dilations=[2, 1], OutputTensor=(1, 3, 1, 4)),
    no(InputTensor=(1, 2, 4, 6), Dilations=[2, 1], OutputTensor=(1, 3, 1, 4)),
    yes(StartPadding=[1, 0], EndPadding=[0, 2], OutputTensor=(1, 3, 3, 4)),
    no(StartPadding=[1, 0], EndPadding=[0, 2]),
    no(GroupCount=0),
    no(GroupCount=2),
]
# Four channels come out of two groups.
GROUPS = {"FilterTensor": (4, 1, 3, 3), "OutputTensor": (1, 4, 2, 2)}
GROUPS_BACK = {"FilterTensor": (2, 2, 3, 3), "OutputTensor": (1, 4, 6, 6)}

# Input {1, 2, 4, 4}, windows of 2 by 2 in steps of 2, output {1, 2, 2, 2}.
POOLS = {
    "MAX_POOLING": "InputTensor OutputTensor",
    "AVERAGE_POOLING": "InputTensor OutputTensor",
    "LP_POOLING": "InputTensor OutputTensor",
    "MAX_POOLING1": "InputTensor OutputTensor OutputIndicesTensor",
    "MAX_POOLING2": "InputTensor OutputTensor OutputIndicesTensor",
    "AVERAGE_POOLING1": "InputTensor OutputTensor",
    "LP_POOLING1": "InputTensor OutputTensor",
    "QUANTIZED_LINEAR_AVERAGE_POOLING": "InputTensor OutputTensor",
    "AVERAGE_POOLING_GRAD": "OutputGradientTensor InputGradientTensor",
    "MAX_POOLING_GRAD": "InputTensor InputGradientTensor OutputGradientTensor",
}


def pooling(name):
    large, small, *more = POOLS[name].split()

    def of(large_sizes, small_sizes):
        own = {large: large_sizes, small: small_sizes}
        if name == "MAX_POOLING_GRAD":
            return own | {"OutputGradientTensor": large_sizes}
        return own | dict.fromkeys(more, small_sizes)

    input_sizes, out = (1, 2, 4, 4), (1, 2, 2, 2)
    yield yes()
    yield from SPATIAL
    yield from lists("WindowSize", length=2, good=2)
    yield no(WindowSize=[0, 2])
    yield no(DimensionCount=1)
    yield no(DimensionCount=4)
    for wrong in ((1, 2, 3, 2), (1, 2, 2, 1), (1, 1, 2, 2), (1, 3, 2, 2), (2, 2, 2, 2)):
        yield no(**of(input_sizes, wrong))
    yield yes(**of((3, 5, 4, 4), (3, 5, 2, 2)))
    yield yes(**of((1, 2, 5, 4), out))
    yield no(**of((1, 2, 6, 4), out))
    yield yes(**of((1, 2, 6, 4), (1, 2, 3, 2)))
    yield yes(StartPadding=[1, 0], **of(input_sizes, out))
    yield yes(StartPadding=[1, 0], EndPadding=[1, 2], **of(input_sizes, (1, 2, 3, 3)))
    yield no(StartPadding=[1, 0], EndPadding=[1, 2])
    yield yes(WindowSize=[4, 1], **of(input_sizes, (1, 2, 1, 2)))
    yield no(WindowSize=[5, 1], **of(input_sizes, (1, 2, 1, 2)))
    yield yes(Strides=[1, 3], **of(input_sizes, (1, 2, 3, 1)))
    if "Dilations" in TENSOR_FACTS[name].attributes:
        yield from lists("Dilations", length=2, good=1)
        yield no(Dilations=[0, 1])
        yield yes(Dilations=[2, 3], **of(input_sizes, (1, 2, 1, 1)))
        yield no(Dilations=[2, 3])
        yield no(Dilations=[2, 4], **of(input_sizes, (1, 2, 1, 1)))
    if name.startswith("LP_"):
        yield from (yes(P=1), yes(P=3), no(P=0))
    if more:
        other = more[-1]
        yield no(**of(input_sizes, out) | {other: (1, 2, 4, 2)})
        yield no(**of(input_sizes, out) | {other: (2, 2, 2, 2)})


# Of {2, 3, 4, 5}, along the last axis.
REDUCING = [
    yes(),
    no(OutputTensor=(2, 3, 4, 5)),
    no(OutputTensor=(2, 3, 1, 5)),
    no(OutputTensor=(2, 3, 1, 1)),
    no(OutputTensor=(2, 3, 4)),
    yes(Axes=[1], OutputTensor=(2, 1, 4, 5)),
    yes(Axes=[1, 2], OutputTensor=(2, 1, 1, 5)),
    yes(Axes=[3, 0, 1, 2], OutputTensor=(1, 1, 1, 1)),
    no(Axes=[1, 2], OutputTensor=(2, 1, 4, 5)),
    no(Axes=[4]),
    no(Axes=[3, 4]),
    no(Axes=[3], AxisCount=2),
    no(Axes=[3, 2], AxisCount=1),
]

# In {1, 2, 4, 6} and out {1, 8, 2, 3}, or the other way round.
SPACE_TO_DEPTH = [
    yes(),
    no(BlockSize=0),
    no(BlockSize=1),
    no(BlockSize=3),
    yes(BlockSize=1, OutputTensor=(1, 2, 4, 6)),
    no(InputTensor=(1, 2, 5, 6)),
    no(InputTensor=(1, 2, 4, 7)),
    no(InputTensor=(2, 2, 4, 6)),
    yes(InputTensor=(2, 1, 4, 6), OutputTensor=(2, 4, 2, 3)),
    no(OutputTensor=(1, 2, 2, 3)),
    no(OutputTensor=(1, 8, 4, 6)),
    no(OutputTensor=(1, 4, 2, 3)),
    yes(BlockSize=3, InputTensor=(1, 1, 3, 6), OutputTensor=(1, 9, 1, 2)),
]
DEPTH_TO_SPACE = [
    yes(),
    no(BlockSize=0),
    no(BlockSize=1),
    no(BlockSize=3),
    yes(BlockSize=1, OutputTensor=(1, 8, 2, 3)),
    no(InputTensor=(1, 9, 2, 3)),
    no(InputTensor=(1, 6, 2, 3), OutputTensor=(1, 1, 4, 6)),
    no(InputTensor=(2, 8, 2, 3)),
    yes(InputTensor=(2, 4, 2, 3), OutputTensor=(2, 1, 4, 6)),
    no(OutputTensor=(1, 8, 4, 6)),
    no(OutputTensor=(1, 2, 2, 3)),
    no(OutputTensor=(1, 2, 4, 3)),
    yes(BlockSize=3, InputTensor=(1, 9, 1, 2), OutputTensor=(1, 1, 3, 6)),
]

# Values and indices {2, 3, 4, 2} of {2, 3, 4, 5}.
TOP_K = [
    yes(),
    no(K=0),
    no(K=3),
    yes(K=1, OutputValueTensor=(2, 3, 4, 1), OutputIndexTensor=(2, 3, 4, 1)),
    yes(K=5, OutputValueTensor=(2, 3, 4, 5), OutputIndexTensor=(2, 3, 4, 5)),
    no(K=6, OutputValueTensor=(2, 3, 4, 6), OutputIndexTensor=(2, 3, 4, 6)),
    no(OutputIndexTensor=(2, 3, 4, 1)),
    no(OutputValueTensor=(2, 3, 4, 5)),
    no(OutputValueTensor=(2, 3, 1, 2), OutputIndexTensor=(2, 3, 1, 2)),
    no(Axis=4),
    no(Axis=2),
    yes(Axis=2, OutputValueTensor=(2, 3, 2, 5), OutputIndexTensor=(2, 3, 2, 5)),
    yes(Axis=0, OutputValueTensor=(2, 3, 4, 5), OutputIndexTensor=(2, 3, 4, 5)),
]


def alike(*names, sizes=(2, 3, 4, 5)):
    """All of these have one size; a 1 is not broadcast."""
    yield yes()
    for name in names:
        for wrong in ((2, 3, 4, 1), (1, 3, 4, 5), (2, 3, 5, 4), (3, 4, 5)):
            yield no(**{name: wrong})
    yield yes(**dict.fromkeys(names, (7, 1, 1, 3)))


def broadcast(*names):
    """Each size is that of {2, 3, 4, 5} or 1."""
    yield yes()
    for name in names:
        for right in ((2, 3, 4, 5), (1, 1, 1, 1), (1, 3, 1, 1), (2, 1, 4, 1)):
            yield yes("6_4", **{name: right})
        for wrong in ((1, 2, 1, 1), (1, 1, 1, 4), (1, 1, 1, 10), (3, 4, 5)):
            yield no("6_4", **{name: wrong})


def broadcast_alike(*names):
    """Each size is that of {2, 3, 4, 5} or 1, and all are alike."""
    yield yes()
    for right in ((2, 3, 4, 5), (1, 1, 1, 1), (1, 3, 1, 1), (2, 1, 4, 1)):
        yield yes(**dict.fromkeys(names, right))
    for wrong in ((1, 2, 1, 1), (1, 1, 1, 4), (1, 1, 1, 10), (3, 4, 5)):
        yield no(**dict.fromkeys(names, wrong))
    for name in names:
        for wrong in ((1, 1, 1, 1), (2, 3, 4, 5), (1, 1, 4, 1)):
            yield no(**{name: wrong})


# Axis, of {2, 3, 4, 5}.
ONE_AXIS = [yes(Axis=axis) for axis in range(4)] + [no(Axis=4), no(Axis=2**32 - 1)]
MANY_AXES = [
    yes(Axes=[0]),
    yes(Axes=[1, 2, 3]),
    yes(Axes=[0, 1, 2, 3]),
    no(Axes=[4]),
    no(Axes=[0, 4]),
    no(Axes=[1], AxisCount=2),
]


def recurrent(maker, gates, activations):
    """Sequence 2, batch 3, from 4 values to 5."""
    name = maker.__name__.upper()
    right = {
        "InputTensor": (1, 2, 3, 4),
        "WeightTensor": (1, 1, gates * 5, 4),
        "RecurrenceTensor": (1, 1, gates * 5, 5),
        "BiasTensor": (1, 1, 1, gates * 10),
        "HiddenInitTensor": (1, 1, 3, 5),
        "SequenceLengthsTensor": (1, 1, 1, 3),
        "OutputSequenceTensor": (2, 1, 3, 5),
        "OutputSingleTensor": (1, 1, 3, 5),
    }
    if name == "LSTM":
        right |= dict.fromkeys(["CellMemInitTensor", "OutputCellSingleTensor"], (1, 1, 3, 5))
        right |= {"PeepholeTensor": (1, 1, 1, 15)}
    assert right.keys() == {t.name for t in TENSOR_FACTS[name].tensors}
    both = in_directions(maker)
    yield yes(**right)
    yield yes(Direction="BACKWARD")
    yield no(Direction="BIDIRECTIONAL")
    yield yes(**both)
    yield no(**both | {"Direction": "FORWARD"})
    yield no(**both | {"ActivationDescs": [RELU] * activations})
    yield no(ActivationDescs=[RELU] * (activations + 1))
    yield no(ActivationDescs=[RELU] * (activations - 1))
    yield no(ActivationDescs=[RELU] * (2 * activations))
    yield no(ActivationDescs=[RELU] * activations, ActivationDescCount=activations + 1)
    for tensor, sizes in right.items():
        for k in range(4):
            if tensor == "InputTensor" and k == 3:
                continue
            yield no(**{tensor: (*sizes[:k], sizes[k] + 1, *sizes[k + 1 :])})
        yield no(**{tensor: both[tensor]}) if both[tensor] != sizes else yes(**{tensor: sizes})
        yield no(**both | {tensor: sizes}) if both[tensor] != sizes else yes(**both)
        if not tensor.startswith("Output"):
            data_type = "UINT32" if tensor == "SequenceLengthsTensor" else "FLOAT32"
            same = of_type(data_type, sizes)
            yield yes(**{tensor: same | {"Flags": "NONE"}})
            yield no(**{tensor: same | {"Flags": "OWNED_BY_DML"}})
    yield yes(SequenceLengthsTensor=None, BiasTensor=None, HiddenInitTensor=None)
    yield yes(InputTensor=(1, 7, 3, 4), OutputSequenceTensor=(7, 1, 3, 5))


def resampling(large="OutputTensor", offsets=True):
    """Of {2, 3, 4, 5} to {2, 3, 4, 10}; the output may be anything, which crops or clamps."""
    yield yes()
    yield from lists("Scales", good=1.0)
    if offsets:
        yield from lists("InputPixelOffsets", "OutputPixelOffsets", good=0.0)
    if "Gradient" not in large:
        yield yes(**{large: (2, 3, 4, 7)})
        yield yes(**{large: (2, 3, 4, 12)})
        yield yes(**{large: (2, 3, 4, 10)}, Scales=[1.0, 1.0, 1.0, 1.9])
    yield yes(Scales=[1, 1, 1, 2])


# A {1, 2, 2, 3} by B {1, 2, 3, 4} is {1, 2, 2, 4}.
PRODUCT = [
    yes(),
    no(ATensor=(1, 2, 2, 4)),
    no(ATensor=(1, 2, 3, 2)),
    no(BTensor=(1, 2, 4, 4)),
    no(BTensor=(1, 2, 4, 3)),
    no(ATensor=(1, 1, 2, 3)),
    no(BTensor=(1, 1, 3, 4)),
    no(BTensor=(2, 2, 3, 4)),
    no(ATensor=(1, 3, 2, 3), BTensor=(1, 3, 3, 4)),
    yes(ATensor=(1, 2, 2, 7), BTensor=(1, 2, 7, 4)),
]
WRONG_PRODUCT = [(1, 2, 2, 3), (1, 2, 4, 2), (1, 2, 2, 1), (1, 1, 2, 4), (2, 2, 2, 4)]
PRODUCT += [no(OutputTensor=wrong) for wrong in WRONG_PRODUCT]


def per_row(*names, rows=2):
    """One element, or one for each row of A."""
    for name in names:
        yield yes(**{name: (1, 1, 1, 1)})
        yield yes(**{name: (1, 1, rows, 1)})
        for wrong in ((1, 1, rows + 1, 1), (1, 1, 1, rows), (1, rows, 1, 1), (rows, 1, 1, 1), (1, 1, 2, 4)):
            yield no(**{name: wrong})


def per_column(*names):
    """One element, or one for each of B's four columns."""
    for name in names:
        yield yes(**{name: (1, 1, 1, 1)})
        yield yes(**{name: (1, 1, 1, 4)})
        for wrong in ((1, 1, 1, 3), (1, 1, 1, 5), (1, 1, 4, 1), (1, 4, 1, 1), (1, 1, 3, 4)):
            yield no(**{name: wrong})


def one_element(*names):
    for name in names:
        yield yes(**{name: (1, 1, 1, 1)})
        for wrong in ((1, 1, 1, 2), (1, 2, 1, 1), (2, 1, 1, 1)):
            yield no(**{name: wrong})


def per_channel(*names, channels):
    for name in names:
        yield yes(**{name: (1, 1, 1, 1)})
        yield yes(**{name: (1, channels, 1, 1)})
        for wrong in ((1, channels + 1, 1, 1), (channels, 1, 1, 1), (1, 1, 1, channels), (1, channels, 1, 2)):
            yield no(**{name: wrong})


def aligning(small):
    """Input {1, 2, 4, 4}, three regions, out {3, 2, 5, 6}."""
    yield yes()
    yield yes(ReductionFunction="MAX")
    for function in "ARGMAX ARGMIN L1 L2 LOG_SUM LOG_SUM_EXP MIN MULTIPLY SUM SUM_SQUARE".split():
        yield no(ReductionFunction=function)
    yield yes(**{small: (3, 2, 1, 9)})
    for wrong in ((4, 2, 5, 6), (1, 2, 5, 6), (3, 1, 5, 6), (3, 3, 5, 6)):
        yield no(**{small: wrong})
    yield no(BatchIndicesTensor=(1, 1, 1, 2))
    yield no(BatchIndicesTensor=(1, 1, 1, 4))
    yield no(BatchIndicesTensor=(1, 1, 3, 1))
    yield yes(BatchIndicesTensor=(3,))


GATHERING_ND = [
    # {2, 3, 4, 5} by six indices: {6, 3, 4, 5}
    yes(),
    no(InputDimensionCount=0),
    no(InputDimensionCount=5),
    no(IndicesDimensionCount=0),
    no(IndicesDimensionCount=5),
    no(InputDimensionCount=2**32 - 1),
]


def nd(result):
    """Where `result` are the sizes that the indices choose."""

    def chosen(case, indices, sizes, **more):
        return case(IndicesTensor=indices, **{result: sizes}, **more)

    yield from GATHERING_ND
    for wrong in ((6, 3, 4, 1), (5, 3, 4, 5), (1, 3, 4, 5), (2, 3, 4, 5)):
        yield no(**{result: wrong})
    yield chosen(yes, (1, 1, 6, 2), (1, 6, 4, 5))
    yield chosen(no, (1, 1, 6, 2), (6, 3, 4, 5))
    yield chosen(yes, (1, 1, 6, 3), (1, 1, 6, 5))
    yield chosen(yes, (1, 1, 6, 4), (1, 1, 1, 6))
    yield chosen(no, (1, 1, 6, 5), (1, 1, 1, 6))
    yield chosen(no, (1, 1, 6, 5), (1, 1, 6, 1))
    yield chosen(yes, (1, 7, 6, 2), (7, 6, 4, 5), IndicesDimensionCount=3)
    yield chosen(yes, (8, 7, 6, 4), (1, 8, 7, 6), IndicesDimensionCount=4)
    yield chosen(yes, (1, 1, 1, 1), (1, 3, 4, 5), IndicesDimensionCount=1)
    yield chosen(no, (1, 1, 1, 1), (3, 4, 5, 1), IndicesDimensionCount=1)
    yield chosen(no, (1, 1, 6, 1), (1, 6, 3, 4))


SCATTERED = {"InputTensor": (1, 1, 4, 5), "OutputTensor": (1, 1, 4, 5)}


def windows_of_slices(large, small):
    """A window of 4 from 1 on, of {2, 3, 4, 5}, every third: {2, 3, 4, 2}."""
    yield yes()
    for name, good in (("InputWindowOffsets", 0), ("InputWindowSizes", 1), ("InputWindowStrides", 1)):
        yield from lists(name, good=good)
    yield no(DimensionCount=3)
    yield yes(**{small: (2, 3, 4, 1)})
    yield no(**{small: (2, 3, 4, 3)})
    yield no(**{small: (2, 3, 5, 2)})
    yield yes(InputWindowStrides=[1, 1, 1, -3])
    yield yes(InputWindowStrides=[-1, 1, -1, -1], **{small: (2, 3, 4, 4)})
    yield no(InputWindowStrides=[-1, 1, -1, -1], **{small: (2, 3, 4, 5)})
    yield yes(InputWindowStrides=[1, 1, 1, 2])
    yield no(InputWindowStrides=[1, 1, 1, 4])
    yield no(InputWindowStrides=[1, 1, 1, -4])
    yield yes(InputWindowStrides=[1, 1, 1, 4], **{small: (2, 3, 4, 1)})
    yield no(InputWindowStrides=[1, 1, 1, 0])
    yield no(InputWindowStrides=[1, 1, 1, 0], **{small: (2, 3, 4, 1)})
    yield yes(InputWindowStrides=[9, -9, 9, 9], **{small: (1, 1, 1, 1)})
    yield no(InputWindowOffsets=[0, 0, 0, 2])
    yield no(InputWindowOffsets=[1, 0, 0, 1])
    yield no(InputWindowOffsets=[0, 0, 0, 2**32 - 1])
    yield no(InputWindowSizes=[2, 3, 4, 5])
    yield yes(InputWindowSizes=[2, 3, 4, 5], InputWindowOffsets=[0, 0, 0, 0])
    yield no(InputWindowSizes=[2, 3, 4, 3])
    yield yes(InputWindowSizes=[2, 3, 4, 3], **{small: (2, 3, 4, 1)})
    yield no(InputWindowSizes=[2, 3, 4, 0], **{small: (2, 3, 4, 1)})
    yield no(**{large: (2, 3, 4, 4)})
    yield yes(**{large: (2, 3, 4, 9)})


def paddings():
    """{2, 3, 4, 5} with 1 before and 2 after it on the last axis."""
    yield yes()
    yield from lists("StartPadding", "EndPadding")
    yield no(DimensionCount=2)
    for wrong in ((2, 3, 4, 7), (2, 3, 4, 9), (2, 3, 4, 5), (3, 3, 4, 8)):
        yield no(OutputTensor=wrong)
    yield yes(StartPadding=[1, 0, 0, 0], EndPadding=[0, 0, 3, 0], OutputTensor=(3, 3, 7, 5))
    yield yes(StartPadding=[0] * 4, EndPadding=[0] * 4, OutputTensor=(2, 3, 4, 5))
    for mode in ("EDGE", "REFLECTION"):
        yield yes(PaddingMode=mode)
        # as often as it takes
        yield yes(PaddingMode=mode, StartPadding=[0, 0, 0, 23], OutputTensor=(2, 3, 4, 30))
    yield from twice("6_4", PaddingMode="WRAP")


# Query, key and value {1, 2, 3, 8}, 2 heads of 4. Description 0 has 5 in the past, 1 a mask; in 2 query and key
# are stacked, in 3 key and value, in 4 all of them.
SEQUENCE = (1, 2, 3, 8)
STACKED = (2, 3, 2, 2, 4)
ALL_STACKED = (2, 3, 2, 3, 4)
NO_PAST = dict.fromkeys(
    "RelativePositionBiasTensor PastKeyTensor PastValueTensor OutputPresentKeyTensor OutputPresentValueTensor".split()
)


def attention(*counts):
    for k in range(5):
        yield yes("", k)
    # exactly one query, key and value
    for name in ("QueryTensor", "KeyTensor", "ValueTensor"):
        yield no(**{name: None})
        yield no("", 4, **{name: SEQUENCE})
    yield no(StackedQueryKeyTensor=STACKED)
    yield no(StackedKeyValueTensor=STACKED)
    yield no(StackedQueryKeyValueTensor=ALL_STACKED)
    yield no("", 2, ValueTensor=None)
    yield no("", 2, QueryTensor=SEQUENCE)
    yield no("", 2, KeyTensor=SEQUENCE)
    yield no("", 2, StackedKeyValueTensor=STACKED)
    yield no("", 2, ValueTensor=None, StackedKeyValueTensor=STACKED)
    yield no("", 2, ValueTensor=None, StackedQueryKeyValueTensor=ALL_STACKED)
    yield no("", 3, QueryTensor=None)
    yield no("", 3, KeyTensor=SEQUENCE)
    yield no("", 3, ValueTensor=SEQUENCE)
    yield no("", 3, StackedQueryKeyTensor=STACKED)
    yield no("", 3, StackedQueryKeyValueTensor=ALL_STACKED)
    yield no("", 4, StackedQueryKeyValueTensor=None)
    yield no("", 4, StackedQueryKeyTensor=STACKED)
    yield no("", 4, StackedKeyValueTensor=STACKED)
    # sizes
    yield yes("", 1, KeyTensor=(1, 2, 9, 8), ValueTensor=(1, 2, 9, 8))
    yield no("", 1, KeyTensor=(1, 2, 9, 8))
    yield no("", 1, ValueTensor=(1, 2, 9, 8))
    yield no("", 1, KeyTensor=(1, 1, 3, 8))
    yield no("", 1, KeyTensor=(1, 2, 3, 12))
    yield no("", 1, ValueTensor=(1, 3, 3, 8))
    yield no("", 1, QueryTensor=(2, 1, 3, 8))
    yield yes("", 1, ValueTensor=(1, 2, 3, 6), OutputTensor=(1, 2, 3, 6))
    yield no("", 1, ValueTensor=(1, 2, 3, 6))
    yield no("", 1, ValueTensor=(1, 2, 3, 7), OutputTensor=(1, 2, 3, 7))
    yield yes("", 2, ValueTensor=(1, 2, 3, 6), OutputTensor=(1, 2, 3, 6))
    yield no("", 2, ValueTensor=(1, 2, 9, 8))
    yield yes("", 3, StackedKeyValueTensor=(2, 9, 2, 2, 4))
    for k, name, sizes in (
        (2, "StackedQueryKeyTensor", STACKED),
        (3, "StackedKeyValueTensor", STACKED),
        (4, "StackedQueryKeyValueTensor", ALL_STACKED),
    ):
        for axis in (0, 2, 3):
            yield no("", k, **{name: (*sizes[:axis], sizes[axis] + 1, *sizes[axis + 1 :])})
    for k in range(1, 5):
        for wrong in ((1, 2, 4, 8), (1, 3, 3, 8), (1, 2, 3, 9), (2, 2, 3, 8)):
            yield no("", k, OutputTensor=wrong)
    for wrong in ((1, 1, 1, 23), (1, 1, 1, 8), (1, 1, 2, 24), (24, 1, 1, 1)):
        yield no(BiasTensor=wrong)
    # the past
    for name, sizes in (("PastKeyTensor", (2, 2, 5, 4)), ("PastValueTensor", (2, 2, 5, 4))):
        for axis in (0, 1, 3):
            yield no(**{name: (*sizes[:axis], sizes[axis] + 1, *sizes[axis + 1 :])})
    for name in ("OutputPresentKeyTensor", "OutputPresentValueTensor"):
        yield yes(**{name: None})
        for wrong in ((2, 2, 9, 4), (2, 3, 8, 4), (3, 2, 8, 4), (2, 2, 8, 5)):
            yield no(**{name: wrong})
    yield yes(**NO_PAST)
    now = dict.fromkeys(["OutputPresentKeyTensor", "OutputPresentValueTensor"], (2, 2, 3, 4))
    yield yes(**NO_PAST | now)
    # masks
    yield yes("", 1, MaskType="NONE", MaskTensor=None)
    yield yes("", 1, MaskType="KEY_SEQUENCE_LENGTH", MaskTensor=(1, 1, 1, 2))
    yield no("", 1, MaskType="KEY_SEQUENCE_LENGTH", MaskTensor=(1, 1, 1, 3))
    yield yes("", 1, MaskType="KEY_SEQUENCE_END_START", MaskTensor=(1, 1, 2, 2))
    yield no("", 1, MaskType="KEY_SEQUENCE_END_START", MaskTensor=(1, 1, 1, 2))
    yield yes("", 1, MaskType="KEY_QUERY_SEQUENCE_LENGTH_START_END", MaskTensor=(1, 1, 1, 8))
    yield no("", 1, MaskType="KEY_QUERY_SEQUENCE_LENGTH_START_END", MaskTensor=(1, 1, 1, 2))
    yield yes("", 1, MaskType="BOOLEAN", MaskTensor=(2, 2, 3, 3))
    for count in counts:
        yield no("", 1, **{count: 0})
        yield no("", 1, **{count: 3})
    yield yes("", 1, **dict.fromkeys(counts, 4))


# {3, 2, 1, 4} in windows of 1 by 2 is {1, 3, 4, 3}.
def folding(large, small):
    yield yes()
    for name in ("WindowSizes", "Strides", "Dilations", "StartPadding", "EndPadding"):
        yield from lists(name, length=2, good=1)
    yield no(DimensionCount=3)
    yield no(Strides=[0, 1])
    yield no(WindowSizes=[0, 2])
    for wrong in ((1, 3, 4, 4), (1, 3, 2, 3), (1, 2, 4, 3), (1, 3, 4, 2), (3, 1, 4, 3)):
        yield no(**{small: wrong})
    for wrong in ((3, 2, 1, 5), (3, 2, 2, 4), (3, 1, 1, 4), (2, 2, 1, 4)):
        yield no(**{large: wrong})
    yield yes(Strides=[1, 2], **{small: (1, 3, 4, 2)})
    yield yes(Strides=[1, 3], **{small: (1, 3, 4, 1)})
    yield yes(Dilations=[1, 2], **{small: (1, 3, 4, 2)})
    yield yes(Dilations=[5, 3], **{small: (1, 3, 4, 1)})
    yield no(Dilations=[1, 4], **{small: (1, 3, 4, 1)})
    yield yes(StartPadding=[0, 1], EndPadding=[1, 2], **{small: (1, 3, 4, 12)})
    yield no(StartPadding=[0, 1], EndPadding=[1, 2])
    yield yes(WindowSizes=[1, 4], **{small: (1, 3, 8, 1)})
    yield no(WindowSizes=[1, 5], **{small: (1, 3, 10, 1)})
    yield no(WindowSizes=[2, 2], **{small: (1, 3, 8, 3)})
    yield yes(WindowSizes=[2, 3], **{large: (1, 2, 5, 5), small: (1, 1, 12, 12)})


CASES = {
    "CONVOLUTION": [
        *CONVOLUTION,
        yes(Mode="CONVOLUTION"),
        *lists("OutputPadding", length=2, good=0),
        *(no(BiasTensor=sizes) for sizes in ((1, 1, 1, 1), (1, 2, 1, 1), (1, 3, 1, 2), (3, 1, 1, 1))),
        yes(**GROUPS, GroupCount=2, BiasTensor=(1, 4, 1, 1)),
        no(**GROUPS, GroupCount=1, BiasTensor=(1, 4, 1, 1)),
        no(FilterTensor=(3, 1, 3, 3), GroupCount=2),
        # there and back: the filter has the input's channels first
        no(Direction="BACKWARD"),
        no(Direction="BACKWARD", OutputTensor=(1, 3, 6, 6)),
        yes(Direction="BACKWARD", FilterTensor=(2, 3, 3, 3), OutputTensor=(1, 3, 6, 6)),
        no(Direction="BACKWARD", FilterTensor=(2, 3, 3, 3), OutputTensor=(1, 3, 7, 6)),
        yes(Direction="BACKWARD", FilterTensor=(2, 3, 3, 3), Strides=[2, 2], OutputTensor=(1, 3, 9, 9)),
        yes(Direction="BACKWARD", FilterTensor=(2, 3, 3, 3), Dilations=[2, 1], OutputTensor=(1, 3, 8, 6)),
        yes(Direction="BACKWARD", **GROUPS_BACK, GroupCount=2, BiasTensor=(1, 4, 1, 1)),
        no(Direction="BACKWARD", **GROUPS_BACK, GroupCount=1, BiasTensor=(1, 4, 1, 1)),
        yes(
            Direction="BACKWARD",
            FilterTensor=(2, 3, 3, 3),
            StartPadding=[1, 1],
            EndPadding=[0, 2],
            OutputTensor=(1, 3, 5, 3),
        ),
        yes(
            Direction="BACKWARD",
            FilterTensor=(2, 3, 3, 3),
            Strides=[2, 2],
            OutputPadding=[1, 0],
            OutputTensor=(1, 3, 10, 9),
        ),
        no(
            Direction="BACKWARD",
            FilterTensor=(2, 3, 3, 3),
            Strides=[2, 2],
            OutputPadding=[1, 0],
            OutputTensor=(1, 3, 9, 9),
        ),
    ],
    "CONVOLUTION_INTEGER": [
        *CONVOLUTION,
        yes(**GROUPS, GroupCount=2),
        *one_element("InputZeroPointTensor"),
        *per_channel("FilterZeroPointTensor", channels=3),
    ],
    "QUANTIZED_LINEAR_CONVOLUTION": [
        *CONVOLUTION,
        yes(**GROUPS, GroupCount=2, BiasTensor=(1, 4, 1, 1)),
        *(no(BiasTensor=sizes) for sizes in ((1, 1, 1, 1), (1, 2, 1, 1), (1, 3, 1, 2), (3, 1, 1, 1))),
        *one_element(
            "InputScaleTensor", "InputZeroPointTensor", "OutputScaleTensor", "OutputZeroPointTensor"
        ),
        *per_channel("FilterScaleTensor", "FilterZeroPointTensor", channels=3),
    ],
    "GEMM": [
        *PRODUCT,
        no(TransA="TRANSPOSE"),
        yes(TransA="TRANSPOSE", ATensor=(1, 2, 3, 2)),
        no(TransB="TRANSPOSE"),
        yes(TransB="TRANSPOSE", BTensor=(1, 2, 4, 3)),
        yes(TransA="TRANSPOSE", TransB="TRANSPOSE", ATensor=(1, 2, 3, 2), BTensor=(1, 2, 4, 3)),
        *(no(CTensor=wrong) for wrong in (*WRONG_PRODUCT, (1, 2, 1, 4), (1, 1, 1, 1))),
        yes(CTensor=None, Beta=0.0),
        yes(CTensor=None, Beta=3.0),
    ],
    "MATRIX_MULTIPLY_INTEGER": [*PRODUCT, *per_row("AZeroPointTensor"), *per_column("BZeroPointTensor")],
    "QUANTIZED_LINEAR_MATRIX_MULTIPLY": [
        *PRODUCT,
        *per_row("AScaleTensor", "AZeroPointTensor", "OutputScaleTensor", "OutputZeroPointTensor"),
        *per_column("BScaleTensor", "BZeroPointTensor"),
    ],
    "MATRIX_MULTIPLY_INTEGER_TO_FLOAT": [
        *PRODUCT,
        *per_row("AScaleTensor", "AZeroPointTensor"),
        *per_column("BScaleTensor", "BZeroPointTensor"),
        *(no(BiasTensor=wrong) for wrong in (*WRONG_PRODUCT, (1, 2, 1, 4), (1, 1, 1, 1))),
    ],
    "REDUCE": [
        *(
            Case(case.ok, case.level, case.change | {"Function": function})
            for function in ("SUM", "AVERAGE")
            for case in REDUCING
        ),
        # the tables are those of the function
        yes("1_0", Function="ARGMAX", OutputTensor=of_type("UINT32", (2, 3, 4, 1))),
        no("1_0", Function="SUM", OutputTensor=of_type("UINT32", (2, 3, 4, 1))),
        no("6_4", Function="SUM", OutputTensor=of_type("UINT32", (2, 3, 4, 1))),
        no("6_4", Function="ARGMAX", OutputTensor=of_type("FLOAT32", (2, 3, 4, 1))),
    ],
    "ARGMIN": REDUCING,
    "ARGMAX": REDUCING,
    **{name: [*pooling(name)] for name in POOLS},
    "MAX_UNPOOLING": [
        yes(),
        no(IndicesTensor=(1, 2, 2, 3)),
        no(IndicesTensor=(1, 1, 2, 2)),
        no(InputTensor=(1, 2, 4, 4)),
        yes(OutputTensor=(1, 2, 5, 3)),
    ],
    "ROI_POOLING": [
        yes(),
        no(ROITensor=(1, 1, 3, 4)),
        no(ROITensor=(1, 3, 1, 5)),
        no(ROITensor=(3, 1, 1, 5)),
        no(ROITensor=(1, 1, 2, 5)),
        yes(ROITensor=(1, 1, 7, 5), OutputTensor=(7, 2, 5, 6)),
        no(OutputTensor=(3, 1, 5, 6)),
        no(OutputTensor=(3, 2, 6, 5)),
        no(OutputTensor=(1, 2, 5, 6)),
        no(PooledSize={"Width": 5, "Height": 6}),
        yes(PooledSize={"Width": 1, "Height": 2}, OutputTensor=(3, 2, 2, 1)),
    ],
    "ROI_ALIGN": [
        *aligning("OutputTensor"),
        *(no(ROITensor=wrong) for wrong in ((1, 1, 3, 5), (1, 1, 2, 4), (1, 3, 1, 4), (3, 1, 1, 4), (3, 3))),
        yes(ROITensor=(3, 4)),
        yes(ROITensor=(1, 3, 4)),
    ],
    "ROI_ALIGN1": [
        *aligning("OutputTensor"),
        *(no(ROITensor=wrong) for wrong in ((1, 1, 3, 5), (1, 1, 2, 4), (1, 3, 1, 4), (3, 1, 1, 4), (3, 3))),
        yes(ROITensor=(3, 4)),
    ],
    "ROI_ALIGN_GRAD": [
        *aligning("InputGradientTensor"),
        no(ROITensor=(1, 1, 3, 5), OutputROIGradientTensor=(1, 1, 3, 5)),
        no(ROITensor=(1, 1, 2, 4), OutputROIGradientTensor=(1, 1, 2, 4)),
        no(OutputROIGradientTensor=(1, 1, 3, 5)),
        no(OutputROIGradientTensor=(1, 1, 4, 4)),
        no(OutputROIGradientTensor=(3, 4)),
        yes(OutputROIGradientTensor=(3, 4), ROITensor=(3, 4)),
        yes(OutputGradientTensor=None),
        yes(OutputROIGradientTensor=None),
        no(OutputGradientTensor=None, OutputROIGradientTensor=None),
        no(InputTensor=None),
        no(InputTensor=None, OutputGradientTensor=None),
        yes(InputTensor=None, OutputROIGradientTensor=None),
        no(InputTensor=None, OutputROIGradientTensor=None, ReductionFunction="MAX"),
        yes(OutputROIGradientTensor=None, ReductionFunction="MAX"),
    ],
    "SLICE": [
        # from 1 on, every third: 1 and 4 of 0 to 4
        yes(),
        *lists("Offsets", "Strides", good=1),
        *lists("Sizes", good=1),
        no(DimensionCount=5),
        no(Offsets=[0, 0, 0, 2]),
        yes(Offsets=[0, 0, 0, 0]),
        no(Offsets=[1, 0, 0, 1]),
        no(Offsets=[0, 0, 0, 2**32 - 1]),
        no(Strides=[1, 1, 1, 4]),
        yes(Strides=[1, 1, 1, 4], Offsets=[0, 0, 0, 0]),
        no(Sizes=[2, 3, 4, 3]),
        no(Sizes=[2, 3, 4, 1]),
        no(OutputTensor=(2, 3, 4, 1)),
        no(OutputTensor=(2, 3, 4, 3), Sizes=[2, 3, 4, 3]),
        yes(OutputTensor=(2, 3, 4, 3), Sizes=[2, 3, 4, 3], Strides=[1, 1, 1, 1]),
        yes(OutputTensor=(1, 1, 1, 1), Sizes=[1, 1, 1, 1], Strides=[9, 9, 9, 9], Offsets=[1, 2, 3, 4]),
        no(OutputTensor=(1, 1, 1, 1), Sizes=[1, 1, 1, 1], Strides=[9, 9, 9, 9], Offsets=[1, 2, 3, 5]),
    ],
    "SLICE1": [*windows_of_slices("InputTensor", "OutputTensor")],
    "SLICE_GRAD": [*windows_of_slices("OutputGradientTensor", "InputGradientTensor")],
    "CAST": [*alike("InputTensor", "OutputTensor")],
    "SPLIT": [
        yes(),
        no(OutputCount=1),
        no(OutputCount=3),
        no(OutputTensors=[]),
        yes(OutputTensors=[(2, 3, 4, 5)]),
        yes(OutputTensors=[(2, 3, 4, 1)] * 5),
        no(OutputTensors=[(2, 3, 4, 1)] * 4),
        no(OutputTensors=[(2, 3, 4, 2), (2, 3, 4, 4)]),
        no(OutputTensors=[(2, 3, 4, 2), (2, 3, 1, 3)]),
        no(OutputTensors=[(2, 3, 4, 2), (3, 4, 3)]),
        no(OutputTensors=[(2, 3, 4, 2), of_type("FLOAT16", (2, 3, 4, 3))]),
        no(Axis=4),
        no(Axis=0),
        yes(Axis=0, OutputTensors=[(1, 3, 4, 5), (1, 3, 4, 5)]),
    ],
    "JOIN": [
        yes(),
        no(InputCount=1),
        no(InputCount=3),
        no(InputTensors=[]),
        yes(InputTensors=[(2, 3, 4, 5)]),
        yes(InputTensors=[(2, 3, 4, 1)] * 5),
        no(InputTensors=[(2, 3, 4, 1)] * 4),
        no(InputTensors=[(2, 3, 4, 2), (2, 3, 4, 4)]),
        no(InputTensors=[(2, 3, 4, 2), (2, 3, 1, 3)]),
        no(InputTensors=[(2, 3, 4, 2), (3, 4, 3)]),
        no(InputTensors=[(2, 3, 4, 2), of_type("FLOAT16", (2, 3, 4, 3))]),
        no(Axis=4),
        no(Axis=0),
        yes(Axis=0, InputTensors=[(1, 3, 4, 5), (1, 3, 4, 5)]),
    ],
    "PADDING": [*paddings(), *twice("3_0", PaddingMode="SYMMETRIC")],
    "PADDING1": [
        *paddings(),
        yes(PaddingMode="SYMMETRIC"),
        yes(PaddingMode="SYMMETRIC", StartPadding=[0, 0, 0, 23], OutputTensor=(2, 3, 4, 30)),
        no(PaddingValueDataType="FLOAT16"),
        no(PaddingValueDataType="INT32"),
    ],
    "VALUE_SCALE_2D": [
        yes(),
        no(Bias=[1.0]),
        no(Bias=[1.0, 2.0]),
        no(Bias=[1.0] * 4),
        no(ChannelCount=1),
        yes(InputTensor=(2, 1, 4, 5), OutputTensor=(2, 1, 4, 5), Bias=[1.0]),
        no(InputTensor=(2, 1, 4, 5), OutputTensor=(2, 1, 4, 5)),
        no(InputTensor=(2, 2, 4, 5), OutputTensor=(2, 2, 4, 5), Bias=[1.0, 2.0]),
        no(InputTensor=(2, 4, 4, 5), OutputTensor=(2, 4, 4, 5), Bias=[1.0] * 4),
        no(OutputTensor=(2, 3, 4, 1)),
        no(OutputTensor=(1, 3, 4, 5)),
    ],
    "UPSAMPLE_2D": [
        yes(),
        no(ScaleSize={"Width": 2, "Height": 3}),
        no(ScaleSize={"Width": 3, "Height": 1}),
        no(ScaleSize={"Width": 0, "Height": 2}),
        no(ScaleSize={"Width": 3, "Height": 0}),
        yes(ScaleSize={"Width": 1, "Height": 1}, OutputTensor=(1, 2, 2, 3)),
        no(OutputTensor=(1, 2, 4, 8)),
        no(OutputTensor=(1, 2, 5, 9)),
        no(OutputTensor=(1, 4, 4, 9)),
        no(OutputTensor=(2, 2, 4, 9)),
    ],
    "GATHER": [
        yes(),
        no(Axis=4),
        no(Axis=2),
        yes(Axis=2, OutputTensor=(2, 3, 6, 5)),
        yes(Axis=0, OutputTensor=(6, 3, 4, 5)),
        no(OutputTensor=(2, 3, 4, 5)),
        no(OutputTensor=(2, 3, 6, 5)),
        no(IndexDimensions=5),
        no(IndexDimensions=2**32 - 1),
        yes(IndicesTensor=(1, 1, 1, 1), IndexDimensions=0, OutputTensor=(1, 2, 3, 4)),
        no(IndicesTensor=(1, 1, 1, 1), IndexDimensions=0, OutputTensor=(2, 3, 4, 1)),
        # the input's ones make room for more dimensions
        yes(
            InputTensor=(1, 1, 4, 5),
            Axis=2,
            IndicesTensor=(1, 1, 6, 7),
            IndexDimensions=2,
            OutputTensor=(1, 6, 7, 5),
        ),
        no(
            InputTensor=(1, 1, 4, 5),
            Axis=2,
            IndicesTensor=(1, 1, 6, 7),
            IndexDimensions=2,
            OutputTensor=(6, 7, 5, 1),
        ),
        yes(
            InputTensor=(1, 1, 1, 5),
            IndicesTensor=(8, 9, 6, 7),
            IndexDimensions=4,
            OutputTensor=(8, 9, 6, 7),
        ),
        no(IndicesTensor=(1, 1, 6, 7), IndexDimensions=2),
        no(IndicesTensor=(1, 1, 6, 7), IndexDimensions=2, OutputTensor=(3, 4, 6, 7)),
    ],
    "GATHER_ELEMENTS": [
        yes(),
        no(OutputTensor=(2, 3, 4, 5)),
        no(IndicesTensor=(2, 3, 4, 5)),
        yes(IndicesTensor=(2, 3, 4, 9), OutputTensor=(2, 3, 4, 9)),
        no(IndicesTensor=(2, 3, 1, 2), OutputTensor=(2, 3, 1, 2)),
        no(IndicesTensor=(1, 3, 4, 2), OutputTensor=(1, 3, 4, 2)),
        no(Axis=4),
        no(Axis=2),
        yes(Axis=2, IndicesTensor=(2, 3, 9, 5), OutputTensor=(2, 3, 9, 5)),
    ],
    "GATHER_ND": [
        *nd("OutputTensor"),
        yes(InputTensor=(1, 1, 4, 5), OutputTensor=(6, 1, 4, 5)),
        yes(InputTensor=(1, 1, 4, 5), InputDimensionCount=2, OutputTensor=(1, 1, 6, 5)),
        no(InputTensor=(1, 1, 4, 5), InputDimensionCount=2, OutputTensor=(6, 1, 4, 5)),
        yes(InputTensor=(1, 1, 4, 5), InputDimensionCount=3, OutputTensor=(1, 6, 4, 5)),
    ],
    "GATHER_ND1": [
        *nd("OutputTensor"),
        no(BatchDimensionCount=4),
        no(BatchDimensionCount=2**32 - 1),
        yes(
            BatchDimensionCount=1,
            IndicesTensor=(1, 2, 6, 1),
            IndicesDimensionCount=3,
            OutputTensor=(2, 6, 4, 5),
        ),
        no(
            BatchDimensionCount=1,
            IndicesTensor=(1, 3, 6, 1),
            IndicesDimensionCount=3,
            OutputTensor=(3, 6, 4, 5),
        ),
        no(
            BatchDimensionCount=0,
            IndicesTensor=(1, 2, 6, 1),
            IndicesDimensionCount=3,
            OutputTensor=(2, 6, 4, 5),
        ),
        yes(
            BatchDimensionCount=2,
            IndicesTensor=(2, 3, 6, 2),
            IndicesDimensionCount=4,
            OutputTensor=(1, 2, 3, 6),
        ),
        no(
            BatchDimensionCount=2,
            IndicesTensor=(2, 3, 6, 3),
            IndicesDimensionCount=4,
            OutputTensor=(1, 2, 3, 6),
        ),
        yes(
            BatchDimensionCount=3,
            IndicesTensor=(2, 3, 4, 1),
            IndicesDimensionCount=4,
            OutputTensor=(1, 2, 3, 4),
        ),
    ],
    "SCATTER_ND": [
        *nd("UpdatesTensor"),
        no(OutputTensor=(2, 3, 4, 6)),
        no(OutputTensor=(6, 3, 4, 5)),
        yes(**SCATTERED, UpdatesTensor=(6, 1, 4, 5)),
        yes(**SCATTERED, InputDimensionCount=2, UpdatesTensor=(1, 1, 6, 5)),
        no(**SCATTERED, InputDimensionCount=2, UpdatesTensor=(6, 1, 4, 5)),
    ],
    "SCATTER": [
        yes(),
        no(OutputTensor=(2, 3, 4, 2)),
        no(OutputTensor=(2, 3, 1, 5)),
        no(UpdatesTensor=(2, 3, 4, 5)),
        no(IndicesTensor=(2, 3, 4, 5)),
        yes(IndicesTensor=(2, 3, 4, 9), UpdatesTensor=(2, 3, 4, 9)),
        no(IndicesTensor=(2, 3, 1, 2), UpdatesTensor=(2, 3, 1, 2)),
        no(IndicesTensor=(1, 3, 4, 2), UpdatesTensor=(1, 3, 4, 2)),
        no(Axis=4),
        no(Axis=2),
        yes(Axis=2, IndicesTensor=(2, 3, 9, 5), UpdatesTensor=(2, 3, 9, 5)),
    ],
    "SPACE_TO_DEPTH": SPACE_TO_DEPTH,
    "SPACE_TO_DEPTH1": SPACE_TO_DEPTH,
    "DEPTH_TO_SPACE": DEPTH_TO_SPACE,
    "DEPTH_TO_SPACE1": DEPTH_TO_SPACE,
    "TILE": [
        yes(),
        *lists("Repeats", good=1),
        no(RepeatsCount=3),
        no(Repeats=[1, 1, 1, 0]),
        no(Repeats=[1, 1, 1, 2]),
        no(Repeats=[1, 1, 3, 1]),
        yes(Repeats=[1, 1, 1, 1], OutputTensor=(2, 3, 4, 5)),
        yes(Repeats=[2, 1, 2, 1], OutputTensor=(4, 3, 8, 5)),
        no(Repeats=[2, 1, 2, 1], OutputTensor=(4, 3, 4, 5)),
    ],
    "TOP_K": TOP_K,
    "TOP_K1": TOP_K,
    "BATCH_NORMALIZATION": [
        *broadcast("MeanTensor", "VarianceTensor", "ScaleTensor", "BiasTensor"),
        # once it asked for every place's mean and variance
        *twice("4_0", Spatial=False),
        no("1_0", Spatial=False),
        yes("1_0", Spatial=False, MeanTensor=(1, 3, 4, 5), VarianceTensor=(1, 3, 4, 5)),
        no("1_0", Spatial=False, MeanTensor=(1, 3, 4, 5), VarianceTensor=(1, 3, 1, 5)),
        no(OutputTensor=(2, 3, 4, 1)),
        no(OutputTensor=(1, 1, 1, 5)),
    ],
    "BATCH_NORMALIZATION_GRAD": [
        *broadcast_alike(
            "MeanTensor",
            "VarianceTensor",
            "ScaleTensor",
            "OutputScaleGradientTensor",
            "OutputBiasGradientTensor",
        ),
        no(InputGradientTensor=(2, 3, 4, 1)),
        no(OutputGradientTensor=(2, 3, 1, 5)),
        no(InputTensor=(1, 3, 4, 5)),
    ],
    "BATCH_NORMALIZATION_TRAINING": [
        *broadcast_alike("ScaleTensor", "BiasTensor", "OutputMeanTensor", "OutputVarianceTensor"),
        no(FusedAddTensor=(2, 3, 4, 1)),
        no(FusedAddTensor=(1, 1, 1, 1)),
        no(OutputTensor=(2, 3, 1, 5)),
        no(InputTensor=(1, 3, 4, 5)),
    ],
    "BATCH_NORMALIZATION_TRAINING_GRAD": [
        *broadcast_alike(
            "MeanTensor",
            "VarianceTensor",
            "ScaleTensor",
            "OutputScaleGradientTensor",
            "OutputBiasGradientTensor",
        ),
        no(InputGradientTensor=(2, 3, 4, 1)),
        no(OutputGradientTensor=(2, 3, 1, 5)),
        no(InputTensor=(1, 3, 4, 5)),
    ],
    "MEAN_VARIANCE_NORMALIZATION": [
        *broadcast("ScaleTensor", "BiasTensor"),
        yes(ScaleTensor=(1, 3, 1, 1), BiasTensor=(1, 3, 1, 1)),
        yes(ScaleTensor=None, BiasTensor=None),
        *twice("5_2", ScaleTensor=None),
        *twice("5_2", BiasTensor=None),
        no("1_0", ScaleTensor=None),
        no(OutputTensor=(2, 3, 4, 1)),
        no(OutputTensor=(1, 3, 4, 5)),
    ],
    "MEAN_VARIANCE_NORMALIZATION1": [
        *broadcast("ScaleTensor", "BiasTensor"),
        *MANY_AXES,
        yes(ScaleTensor=(1, 3, 1, 1), BiasTensor=(1, 3, 1, 1)),
        yes(ScaleTensor=(2, 3, 1, 5), BiasTensor=(1, 3, 4, 1)),
        *twice("4_0", ScaleTensor=(1, 1, 1, 1)),
        *twice("4_0", BiasTensor=(2, 1, 4, 5)),
        no("2_1", BiasTensor=(2, 1, 4, 5)),
        yes(ScaleTensor=None, BiasTensor=None),
        *twice("5_2", ScaleTensor=None),
        *twice("5_2", BiasTensor=None),
        no("2_1", ScaleTensor=None),
        no(OutputTensor=(2, 3, 4, 1)),
    ],
    "MEAN_VARIANCE_NORMALIZATION2": [
        *broadcast("ScaleTensor", "BiasTensor"),
        *MANY_AXES,
        yes(ScaleTensor=None),
        yes(BiasTensor=None),
        yes(ScaleTensor=None, BiasTensor=None),
        no(OutputTensor=(2, 3, 4, 1)),
    ],
    "LOCAL_RESPONSE_NORMALIZATION": [
        *alike("InputTensor", "OutputTensor"),
        no(LocalSize=0),
        yes(LocalSize=1),
        yes(LocalSize=4),
    ],
    "LOCAL_RESPONSE_NORMALIZATION_GRAD": [
        *alike("InputTensor", "InputGradientTensor", "OutputGradientTensor"),
        no(LocalSize=0),
        yes(LocalSize=1),
    ],
    "LP_NORMALIZATION": [*alike("InputTensor", "OutputTensor"), *ONE_AXIS, no(P=0), yes(P=1), no(P=3)],
    "RNN": [*recurrent(rnn, 1, 1)],
    "GRU": [*recurrent(gru, 3, 2)],
    "LSTM": [*recurrent(lstm, 4, 3)],
    "DIAGONAL_MATRIX": [yes(Offset=-7), yes(Offset=7), yes(OutputTensor=(2, 3, 4, 5))],
    "DIAGONAL_MATRIX1": [
        yes(DiagonalFillBegin=-7, DiagonalFillEnd=7),
        yes(DiagonalFillBegin=7, DiagonalFillEnd=-7),
        no(InputTensor=(1, 2, 2, 4)),
        no(OutputTensor=(1, 1, 2, 3)),
        no(ValueDataType="FLOAT16"),
        no(ValueDataType="INT32"),
    ],
    "ONE_HOT": [
        yes(),
        no(Axis=4),
        no(Axis=2),
        yes(Axis=2, IndicesTensor=(2, 3, 1, 5)),
        no(IndicesTensor=(2, 3, 4, 5)),
        no(IndicesTensor=(2, 3, 4, 2)),
        no(IndicesTensor=(2, 3, 1, 1)),
        no(IndicesTensor=(1, 3, 4, 1)),
        no(ValuesTensor=(1, 1, 1, 1)),
        yes(ValuesTensor=(1, 1, 2, 1)),
        yes(ValuesTensor=(2, 1, 1, 1)),
        yes(ValuesTensor=(1, 1, 1, 3)),
    ],
    "RESAMPLE": [*resampling(offsets=False), no(ScaleCount=3)],
    "RESAMPLE1": [*resampling(), no(DimensionCount=3)],
    "RESAMPLE2": [*resampling(), no(DimensionCount=3)],
    "RESAMPLE3": [*resampling(), no(DimensionCount=3)],
    "RESAMPLE_GRAD": [*resampling("InputGradientTensor"), no(DimensionCount=3)],
    "RESAMPLE_GRAD1": [*resampling("InputGradientTensor"), no(DimensionCount=3)],
    "FILL_VALUE_CONSTANT": [
        yes(),
        no(ValueDataType="FLOAT16"),
        no(ValueDataType="INT32"),
        no(OutputTensor=of_type("UINT8", (1, 1, 2, 2))),
        yes(OutputTensor=of_type("UINT8", (1, 1, 2, 2)), ValueDataType="UINT8"),
    ],
    "FILL_VALUE_SEQUENCE": [
        yes(),
        no(ValueDataType="FLOAT16"),
        no(ValueDataType="INT32"),
        no(OutputTensor=of_type("UINT8", (1, 1, 2, 2))),
        yes(OutputTensor=of_type("INT8", (1, 1, 2, 2)), ValueDataType="INT8", ValueDelta=-1),
    ],
    "CUMULATIVE_SUMMATION": [*alike("InputTensor", "OutputTensor"), *ONE_AXIS],
    "CUMULATIVE_PRODUCT": [*alike("InputTensor", "OutputTensor"), *ONE_AXIS],
    "REVERSE_SUBSEQUENCES": [
        yes(),
        no(OutputTensor=(2, 3, 4, 1)),
        no(SequenceLengthsTensor=(2, 3, 4, 5)),
        no(SequenceLengthsTensor=(2, 3, 1, 1)),
        no(SequenceLengthsTensor=(1, 3, 4, 1)),
        no(SequenceLengthsTensor=(1, 1, 1, 1)),
        no(Axis=4),
        no(Axis=2),
        yes(Axis=2, SequenceLengthsTensor=(2, 3, 1, 5)),
    ],
    "RANDOM_GENERATOR": [
        yes(),
        *(
            no(InputStateTensor=wrong, OutputStateTensor=wrong)
            for wrong in ((1, 1, 1, 5), (1, 1, 1, 7), (1, 1, 6, 1), (1, 1, 2, 3), (1, 1, 2, 6))
        ),
        no(OutputStateTensor=(1, 1, 1, 7)),
        no(OutputStateTensor=(1, 1, 6, 1)),
        yes(OutputTensor=(7, 5, 3, 1)),
        yes(OutputStateTensor=None),
    ],
    "NONZERO_COORDINATES": [
        # the coordinates of as many as there are, in as many dimensions as are not leading ones, or more
        yes(),
        yes(OutputCoordinatesTensor=(1, 1, 3, 4)),
        no(OutputCoordinatesTensor=(1, 1, 3, 5)),
        no(OutputCoordinatesTensor=(1, 1, 2, 1)),
        no(OutputCoordinatesTensor=(1, 1, 4, 1)),
        no(OutputCoordinatesTensor=(1, 3, 1, 1)),
        no(OutputCoordinatesTensor=(3, 1, 3, 1)),
        yes(InputTensor=(1, 3, 4, 5), OutputCoordinatesTensor=(1, 1, 60, 3)),
        no(InputTensor=(1, 3, 4, 5), OutputCoordinatesTensor=(1, 1, 60, 2)),
        yes(InputTensor=(1, 3, 4, 5), OutputCoordinatesTensor=(1, 1, 60, 4)),
        no(InputTensor=(2, 1, 1, 1), OutputCoordinatesTensor=(1, 1, 2, 1)),
        yes(InputTensor=(2, 1, 1, 1), OutputCoordinatesTensor=(1, 1, 2, 4)),
        *one_element("OutputCountTensor"),
    ],
    "ADAM_OPTIMIZER": [
        *alike(
            "InputParametersTensor",
            "InputFirstMomentTensor",
            "InputSecondMomentTensor",
            "GradientTensor",
            "OutputParametersTensor",
            "OutputFirstMomentTensor",
            "OutputSecondMomentTensor",
        ),
        *one_element("TrainingStepTensor"),
    ],
    "DYNAMIC_QUANTIZE_LINEAR": [
        *alike("InputTensor", "OutputTensor"),
        *one_element("OutputScaleTensor", "OutputZeroPointTensor"),
    ],
    "QUANTIZE": [
        *alike("InputTensor", "OutputTensor"),
        yes(QuantizationTensors=[(2, 3, 4, 5), (2, 3, 4, 5)]),
        no(QuantizationTensors=[(1, 1, 1, 1)]),
        yes(QuantizationTensors=[(1, 1, 1, 1)], QuantizationType="SCALE"),
        no(QuantizationType="SCALE"),
        no(QuantizationTensors=[(1, 1, 1, 1)] * 3),
        no(QuantizationTensors=[], QuantizationType="SCALE"),
        no(QuantizationTensors=[(2, 3, 4, 10), (2, 3, 4, 10)]),
    ],
    "DEQUANTIZE": [
        *alike("InputTensor", "OutputTensor"),
        yes(QuantizationTensors=[(2, 3, 4, 5), (2, 3, 4, 5)]),
        no(QuantizationTensors=[(1, 1, 1, 1)]),
        yes(QuantizationTensors=[(1, 1, 1, 1)], QuantizationType="SCALE"),
        no(QuantizationType="SCALE"),
        no(QuantizationTensors=[(1, 1, 1, 1)] * 3),
        no(QuantizationTensors=[], QuantizationType="SCALE"),
        no(QuantizationTensors=[(2, 3, 4, 10), (2, 3, 4, 10)]),
    ],
    "FOLD": [*folding("OutputTensor", "InputTensor")],
    "UNFOLD": [*folding("InputTensor", "OutputTensor")],
    "MULTIHEAD_ATTENTION": [*attention("HeadCount")],
    "MULTIHEAD_ATTENTION1": [*attention("QueryHeadCount", "KeyValueHeadCount")],
}

CASES["QUANTIZED_LINEAR_AVERAGE_POOLING"] += per_channel(
    "InputScaleTensor", "InputZeroPointTensor", "OutputScaleTensor", "OutputZeroPointTensor", channels=2
)


def test_there_are_cases_of_all_operators_that_are_right_and_that_are_wrong():
    assert CASES.keys() == TENSOR_FACTS.keys()
    for name, cases in CASES.items():
        assert any(case.ok for case in cases), name
        assert name == "DIAGONAL_MATRIX" or not all(case.ok for case in cases), name


@every_operator
def test_fields_go_together(facts):
    wrong = []
    for case in CASES[facts.name]:
        for level in [case.level] if case.level else facts.ends:
            ranks, types = facts.ranks(level), facts.types(level)
            change = {name: value for name, value in case.change.items() if value is not None}
            gone = case.change.keys() - change.keys()
            fields = without_fields(drafts(facts, ranks, types)[case.variant] | change, *gone)
            desc = described(facts, types, fields)
            if takes(level, desc) is not case.ok:
                wrong.append((case, level, *reason(level, desc)[2]))
    assert not wrong, "\n".join(map(str, wrong))


def test_scatter_has_two_names():
    desc = plain(TENSOR_FACTS["SCATTER"], "6_4")
    for name in ("SCATTER", "SCATTER_ELEMENTS", "DML_OPERATOR_SCATTER_ELEMENTS"):
        assert takes("6_4", desc | {"Type": name}), name


# ---- whatever is said --------------------------------------------------------------------------------

ODD = [
    None,
    True,
    False,
    0,
    1,
    -1,
    7,
    2**31,
    2**32,
    2**63,
    2**64,
    -(2**63) - 1,
    0.5,
    NAN,
    float("inf"),
    "",
    "NONE",
]
ODD += [
    "1",
    "FLOAT32",
    "REFLECTION",
    b"1",
    (),
    [],
    [0],
    [1, 2],
    [-1],
    [None],
    [[1]],
    [0] * 9,
    [NAN],
    {},
    object(),
]
ODD += [
    {"Width": 0, "Height": 0},
    {"Type": "GEMM", "Desc": {}},
    {"DataType": "UINT4", "Sizes": [1]},
    [{}],
    {1: 2},
]


def is_sizes(value):
    return isinstance(value, list) and all(type(size) is int for size in value)


def mutated(random, facts, desc):
    """With one to three odd things in it."""
    fields = dict(desc["Desc"])
    for _ in range(random.choice([1, 1, 2, 3])):
        name = random.choice([*fields, *(t.name for t in facts.tensors if t.name in fields)])
        tensors = fields[name] if isinstance(fields[name], list) else [fields[name]]
        is_tensor = tensors and all(isinstance(t, dict) and is_sizes(t.get("Sizes")) for t in tensors)
        kind = random.choice(["drop", "odd", "odd", "inner", "inner", "inner"])
        if kind == "drop":
            del fields[name]
        elif kind == "odd" or not (is_tensor or isinstance(fields[name], list)):
            fields[name] = random.choice(ODD)
        elif is_tensor:
            k = random.randrange(len(tensors))
            sizes = tensors[k]["Sizes"]
            change = random.choice(
                [
                    {"Sizes": [random.choice([1, 1, 2, 3, 7, 2**31, 0]) for _ in sizes]},
                    {"Sizes": [1] * random.randrange(10)},
                    {"Sizes": [*sizes[1:], *sizes[:1]]},
                    {"Sizes": [s + (random.random() < 0.3) for s in sizes]},
                    {"Sizes": sizes[1:]},
                    {"Sizes": random.choice(ODD)},
                    {"DataType": random.choice([*DATA_TYPES, *ODD])},
                    {"Strides": random.choice([[0] * len(sizes), [1] * len(sizes), *ODD])},
                    {"Flags": random.choice(["OWNED_BY_DML", *ODD])},
                    {"TotalTensorSizeInBytes": random.choice(ODD)},
                ]
            )
            tensors = [*tensors[:k], tensors[k] | change, *tensors[k + 1 :]]
            fields[name] = tensors if isinstance(fields[name], list) else tensors[0]
        else:
            values = [random.choice([v, v, 0, 1, 2, 9, -1, 2**32 - 1, *ODD[:12]]) for v in fields[name]]
            fields[name] = random.choice([values, values, values[1:], values * 2])
        if not fields:
            break
    return desc | {"Desc": fields}


@every_operator
def test_no_description_is_too_odd_to_be_checked(facts):
    chance = random.Random(facts.name)
    valid = [
        (level, plain(facts, level, k))
        for level in facts.edges
        for k in range(len(drafts(facts, facts.ranks(level), facts.types(level))))
    ]
    for _ in range(200):
        level, desc = chance.choice(valid)
        odd = mutated(chance, facts, desc)
        problems = dml.validate(odd, feature_level=dml.FeatureLevel[f"FL_{level}"])
        assert all(str(problem) for problem in problems)
