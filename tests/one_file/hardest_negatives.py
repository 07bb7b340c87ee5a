"""Two towers trained against each user's hardest negatives: the items of the batch with the highest scores.

Shape legend: B pairs of a batch, C candidates, M negatives a user.
"""

from dataclasses import dataclass, replace
from functools import partial

import torch

from beamwood.fitting.vectors.tower_settings import TowerConfig, TowerLossSettings
from beamwood.methods.two_tower import METHOD as TWO_TOWER
from beamwood.sampling.in_batch import InBatchSampler


class Config(TowerConfig):
    """The user's other items, which have the highest scores, are no negatives."""

    loss: TowerLossSettings = TowerLossSettings(mask_known=True)


@dataclass
class Hardest(InBatchSampler):
    """The softmax of a positive among the `num_negatives` best other candidates."""

    num_negatives: int = 20

    def losses(self, pairs, generator):
        score_BC = (pairs.users_BD @ pairs.items_CD.T).masked_fill(pairs.masked_BC, -torch.inf)
        hardest_BM = score_BC.topk(min(self.num_negatives, score_BC.shape[1]), dim=1).values
        among_B = torch.cat([pairs.positive_B[:, None], hardest_BM], dim=1).logsumexp(dim=1)
        return among_B - pairs.positive_B


METHOD = replace(
    TWO_TOWER,
    name="two-tower-hardest",
    Config=Config,
    fit=partial(TWO_TOWER.fit, sampler=Hardest()),
    presets={},
)
