"""The model that `anydml demo` writes: small, and with the Ifs that exporters leave in models of sound.

level, for each stretch of sound, by another filter for each sample rate; at most 1. An If asks for the rate
(what the user knows), one in each branch whether there is one channel (as exporters write a squeeze), and
one whether the sound is too loud (what only the data knows).
"""

from __future__ import annotations

from onnx import ModelProto, checker, parser

_RATES = {16000: 16, 8000: 8, 48000: 48}
"""Samples of a millisecond, which is how long a filter and its step are."""

_MODEL = """
<ir_version: 8, opset_import: ["": 17], producer_name: "anydml demo">
meter (float[n, samples] sound, int64 sr) => (float[n, stretches] level)
<float one = {{1}}, int64[1] channel = {{1}}>
{{
    row = Unsqueeze (sound, channel)
    {rates}
    peak = ReduceMax <keepdims = 0> (raw)
    too_loud = Greater (peak, one)
    level = If (too_loud) <
        then_branch = softer () => (float[n, stretches] divided) {{ divided = Div (raw, peak) }},
        else_branch = as_it_is () => (float[n, stretches] same) {{ same = Identity (raw) }}>
}}
"""
_RATE = """
    rate_{rate} = Constant <value_int = {rate}> ()
    is_{rate} = Equal (sr, rate_{rate})
    {result} = If (is_{rate}) <
        then_branch = at_{rate} () => (level_{rate}) {{ {filtered} }},
        else_branch = not_{rate} () => (other_{rate}) {{ {otherwise} }}>
"""
_FILTERED = """
    filter_{rate} = Constant <value = float[1, 1, {taps}] {{{weights}}}> ()
    loud_{rate} = Abs (row)
    mean_{rate} = Conv <strides = [{taps}], kernel_shape = [{taps}]> (loud_{rate}, filter_{rate})
    channels_{rate} = Shape <start = 1, end = 2> (mean_{rate})
    single_{rate} = Equal (channels_{rate}, channel)
    {result} = If (single_{rate}) <
        then_branch = squeezed_{rate} () => (float[n, stretches] thin_{rate}) {{
            thin_{rate} = Squeeze (mean_{rate}, channel) }},
        else_branch = whole_{rate} () => (thick_{rate}) {{ thick_{rate} = Identity (mean_{rate}) }}>
"""


def sample_model() -> ModelProto:
    """A meter of loudness: sound float32[n, samples] and its rate sr, 16000, 8000 or 48000, to levels.

    Six Ifs: two choose by the rate, three by a number of channels that is always 1, one by the data.
    """
    (first, first_taps), (second, second_taps), (third, third_taps) = _RATES.items()
    otherwise = _rate(second, second_taps, f"other_{first}", _filtered(third, third_taps, f"other_{second}"))
    model = parser.parse_model(_MODEL.format(rates=_rate(first, first_taps, "raw", otherwise)))
    checker.check_model(model)
    return model


def _rate(rate: int, taps: int, result: str, otherwise: str) -> str:
    filtered = _filtered(rate, taps, f"level_{rate}")
    return _RATE.format(rate=rate, result=result, filtered=filtered, otherwise=otherwise)


def _filtered(rate: int, taps: int, result: str) -> str:
    weights = ", ".join([f"{1 / taps:.8f}"] * taps)
    return _FILTERED.format(rate=rate, taps=taps, weights=weights, result=result)
