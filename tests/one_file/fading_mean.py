"""A custom encoder: a running mean with a learned decay for each column.

Shape legend: B rows, L history length, D width.
"""

from pydantic import Field

from beamwood.fitting.vectors.settings import SequenceConfig, SequenceModelSettings
from beamwood.methods import Method, Needs
from beamwood.methods.sequence import fit
from beamwood.models import parameters as declared
from beamwood.models.encoder import Encoder
from beamwood.models.ops import dropped, linear, namespace, relu
from beamwood.models.parameters import Parameter, linear_parameters
from beamwood.retrieval.searchers.vectors import VectorSearcher, searcher_with


class Sizes(declared.Sizes):
    hidden: int = Field(24, ge=1, description="values between the two maps")


def parameters(width, length, sizes):
    yield Parameter("fading", (width,), "normal", 1.0)
    yield from linear_parameters("inner", width, sizes.hidden)
    yield from linear_parameters("outer", sizes.hidden, width)


def forward(p, x_BLD, real_BL, sizes, dropout, last):
    xp, length = namespace(x_BLD), x_BLD.shape[1]
    kept_D = 1 / (1 + xp.exp(-p["fading"]))
    place = xp.arange(length, dtype=x_BLD.dtype, device=x_BLD.device)
    steps_LL = place[:, None] - place
    seen_LLD = (steps_LL >= 0)[:, :, None] * kept_D ** xp.abs(steps_LL)[:, :, None]
    sums_BLD = xp.sum(seen_LLD * dropped(x_BLD, dropout)[:, None, :, :], axis=2)
    return linear(relu(linear(sums_BLD, p, "inner")), p, "outer")


ENCODER = Encoder("fading-mean", causal=True, sizes=Sizes, parameters=parameters, forward=forward)


class Model(Sizes, SequenceModelSettings):
    """The sizes of the encoder, and the item vectors."""


class Config(SequenceConfig):
    """The settings of all sequence methods, and of this encoder."""

    model: Model = Model()

    @property
    def encoder(self):
        return ENCODER


METHOD = Method(
    name="fading-mean-rec",
    summary="a running mean of the history, softmax over the whole catalogue",
    Config=Config,
    fit=fit,
    needs=Needs(steps=True),
    searchers={VectorSearcher.kind: searcher_with(encoders=[ENCODER])},
)
