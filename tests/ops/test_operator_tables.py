"""What each level allows of all element-wise operators and activations, against operator_tables.txt."""

import json
from itertools import product

import pytest
from operator_tables import (
    AT_MOST_TWO_DIMENSIONS,
    DATA_TYPES,
    FACTS,
    LEVELS,
    PARAGRAPHS,
    RANKS,
    desc_of,
    plain,
    reaches,
    sizes_of,
    takes,
    tensor,
    value_of,
    without,
)

import anydml as dml
from anydml.ops.catalog import ELEMENT_WISE

NAN = float("nan")

every_operator = pytest.mark.parametrize("facts", FACTS.values(), ids=FACTS)


def those(condition):
    """The operators of which a thing is true, as parameters."""
    chosen = {name: facts for name, facts in FACTS.items() if condition(facts)}
    assert chosen
    return pytest.mark.parametrize("facts", chosen.values(), ids=chosen)


# ---- tensors -----------------------------------------------------------------------------------------


def test_the_catalog_has_the_operators_of_the_tables():
    assert len(FACTS) == len(PARAGRAPHS)
    names = [operator.name for operator in ELEMENT_WISE]
    assert sorted(names) == sorted({*FACTS, "CAST"})  # its table is among the others


@every_operator
def test_the_catalog_has_the_tables_tensors_and_works_in_place_as_they_say(facts):
    (operator,) = [operator for operator in ELEMENT_WISE if operator.name == facts.name]
    assert [operand.name for operand in operator.inputs] == [t.name for t in facts.inputs]
    assert [operand.name for operand in operator.outputs] == [t.name for t in facts.outputs]
    assert operator.in_place == facts.in_place


@every_operator
def test_an_operator_exists_from_its_level_on(facts):
    desc = plain(facts, facts.introduced)
    for level in LEVELS:
        device = dml.Device(level)
        assert takes(level, desc) is reaches(level, facts.introduced), level
        if reaches(level, facts.introduced):
            device.create_operator(desc)
        else:
            with pytest.raises(dml.InvalidOperator):
                device.create_operator(desc)


@every_operator
def test_an_operator_takes_dictionaries(facts):
    sizes, types = sizes_of(facts, 4), facts.legal("6_4")[0]
    fields = {
        t.name: {"DataType": types[t.type_variable], "Sizes": [1] * 4 if t.single else list(sizes)}
        for t in facts.tensors
    }
    desc = json.loads(json.dumps(desc_of(facts, 4, types, **fields)))
    assert takes("6_4", desc)
    name = facts.tensors[0].name
    desc["Desc"][name] |= {"DataType": "UNKNOWN"}
    assert not takes("6_4", desc)


@every_operator
def test_an_operator_takes_exactly_its_ranks_and_types(facts):
    """All ranks by all types where a table begins; its edges at the levels where it goes on."""
    for level in facts.levels:
        table, first = facts.table(level), facts.legal(level)[0]
        begins = level in facts.tables
        edges = {table.ranks[0] - 1, table.ranks[0], table.ranks[-1], table.ranks[-1] + 1}
        for type_variable in facts.type_variables:
            tried = (
                DATA_TYPES if begins else [*table.types[type_variable], facts.outside(level, type_variable)]
            )
            for data_type in tried:
                types = first | {type_variable: data_type}
                for rank in (
                    RANKS if begins else edges if data_type == first[type_variable] else table.ranks[:1]
                ):
                    wanted = facts.takes(level, rank, types)
                    assert takes(level, desc_of(facts, rank, types)) is wanted, (level, rank, types)


@those(lambda facts: len(facts.type_variables) > 1)
def test_types_that_are_not_tied_combine_freely(facts):
    for level in facts.levels:
        table = facts.table(level)
        tried = [
            [*table.types[type_variable], facts.outside(level, type_variable)]
            for type_variable in facts.type_variables
        ]
        if level in facts.tables and len(facts.type_variables) == 2:
            tried = [DATA_TYPES] * 2
        for row in product(*tried):
            types = dict(zip(facts.type_variables, row, strict=True))
            wanted = facts.takes(level, table.ranks[0], types)
            assert takes(level, desc_of(facts, table.ranks[0], types)) is wanted, (level, types)


@every_operator
def test_tensors_of_one_letter_have_one_type(facts):
    tied = [
        t for t in facts.tensors if sum(t.type_variable == other.type_variable for other in facts.tensors) > 1
    ]
    for level in facts.levels:
        table, legal = facts.table(level), facts.legal(level)
        rank = table.ranks[0]
        for types in (legal[0], legal[-1]) if level in facts.tables else legal[:1]:
            assert takes(level, desc_of(facts, rank, types)), (level, types)
            for one in tied:
                allowed = (
                    table.types[one.type_variable]
                    if level in facts.tables
                    else table.types[one.type_variable][-1:]
                )
                others = {*allowed, facts.outside(level, one.type_variable)} - {types[one.type_variable]}
                for data_type in sorted(others):
                    sizes = (1,) * rank if one.single else sizes_of(facts, rank)
                    desc = desc_of(facts, rank, types, **{one.name: tensor(data_type, sizes)})
                    assert not takes(level, desc), (level, types, one.name, data_type)


@every_operator
def test_tensors_have_equal_sizes(facts):
    """A size of 1 is not broadcast, and a leading 1 is a dimension. Single elements are checked alike."""
    has_singles = any(t.single for t in facts.tensors)
    for level in facts.levels:
        table, types = facts.table(level), facts.legal(level)[0]
        ranks = {table.ranks[0], 4, table.ranks[-1]} if level in facts.tables else {4}
        for rank in ranks:
            ones = (1,) * rank
            sizes = (*ones[2:], 2, 3)[-rank:]
            for equal in (sizes, ones):
                assert takes(level, desc_of(facts, rank, types, sizes=equal)), (level, equal)
            for one in facts.tensors:
                own = ones if one.single else sizes
                wrong = [(1, *own), (*own, 1), own[1:]]
                if one.single:
                    wrong += [(*own[1:], 2), (2, *own[1:])]
                elif not has_singles:
                    wrong += [(*own[:-1], 1), (own[0] + 1, *own[1:]), (*ones[2:], 3, 2), (2,) * rank]
                for other in wrong:
                    fields = {one.name: tensor(types[one.type_variable], other)}
                    assert not takes(level, desc_of(facts, rank, types, sizes=sizes, **fields)), (
                        level,
                        fields,
                    )


@every_operator
def test_only_optional_tensors_may_be_missing(facts):
    for level in facts.levels:
        optional = {t.name for t in facts.tensors if t.optional_from and reaches(level, t.optional_from)}
        for t in facts.tensors:
            for desc in (without(plain(facts, level), t.name), plain(facts, level, **{t.name: None})):
                assert takes(level, desc) is (t.name in optional), (level, t.name)


@those(lambda facts: any(t.optional_from for t in facts.tensors))
def test_all_that_is_optional_may_be_missing_together(facts):
    """And what remains is tied as before."""
    optional = [t for t in facts.tensors if t.optional_from]
    for level in facts.levels:
        rank = facts.table(level).ranks[0]
        for types in facts.legal(level):
            for kept in product([True, False], repeat=len(optional)):
                gone = [t for t, keep in zip(optional, kept, strict=True) if not keep]
                desc = desc_of(facts, rank, types, **{t.name: None for t in gone})
                wanted = all(reaches(level, t.optional_from) for t in gone)
                assert takes(level, desc) is wanted, (level, types, gone)
        names = {t.name: None for t in optional}
        for type_variable in facts.type_variables:
            types = facts.legal(level)[0] | {type_variable: facts.outside(level, type_variable)}
            assert not takes(level, desc_of(facts, rank, types, **names)), (level, types)


@those(lambda facts: facts.name in AT_MOST_TWO_DIMENSIONS)
def test_the_old_softmax_family_takes_two_dimensions_behind_leading_ones(facts):
    for level in facts.levels:
        types = facts.legal(level)[0]
        for rank in facts.table(level).ranks if level in facts.tables else ():
            for first, second in product(range(rank), repeat=2):
                sizes = tuple(3 if k in (first, second) else 1 for k in range(rank))
                desc = desc_of(facts, rank, types, sizes=sizes)
                assert takes(level, desc) is (min(first, second) >= rank - 2), (level, sizes)
        assert takes(level, desc_of(facts, 4, types, sizes=(1, 1, 5, 1)))
        for sizes in ((1, 2, 1, 1), (1, 2, 3, 4), (2, 2, 2, 2), (2, 1, 1, 1)):
            assert not takes(level, desc_of(facts, 4, types, sizes=sizes)), (level, sizes)


# ---- attributes --------------------------------------------------------------------------------------

ALL_ATTRIBUTES = {name: kind for facts in FACTS.values() for name, kind in facts.attributes.items()}
ALL_TENSORS = {t.name for facts in FACTS.values() for t in facts.tensors}
WRONG = {  # none of these is a value of its kind
    "float": ["one", [1.0], {}, {"Float32": 1.0}],
    "scalar": ["one", [1], [], {}],
    "tensor_data_type": ["NONSENSE", "UNKNOWN", "UINT4", "", NAN, [], {}],
    "rounding_mode": ["NONSENSE", "EITHER", "", -1, 3, NAN, [], {}],
    "is_infinity_mode": ["NONSENSE", "TOWARD_ZERO", "", -1, 3, NAN, [], {}],
    "scale_bias optional": [
        "one",
        2.0,
        [2.0, 1.0],
        {"Scale": "two", "Bias": 1.0},
        {"Scale": 2.0, "Bias": [1.0]},
        {"Scale": 2.0, "Bias": 1.0, "Shift": 1.0},
    ],
    "activation optional": [1, [], "NONSENSE", {"Desc": {}}, {"Type": "NONSENSE", "Desc": {}}],
    "axes": ["zero", 0, {}, ["zero"], [0.5], [NAN], [[0]], [-1], [0, 0]],
    "count optional": ["one", [1], 0, 2, -1, 1.5, NAN],
}


@those(lambda facts: facts.attributes)
def test_a_field_must_be_there_unless_it_is_optional(facts):
    for level in facts.levels:
        for name, kind in facts.attributes.items():
            desc = plain(facts, level, **{name: value_of(kind, facts.legal(level)[0])})
            assert takes(level, desc), (level, name)
            wanted = "optional" in kind
            assert takes(level, without(desc, name)) is wanted, (level, name)
            assert takes(level, plain(facts, level, **{name: None})) is wanted, (level, name)


@those(lambda facts: facts.attributes)
def test_a_field_takes_only_values_of_its_kind(facts):
    for level in (facts.introduced, "6_4"):
        assert takes(level, plain(facts, level)), level
        for name, kind in facts.attributes.items():
            for value in WRONG[kind]:
                assert not takes(level, plain(facts, level, **{name: value})), (level, name, value)


@every_operator
def test_a_field_of_another_operator_is_unknown(facts):
    types = facts.legal("6_4")[0]
    strange = {name: value_of(kind, types) for name, kind in ALL_ATTRIBUTES.items()}
    strange |= dict.fromkeys(ALL_TENSORS, tensor(types[facts.type_variables[0]], sizes_of(facts, 4)))
    strange |= {"Nonsense": 1.0, "": 1.0}
    own = {t.name for t in facts.tensors} | set(facts.attributes)
    assert takes("6_4", desc_of(facts, 4, types))
    for name in strange.keys() - own:
        desc = desc_of(facts, 4, types, **{name: strange[name]})
        assert not takes("6_4", desc), name


@those(lambda facts: "float" in facts.attributes.values())
def test_a_float_is_any_number(facts):
    for level in (facts.introduced, "6_4"):
        for name in (name for name, kind in facts.attributes.items() if kind == "float"):
            for value in (1, 1.0, 2.5, 3.0e10):
                assert takes(level, plain(facts, level, **{name: value})), (level, name, value)


@pytest.mark.parametrize(
    ("name", "field", "values"),
    [
        ("ELEMENT_WISE_ROUND", "RoundingMode", ["HALVES_TO_NEAREST_EVEN", "TOWARD_ZERO", "TOWARD_INFINITY"]),
        ("ELEMENT_WISE_IS_INFINITY", "InfinityMode", ["EITHER", "POSITIVE", "NEGATIVE"]),
    ],
)
def test_a_mode_takes_all_its_names(name, field, values):
    for level in FACTS[name].levels:
        for value in values:
            assert takes(level, plain(FACTS[name], level, **{field: value})), (level, value)


@those(lambda facts: "Axes" in facts.attributes)
def test_axes_are_within_the_rank_and_differ(facts):
    types = facts.legal("6_4")[0]
    for level in facts.levels:
        for rank in facts.table(level).ranks:
            for axis in range(rank + 2):
                desc = desc_of(facts, rank, types, Axes=[axis])
                assert takes(level, desc) is (axis < rank), (level, rank, axis)
            axes = list(range(rank))
            for count in (None, rank):
                assert takes(level, desc_of(facts, rank, types, Axes=axes, AxisCount=count)), (level, rank)
            for wrong in ([*axes, 0], [*axes, rank], [rank - 1, rank - 1], [2**32 - 1], [-1], [0, -rank]):
                assert not takes(level, desc_of(facts, rank, types, Axes=wrong)), (level, rank, wrong)
                desc = desc_of(facts, rank, types, Axes=wrong, AxisCount=len(wrong))
                assert not takes(level, desc), (level, rank, wrong)
            for count in (0, rank - 1, rank + 1):
                desc = desc_of(facts, rank, types, Axes=axes, AxisCount=count)
                assert not takes(level, desc), (level, rank, count)


@those(lambda facts: "MinMaxDataType" in facts.attributes)
def test_min_and_max_have_the_outputs_type(facts):
    for level in facts.levels:
        for types in facts.legal(level):
            for data_type in DATA_TYPES:
                desc = desc_of(facts, 4, types, MinMaxDataType=data_type)
                assert takes(level, desc) is (data_type == types["T"]), (level, types, data_type)


@those(lambda facts: "MinMaxDataType" in facts.attributes)
def test_min_and_max_take_the_ends_of_their_type(facts):
    for bits in (8, 16, 32, 64):
        for data_type, low in ((f"INT{bits}", -(2 ** (bits - 1))), (f"UINT{bits}", 0)):
            fields = {"Min": low, "Max": low + 2**bits - 1}
            assert takes("5_0", desc_of(facts, 4, {"T": data_type}, **fields)), data_type
            for name in fields:
                assert not takes("5_0", desc_of(facts, 4, {"T": data_type}, **{name: NAN})), data_type
    for data_type in ("FLOAT32", "FLOAT16"):
        assert takes("5_0", desc_of(facts, 4, {"T": data_type}, Min=-1.5, Max=2.5)), data_type


@those(lambda facts: {"Min", "Max"} <= facts.attributes.keys())
def test_no_document_forbids_a_min_above_max(facts):
    for level in facts.levels:
        assert takes(level, plain(facts, level, Min=2, Max=1)), level


def test_softplus_is_steep_before_6_4_and_never_flat():
    facts = FACTS["ACTIVATION_SOFTPLUS"]
    for level in facts.levels:
        for steepness in (0, 0.0, 0.25, 0.999, 1, 1.0, 8.5):
            wanted = steepness >= 1 or (steepness > 0 and reaches(level, "6_4"))
            desc = plain(facts, level, Steepness=steepness)
            assert takes(level, desc) is wanted, (level, steepness)
        if not reaches(level, "6_4"):
            assert not takes(level, plain(facts, level, Steepness=-2.0)), level


# ---- fused activations -------------------------------------------------------------------------------

FUSED = """
    LINEAR SIGMOID HARD_SIGMOID TANH SCALED_TANH RELU LEAKY_RELU THRESHOLDED_RELU ELU CELU SCALED_ELU
    SOFTPLUS PARAMETRIC_SOFTPLUS SOFTSIGN IDENTITY SHRINK GELU
"""
FUSIBLE = {f"ACTIVATION_{name}" for name in FUSED.split()}
ADD1 = FACTS["ELEMENT_WISE_ADD1"]


def fused(facts, **fields):
    own = {name: value_of(kind, {"T": "FLOAT32"}) for name, kind in facts.attributes.items()}
    return {"Type": facts.name, "Desc": own | fields}


@every_operator
def test_exactly_seventeen_activations_fuse_from_their_own_level_on(facts):
    assert len(FUSIBLE) == 17
    for level in ADD1.levels:
        assert takes(level, plain(ADD1, level)), level
        wanted = facts.name in FUSIBLE and reaches(level, facts.introduced)
        for types in ADD1.legal(level):
            for own in ({}, {t.name: None for t in facts.tensors}):
                desc = desc_of(ADD1, 4, types, FusedActivation=fused(facts, **own))
                assert takes(level, desc) is wanted, (level, types, own)


@those(lambda facts: facts.name in FUSIBLE)
def test_a_fused_activation_has_its_attributes_and_no_tensors(facts):
    bad = [fused(facts, **{t.name: tensor("FLOAT32", (2,) * 4)}) for t in facts.tensors]
    bad += [without(fused(facts), name) for name in facts.attributes]
    bad += [fused(facts, **{name: "one"}) for name in facts.attributes]
    bad += [fused(facts, Nonsense=1.0), fused(facts, FusedActivation=fused(facts))]
    assert takes("6_4", plain(ADD1, "6_4", FusedActivation=fused(facts)))
    for activation in bad:
        assert not takes("6_4", plain(ADD1, "6_4", FusedActivation=activation)), activation


def test_a_fused_softplus_keeps_its_rule():
    for level in ADD1.levels:
        for steepness in (0, 0.5, 1.0):
            wanted = steepness >= 1 or (steepness > 0 and reaches(level, "6_4"))
            activation = fused(FACTS["ACTIVATION_SOFTPLUS"], Steepness=steepness)
            assert takes(level, plain(ADD1, level, FusedActivation=activation)) is wanted, (level, steepness)
