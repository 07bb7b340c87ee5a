"""Items as codes: a decoder that says of each code in turn how likely it is, after a query and the codes before it.

    log p(x | q) = sum_s log softmax(W_s h_s + b_s)[c_s],    h_0 = q,    h_(s+1) = h_s + f_s(h_s, W_s[c_s])

Shape legend: B rows, D width, S codes an item, K codewords of a place.
Source: Rajput et al., "Recommender Systems with Generative Retrieval" (TIGER); the codewords that are told apart are
those that items are read with.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from beamwood.models.ops import Array, Parameters, linear, namespace, relu
from beamwood.models.parameters import Parameter, linear_parameters

__all__ = ["PREFIX", "logits", "next_states", "parameters", "word_parameters"]

PREFIX = "decoder."
"""The prefix of the parameters' names."""


def word_parameters(width: int, words: Sequence[int]) -> Iterator[Parameter]:
    """The codewords [K, D] of each place, scaled so that an item's sum has length about 1."""
    for place, count in enumerate(words):
        yield Parameter(f"words.{place}", (count, width), "normal", (width * len(words)) ** -0.5)


def parameters(width: int, words: Sequence[int]) -> Iterator[Parameter]:
    """The biases of each place, and the maps from one place to the next."""
    for place, count in enumerate(words):
        yield Parameter(f"{PREFIX}{place}.bias", (count,))
        if place + 1 < len(words):
            yield from linear_parameters(f"{PREFIX}{place}.inner", 2 * width, 2 * width)
            yield from linear_parameters(f"{PREFIX}{place}.outer", 2 * width, width)


def logits(p: Parameters, place: int, states_BD: Array, words_KD: Array) -> Array:
    """[B, K], the logits of a place's codewords."""
    return states_BD @ words_KD.T + p[f"{PREFIX}{place}.bias"]


def next_states(p: Parameters, place: int, states_BD: Array, chosen_BD: Array) -> Array:
    """[B, D], the states after the chosen codewords of a place."""
    both = namespace(states_BD).concat((states_BD, chosen_BD), axis=-1)
    return states_BD + linear(relu(linear(both, p, f"{PREFIX}{place}.inner")), p, f"{PREFIX}{place}.outer")
