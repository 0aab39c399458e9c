"""Shapes of operators of whole tensors, as terms: for people, and to compute outputs' sizes by.

    shapes={"input": "N C H W", "output": "N C*block_size*block_size H/block_size W/block_size"}
    shapes={"input": "N C S...", "filter": "M C/group_count K...", "output": "N M windows(S,K)..."}
    shapes={"input": "...", "output": said("as input, but k along axis")}

A term is a size: a number, a name (capital letters first) that inputs give, a parameter that is a number, or
an expression of those, whose divisions have no remainder. `S...` are several sizes, `...` any number of them;
`windows(S,K)...` those that a window function gives, by the call's attributes, too.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

Sizes = tuple[int, ...]
WINDOWS: dict[str, Callable[..., Sizes]] = {}
"""Window functions by name: of a `Call`, and the sizes that they are written with."""
_SAYS: dict[str, str] = {}
_REST = "..."
_FUNCTION = re.compile(r"([a-z_]+)\(([A-Z][A-Za-z]*(?:,[A-Z][A-Za-z]*)*)\)\.\.\.")


class NoShape(ValueError):
    """Sizes that do not follow: what they are made of does not go together."""


class said(str):
    """A shape in words, where terms cannot say it."""

    __slots__ = ()


Window = Callable[..., Sizes]


def window(name: str, says: str) -> Callable[[Window], Window]:
    """A window function, by the name that shapes call it, and what it computes of each size, for people."""

    def known(function: Window) -> Window:
        WINDOWS[name] = function
        _SAYS[name] = says
        return function

    return known


def shape_in_words(shape: str) -> str:
    """A shape for people.

    >>> shape_in_words("N C/(b*b) S...")
    '[N, C / (b * b), S...]'
    """
    if isinstance(shape, said):
        return str(shape)
    terms = (re.sub(r"([*/+]|(?<=\w)-)", r" \1 ", t).replace(",", ", ") for t in shape.split())
    return f"[{', '.join(terms)}]"


def explained(shapes: Iterable[str]) -> str:
    """What the window functions of shapes compute; "" if there is none."""
    text = " ".join(shapes)
    return "; ".join(says for name, says in _SAYS.items() if f"{name}(" in text)


Known = dict[str, Any]
"""Sizes by name; several sizes as tuples."""


def bind(shape: str, sizes: Sequence[int], known: Known) -> str | None:
    """Take the names of a shape from sizes; answers with what is wrong, if they are no such sizes.

    Expressions are compared where all of their names are known.
    """
    terms = shape.split()
    several = [k for k, t in enumerate(terms) if t.endswith(_REST)]
    if len(several) > 1:
        return "more than one group of sizes"
    many = len(sizes) - len(terms) + len(several)
    if many < 0 or (not several and many):
        return f"{len(sizes)} sizes"
    place = several[0] if several else len(terms)
    parts: list[Any] = [*sizes[:place], *([tuple(sizes[place : place + many])] if several else [])]
    parts += sizes[place + many :] if several else []
    for term, found in zip(terms, parts, strict=True):
        name = term.removesuffix(_REST) or _REST
        if name == _REST or re.fullmatch(r"[A-Z]\w*", name):
            if known.setdefault(name, found) != found:
                return f"{term} is {known[name]}, and {found}"
            continue
        try:
            wanted = _value(term, known)
        except (NoShape, KeyError):
            continue
        if wanted != found:
            return f"{term} is {wanted}, not {found}"
    return None


def sizes_by(shape: str, known: Known, call: Any) -> Sizes:
    """The sizes of a shape, by what is known of its names, and a call's attributes.

    Raises:
        NoShape: they do not follow.
    """
    found: list[int] = []
    for term in shape.split():
        if (function := _FUNCTION.fullmatch(term)) is not None:
            found += WINDOWS[function[1]](call, *(known[name] for name in function[2].split(",")))
        elif term.endswith(_REST):
            found += known[term.removesuffix(_REST) or _REST]
        else:
            found.append(_value(term, known | {n: getattr(call, n) for n in _parameters(term)}))
    return tuple(found)


def can_compute(shape: str, given: Mapping[str, str]) -> bool:
    """Whether a shape follows from the shapes of inputs that are always there, and attributes."""
    names = {name for s in given.values() if not isinstance(s, said) for name in _names(s, alone=True)}
    return not isinstance(shape, said) and _names(shape) <= names


def _names(shape: str, alone: bool = False) -> set[str]:
    """The names in a shape; `alone`: those that are terms by themselves."""
    found: set[str] = set()
    for term in shape.split():
        name = term.removesuffix(_REST) or _REST
        if alone:
            found |= {name} if name == _REST or re.fullmatch(r"[A-Z]\w*", name) else set()
        else:
            found |= {name} if name == _REST else set(re.findall(r"\b[A-Z]\w*", name))
    return found


def _parameters(term: str) -> Iterator[str]:
    yield from re.findall(r"\b[a-z]\w*", term)


_OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
}


@cache
def _parsed(term: str) -> ast.expr:
    return ast.parse(term, mode="eval").body


def _value(term: str, known: Known) -> int:
    def of(e: ast.expr) -> int:
        match e:
            case ast.Constant(int(n)):
                return n
            case ast.Name(name):
                return int(known[name])
            case ast.BinOp(left, op, right):
                return _OPERATORS[type(op)](of(left), of(right))
        raise NoShape(f"no term: {term}")

    try:
        return of(_parsed(term))
    except (KeyError, TypeError, ZeroDivisionError) as error:
        raise NoShape(str(error)) from error


def from_terms(
    shapes: Mapping[str, str], inputs: Sequence[str], outputs: Sequence[str]
) -> Callable[[Any], Any] | None:
    """The outputs' sizes of a `Call`, as terms tell them; None where they do not."""
    given = {name: shapes[name] for name in inputs if name in shapes}
    if not all(name in shapes and can_compute(shapes[name], given) for name in outputs):
        return None

    def sizes(call: Any) -> Any:
        known: Known = {}
        for name, shape in given.items():
            tensor = getattr(call, name)
            if tensor is not None and not isinstance(shape, said):
                wrong = bind(shape, tensor.shape, known)
                if wrong is not None:
                    raise NoShape(f"{name}: {wrong}")
        try:
            found = tuple(sizes_by(shapes[name], known, call) for name in outputs)
        except KeyError as error:
            raise NoShape(f"no {error}") from error
        if any(n < 1 for part in found for n in part):
            raise NoShape("nothing is left")
        return found if len(outputs) > 1 else found[0]

    return sizes
