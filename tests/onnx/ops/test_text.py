"""Strings: rules against onnxruntime."""

import numpy as np

from tests.onnx.ops.checking import case, check, check_fails, check_open, strings, table


def i(*numbers):
    return np.array(numbers, np.int64)


DAYS = strings("Monday", "tuesday", "Monday")
ONE = np.array("a b", object)


@table(
    [
        case("StringConcat", strings("a", "é"), strings("c")),
        case("StringConcat", strings("a", "b").reshape(2, 1), strings("c", "")),
        case("StringConcat", np.array("a", object), np.array("b", object)),
        case("StringConcat", strings(), strings("c")),
        case("StringNormalizer", DAYS),
        case("StringNormalizer", strings("é", "")),
        case("StringNormalizer", DAYS, stopwords=["monday"], is_case_sensitive=1),
        case("StringNormalizer", DAYS, stopwords=["Monday"], is_case_sensitive=1),
        case("StringNormalizer", strings("x", "x"), stopwords=["x"], is_case_sensitive=1),
        *(
            case("StringSplit", strings(text, "x y"), outputs=2, **how)
            for text in ("a b  c", " a b ", "", "   ", "a", "a,b", "é ü")
            for how in ({}, {"maxsplit": 1}, {"maxsplit": 0}, {"maxsplit": 2}, {"delimiter": ""})
        ),
        *(
            case("StringSplit", strings(text, "x y"), outputs=2, **how)
            for text in ("a,b,,c", ",", "a", ",a,", "ab,b,")
            for how in ({"delimiter": ","}, {"delimiter": ",", "maxsplit": 1}, {"delimiter": "b,"}, {"delimiter": ",", "maxsplit": 0})
        ),
        case("StringSplit", strings(), outputs=2),
        case("StringSplit", ONE, outputs=2),
        case("StringSplit", strings("", ""), outputs=2),
        case("StringSplit", strings("a", "b b", "c", "d").reshape(2, 2), outputs=2),
        case("StringSplit", strings().reshape(0, 3), outputs=2),
    ]
)  # fmt: skip
def test_exact(op, inputs, how):
    check(op, inputs, **how)


ROW = DAYS.reshape(1, 3)


@table(
    [
        # onnxruntime wants the sizes before it runs
        case("StringNormalizer", ROW, expected=ROW),
        case("StringNormalizer", strings("x").reshape(1, 1), stopwords=["x"], is_case_sensitive=1,
             expected=strings("").reshape(1, 1)),
        # onnxruntime asks the machine for a locale, which may be missing
        case("StringNormalizer", DAYS, case_change_action="UPPER", expected=strings("MONDAY", "TUESDAY", "MONDAY")),
        case("StringNormalizer", DAYS, case_change_action="LOWER", stopwords=["MONDAY"], expected=strings("tuesday")),
        case("StringNormalizer", DAYS, stopwords=["monday", "TUESDAY"], expected=strings("")),
        case("StringNormalizer", DAYS, case_change_action="UPPER", stopwords=["tuesday"], is_case_sensitive=1,
             expected=strings("MONDAY", "MONDAY")),
    ]
)  # fmt: skip
def test_by_hand(op, inputs, how):
    check(op, inputs, **how)


@table(
    [
        case("StringNormalizer", strings("é"), case_change_action="UPPER"),
        case("StringNormalizer", strings("a"), stopwords=["é"]),
        case("StringNormalizer", strings()),
        case("StringNormalizer", strings("a"), case_change_action="TITLE"),
        case("StringSplit", strings("a\tb"), outputs=2),
        case("StringSplit", strings("a\u3000b"), outputs=2),
        case("StringSplit", strings(""), outputs=2, delimiter=","),
    ]
)
def test_left_open(op, inputs, how):
    check_open(op, inputs, **how)


def test_the_node_fails():
    check_fails("StringConcat", [strings("a", "b"), strings("c", "d", "e")])
    check_fails("StringNormalizer", [strings("a", "b").reshape(2, 1)])
    check_fails("StringNormalizer", [ONE])
