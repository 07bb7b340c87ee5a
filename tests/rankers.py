"""Rankers and two stages in sizes that train in seconds."""

from beamwood.methods import load_method

RANKER, STAGES_OF = load_method("ranker"), load_method("two_stage")
SMALL = {
    "model.width": 6,
    "model.length": 8,
    "model.attention": (6, 4),
    "model.mlp": (8, 4),
    "loop.batch_size": 16,
    "choose.validation_users": 30,
}

STAGES = SMALL | {
    "model.num_candidates": 30,
    "loss.num_negatives": 6,
    "examples.max_examples": 400,
    "optimiser.decay_steps": 100,
}
