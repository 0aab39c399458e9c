"""Reads operator_tables.txt, and makes descriptions of the operators there: what the tests here share."""

from dataclasses import dataclass
from functools import cache, cached_property
from itertools import product
from pathlib import Path

import anydml as dml

LEVELS = "1_0 2_0 2_1 3_0 3_1 4_0 4_1 5_0 5_1 5_2 6_0 6_1 6_2 6_3 6_4".split()
DATA_TYPES = (
    "UNKNOWN FLOAT32 FLOAT16 UINT32 UINT16 UINT8 INT32 INT16 INT8 FLOAT64 UINT64 INT64 UINT4 INT4".split()
)
TYPE_SETS = {
    "FLOATS": ["FLOAT32", "FLOAT16"],
    "SIGNED": ["INT32", "INT16", "INT8"],
    "UNSIGNED": ["UINT32", "UINT16", "UINT8"],
}
RANKS = range(10)  # a rank of 0 or 9 is none of DirectML's

# ---- the tables --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tensor:
    name: str
    type_variable: str
    single: bool
    optional_from: str | None


@dataclass(frozen=True)
class Table:
    ranks: range
    types: dict[str, list[str]]


@dataclass(frozen=True)
class Facts:
    name: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    attributes: dict[str, str]
    in_place: tuple[str, ...]
    tables: dict[str, Table]

    def __repr__(self):
        return self.name

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

    @cached_property
    def type_variables(self):
        return list(dict.fromkeys(t.type_variable for t in self.tensors))

    def table(self, level):
        reached = [name for name in self.tables if reaches(level, name)]
        return self.tables[reached[-1]] if reached else None

    def takes(self, level, rank, types):
        """Whether the documents allow tensors of this rank, with these types behind the type variables."""
        table = self.table(level)
        if table is None or rank not in table.ranks:
            return False
        if any(
            types[type_variable] not in table.types[type_variable] for type_variable in self.type_variables
        ):
            return False
        if self.name == "ELEMENT_WISE_POW":
            return types["E"] == types["T"] or reaches(level, "3_0")
        if self.name == "ELEMENT_WISE_QUANTIZE_LINEAR":
            return types["S"] == ("FLOAT32" if types["T"] == "INT32" else types["T"])
        return True

    def outside(self, level, type_variable):
        """A type that the type variable cannot have."""
        allowed = self.table(level).types[type_variable]
        return next(t for t in DATA_TYPES[1:] if t not in allowed)

    def legal(self, level):
        """All the types that its type variables can have together."""
        table = self.table(level)
        rows = product(*(table.types[type_variable] for type_variable in self.type_variables))
        rows = [dict(zip(self.type_variables, row, strict=True)) for row in rows]
        return [types for types in rows if self.takes(level, table.ranks[0], types)]


def reaches(level, other):
    return LEVELS.index(level) >= LEVELS.index(other)


def read_tensor(text, introduced):
    name, type_variable, *rest = text.split()
    optional = rest[rest.index("optional") + 1 :] or [introduced] if "optional" in rest else [None]
    return Tensor(name, type_variable, "single" in rest, optional[0])


def read_table(ranks, types):
    low, _, high = ranks.partition("..")
    rows = [row.split() for row in types.split(", ")]
    behind = {
        type_variable: [t for n in names for t in TYPE_SETS.get(n, [n])] for type_variable, *names in rows
    }
    return Table(range(int(low), int(high or low) + 1), behind)


def read_facts(paragraph):
    name, tensors, *lines = [line.strip() for line in paragraph.splitlines()]
    tables, attributes, in_place = {}, {}, None
    for line in lines:
        if line.startswith("attributes: "):
            attributes = dict(a.split(" ", 1) for a in line.removeprefix("attributes: ").split(", "))
        elif line.startswith("in place: "):
            names = line.removeprefix("in place: ")
            in_place = () if names == "none" else tuple(names.split(", "))
        else:
            level, opcode, ranks, types = line.split(maxsplit=3)
            assert opcode == "rank", line
            tables[level] = read_table(ranks, types)
    introduced = next(iter(tables))
    sides = [side.split(", ") for side in tensors.split(" -> ")]
    inputs, outputs = (tuple(read_tensor(text, introduced) for text in side) for side in sides)
    return Facts(name, inputs, outputs, attributes, in_place, tables)


_, *PARAGRAPHS = Path(__file__).with_name("operator_tables.txt").read_text().split("\n\n")
FACTS = {facts.name: facts for facts in map(read_facts, PARAGRAPHS)}


# ---- descriptions ------------------------------------------------------------------------------------

AT_MOST_TWO_DIMENSIONS = {"ACTIVATION_HARDMAX", "ACTIVATION_LOG_SOFTMAX", "ACTIVATION_SOFTMAX"}


@cache
def tensor(data_type, sizes):
    return dml.TensorDesc(data_type, sizes)


def sizes_of(facts, rank):
    if facts.name in AT_MOST_TWO_DIMENSIONS:
        return (1,) * (rank - 2) + (2,) * min(rank, 2)
    return (2,) * rank


def value_of(kind, types):
    """An attribute's value that breaks no rule."""
    return {
        "float": 1.0,
        "scalar": 1,
        "tensor_data_type": next(iter(types.values())),
        "rounding_mode": "TOWARD_ZERO",
        "is_infinity_mode": "NEGATIVE",
        "scale_bias optional": {"Scale": 2.0, "Bias": 1.0},
        "activation optional": {"Type": "ACTIVATION_RELU", "Desc": {}},
        "axes": [0],
        "count optional": 1,
    }[kind]


def desc_of(facts, rank, types, *, sizes=None, **fields):
    sizes = sizes_of(facts, rank) if sizes is None else sizes
    ones = (1,) * len(sizes)
    desc = {t.name: tensor(types[t.type_variable], ones if t.single else sizes) for t in facts.tensors}
    desc |= {name: value_of(kind, types) for name, kind in facts.attributes.items() if "optional" not in kind}
    return {"Type": facts.name, "Desc": desc | fields}


def plain(facts, level, **fields):
    """Some description that the level takes, with these fields set."""
    return desc_of(facts, facts.table(level).ranks[0], facts.legal(level)[0], **fields)


def without(desc, name):
    return desc | {"Desc": {field: value for field, value in desc["Desc"].items() if field != name}}


def takes(level, desc):
    return not dml.validate(desc, feature_level=dml.FeatureLevel[f"FL_{level}"])
