"""Random descriptions of all operators: valid ones, ones near the rules' edges, and broken ones.

A valid one begins with a plain one of the tables and is changed field by field, many times; its outputs get the
sizes that the definition gives them. What a description breaks by that is not known here: `validate` tells.
"""

import copy
import math

import anydml as dml
from anydml.directml.descriptions import read_desc
from anydml.ops.attributes import ActivationKind, EnumKind
from anydml.ops.call import described as as_call
from anydml.ops.call import field
from anydml.ops.catalog import BY_NAME
from anydml.ops.enums import FeatureLevel
from tests.ops import operator_tables
from tests.ops.operator_tables import DATA_TYPES, FACTS
from tests.ops.tensor_descs import TENSOR_FACTS, Impossible, described, drafts

NEWEST = FeatureLevel.newest()
ALL = {**FACTS, **TENSOR_FACTS}
NUMBERS = [0, 1, 1, 2, 2, 3, 4, 5, 7, 16, 65, -1, -2]
BEYOND = [2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63, 2**64, -(2**31), -(2**63), 10**30]
FLOATS = [0.0, -0.0, 0.5, 1.0, 2.0, -1.5, 0.25, 3.0, 1e-5, 1e30, 1e-40, math.inf, -math.inf, math.nan]
ACTIVATIONS = [n.removeprefix("ACTIVATION_") for n in BY_NAME if n.startswith("ACTIVATION_")]
JUNK = [
    None,
    True,
    "",
    "FLOAT32",
    "nan",
    [],
    {},
    [1],
    [None],
    ["x"],
    [[1]],
    {"Type": 1},
    1.5,
    b"\1",
    {1},
    object(),
]
JUNK += BEYOND


def start(name, rng):
    """A plain valid description of random types and ranks."""
    facts = ALL[name]
    if name in FACTS:
        level = rng.choice(facts.levels)
        sizes = tuple(rng.choice([1, 2, 3, 5]) for _ in range(rng.choice(facts.table(level).ranks)))
        if name in operator_tables.AT_MOST_TWO_DIMENSIONS:
            sizes = (1,) * (len(sizes) - 2) + sizes[-2:]
        desc = operator_tables.desc_of(facts, len(sizes), rng.choice(facts.legal(level)), sizes=sizes)
        return {**desc, "Desc": {n: _plain(v) for n, v in desc["Desc"].items()}}
    table = facts.table("6_4")
    while True:
        types = {letter: rng.choice(allowed) for letter, allowed in table.types.items()}
        ranks = {part: rng.choice(list(span)) for part, span in table.ranks.items()}
        try:
            fields = rng.choice(drafts(facts, ranks, types))
        except Impossible:
            continue
        return copy.deepcopy(described(facts, types, fields))


def _plain(value):
    """A tensor as a dictionary, which can be changed."""
    if isinstance(value, dml.TensorDesc):
        return {"DataType": value.data_type.name, "Sizes": list(value.sizes)}
    return value


# ---- changes that may break a rule, or may not -------------------------------------------------------------


def tensors_of(desc):
    """All tensors, as dictionaries."""
    found = []
    for value in desc["Desc"].values():
        found += [v for v in (value if isinstance(value, list) else [value]) if is_tensor(v)]
    return found


def is_tensor(value):
    return isinstance(value, dict) and "Sizes" in value


def _size_everywhere(desc, rng):
    """One size becomes another one in all tensors, so that ties between them may hold."""
    sizes = sorted({n for t in tensors_of(desc) for n in t["Sizes"]})
    if not sizes:
        return
    old, new = rng.choice(sizes), rng.choice([1, 2, 3, 4, 6, 8, 9, 17])
    for t in tensors_of(desc):
        t["Sizes"] = [new if n == old else n for n in t["Sizes"]]


def _one_size(desc, rng):
    tensors = tensors_of(desc)
    if tensors:
        t = rng.choice(tensors)
        t["Sizes"][rng.randrange(len(t["Sizes"]))] = rng.choice([1, 1, 2, 3, 4, 6, 8, 0])


def _layout(desc, rng):
    """Strides of another order, padded or of 0."""
    tensors = tensors_of(desc)
    if not tensors:
        return
    t = rng.choice(tensors)
    rank = len(t["Sizes"])
    strides, step = [0] * rank, 1
    for d in rng.sample(range(rank), rank):
        strides[d] = step
        step = step * max(t["Sizes"][d], 1) + rng.choice([0, 0, 1, 5])
    if rng.random() < 0.3:
        strides[rng.randrange(rank)] = 0
    t["Strides"] = strides


def _type(desc, rng):
    tensors = tensors_of(desc)
    if tensors:
        rng.choice(tensors)["DataType"] = rng.choice(DATA_TYPES)


def _type_everywhere(desc, rng):
    tensors = tensors_of(desc)
    if tensors:
        old, new = rng.choice(tensors)["DataType"], rng.choice(DATA_TYPES)
        for t in tensors:
            t["DataType"] = new if t["DataType"] == old else t["DataType"]


def _attribute(desc, rng):
    """Another value of the same kind."""
    operator, fields = BY_NAME[desc["Type"]], desc["Desc"]
    attributes = [a for a in operator.attributes if a.name in fields or rng.random() < 0.3]
    if not attributes:
        return
    a = rng.choice(attributes)
    old = fields.get(a.name)
    if isinstance(a.kind, EnumKind):
        fields[a.name] = rng.choice(list(a.kind.cls)).name
    elif isinstance(a.kind, ActivationKind):
        fields[a.name] = rng.choice([None, {"Type": f"ACTIVATION_{rng.choice(ACTIVATIONS)}", "Desc": {}}])
    elif isinstance(old, list) and old and not isinstance(old[0], dict):
        k = rng.randrange(len(old))
        old[k] = rng.choice(FLOATS if isinstance(old[k], float) else NUMBERS)
    elif isinstance(old, bool):
        fields[a.name] = not old
    elif isinstance(old, float):
        fields[a.name] = rng.choice(FLOATS)
    elif isinstance(old, int):
        fields[a.name] = rng.choice([*NUMBERS, *BEYOND]) if rng.random() < 0.2 else rng.choice(NUMBERS)


def _left_out(desc, rng):
    operator = BY_NAME[desc["Type"]]
    optional = [o.name for o in (*operator.tensors, *operator.attributes) if getattr(o, "optional", None)]
    present = [n for n in optional if n in desc["Desc"]]
    if present:
        del desc["Desc"][rng.choice(present)]


CHANGES = [
    _size_everywhere,
    _size_everywhere,
    _one_size,
    _layout,
    _attribute,
    _attribute,
    _attribute,
    _left_out,
]
CHANGES += [_type, _type_everywhere]


def fitted(desc):
    """The outputs with the sizes that follow from the rest, where any do."""
    checked, problems = read_desc(desc, NEWEST)
    if checked is None or not problems or checked.operator.sizes is None:
        return desc
    operator = checked.operator
    try:
        made = operator.sizes(as_call(operator, checked.tensors, checked.attributes))
    except Exception:  # what broke a rule before
        return desc
    for operand, sizes in zip(operator.outputs, made if len(operator.outputs) > 1 else (made,), strict=True):
        several = sizes if operand.array else [sizes]
        for k, one in enumerate(several or ()):
            name = field(operand.name, k) if operand.array else operand.name
            value = desc["Desc"].get(operand.name)
            target = value[k] if operand.array and isinstance(value, list) and k < len(value) else value
            if one is not None and is_tensor(target) and name in checked.tensors and _small(one):
                target["Sizes"] = list(one)
                target.pop("Strides", None)
    return desc


def _small(sizes):
    return all(isinstance(n, int) for n in sizes) and 0 < math.prod(sizes) <= 10**6


def changed(name, rng, most=6):
    """A description near the rules: changes that broke one are mostly taken back."""
    desc = start(name, rng)
    for _ in range(rng.randint(0, most)):
        other = copy.deepcopy(desc)
        rng.choice(CHANGES)(other, rng)
        other = fitted(other)
        if rng.random() < 0.05 or not dml.validate(other):
            desc = other
    return desc


# ---- broken ones -------------------------------------------------------------------------------------------


def broken(name, rng):
    """Junk in one to three places, at any depth; fields left out, added or called otherwise."""
    desc = changed(name, rng, 2)
    for _ in range(rng.randint(1, 3)):
        place = desc["Desc"] if isinstance(desc.get("Desc"), dict) else desc
        while rng.random() < 0.5:
            inner = [v for v in _items(place) if isinstance(v, dict | list) and v]
            if not inner:
                break
            place = rng.choice(inner)
        junk = copy.copy(rng.choice(JUNK))
        if isinstance(place, list):
            place[rng.randrange(len(place))] = junk
            if rng.random() < 0.3:
                place.append(junk)
            continue
        key = rng.choice([*place, "Sizes", "Unknown", ""])
        action = rng.choice(["replace", "replace", "remove", "rename"])
        if action == "replace":
            place[key] = junk
        elif key in place:
            value = place.pop(key)
            if action == "rename":
                place[rng.choice([str(key).lower(), f"{key}s", "Type", 7])] = value
    return desc


def _items(place):
    return place.values() if isinstance(place, dict) else place
