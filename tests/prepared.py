"""A trainable as a test takes it apart: made ready, and its generator given along."""

from beamwood.training.trainable import Stepper


class Prepared(Stepper):
    """What it does not have itself is the trainable's."""

    def __getattr__(self, name):
        return getattr(self.task, name)

    def batch(self, rows):
        return self.drawn(rows)

    def loss(self, batch):
        return self.task.loss(batch, self.rng)
