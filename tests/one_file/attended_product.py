"""A ranker with a custom score: the product of the item with its attention over the history, plus the item's bias.

Shape legend: B rows, L history length, M items a row, D width.
"""

from dataclasses import replace
from functools import partial

from pydantic import Field

from beamwood.fitting.ranking.settings import PairModelSettings, RankerConfig
from beamwood.methods import Needs
from beamwood.methods.ranker import METHOD as RANKER
from beamwood.models import parameters as declared
from beamwood.models.ops import namespace
from beamwood.models.parameters import Parameter
from beamwood.models.scorer import PairScore
from beamwood.retrieval.searchers.ranked import RankingSearcher, searcher_with


class Sizes(declared.Sizes):
    sharpness: float = Field(1.0, gt=0, description="the initial factor of the products before attention's softmax")


def tables(width, sizes):
    return {"users": width, "items": width, "bias_items": 1}


def parameters(width, sizes, about):
    yield Parameter("sharpness", (1,), scale=sizes.sharpness)


def forward(p, rows, sizes):
    a_BLD, w_BMD = rows.history_BLD, rows.items["items"]
    xp, real_B1L = namespace(w_BMD), rows.real_BL[:, None, :]
    product_BML = p["sharpness"] * (w_BMD @ xp.matrix_transpose(a_BLD))
    # Padding has no weight; the clip keeps an empty history finite.
    weight_BML = xp.exp(xp.clip(product_BML, -30.0, 30.0)) * real_B1L
    pooled_BMD = weight_BML @ a_BLD / (xp.sum(weight_BML, axis=2)[:, :, None] + 1e-9)
    if "users" in rows.users:
        pooled_BMD = pooled_BMD + rows.users["users"][:, None, :]
    return xp.sum(pooled_BMD * w_BMD, axis=2) + rows.items["bias_items"][:, :, 0]


def held(width, sizes, length):
    return width + length


SCORE = PairScore("attended-product", Sizes, tables, parameters, forward, held, needs_users=False, reads_history=True)


class Model(Sizes, PairModelSettings):
    """The sizes of the score, and the width."""


class Config(RankerConfig):
    """The settings of all rankers, and of this score."""

    model: Model = Model()


METHOD = replace(
    RANKER,
    name="ranker-attended",
    summary="a product with attention over the history, by any loss of the ranker",
    Config=Config,
    fit=partial(RANKER.fit, score=SCORE),
    needs=Needs(steps=True),
    presets={},
    searchers={RankingSearcher.kind: searcher_with(SCORE)},
)
