"""A training task that is prepared for a test of its parts, with its generator."""

from beamwood.training.trainable import Stepper


class Prepared(Stepper):
    """Other attributes are those of the task."""

    def __getattr__(self, name):
        return getattr(self.task, name)

    def batch(self, rows):
        return self.drawn(rows)

    def loss(self, batch):
        return self.task.loss(batch, self.rng)
