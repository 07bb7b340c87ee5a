"""Time limits: the cost of each part is estimated before it starts, with a simulated clock."""

import re

import numpy as np
import pytest

from beamwood.errors import InputError, TimeLimitError
from beamwood.training.budget import Budget, estimated_seconds
from beamwood.training.loop import run_loop
from beamwood.training.loop_config import LoopConfig
from beamwood.training.pace import Estimates, Validator
from beamwood.training.run_folder import RunFolder, RunRecord
from clocks import Clock
from linear_task import LinearTask

CONFIG = LoopConfig(batch_size=8, max_steps=100, evaluate_every=1000, monitor="valid/fit", schedule="constant")


class Learned:
    """An update that takes `seconds` and estimates this; `metric`: the validation result afterwards."""

    restarts = False

    def __init__(self, clock, times, seconds, *, estimate=None, keeps_worse=True):
        self.clock, self.times, self.seconds, self.keeps_worse = clock, times, seconds, keeps_worse
        self.known = seconds if estimate is None else estimate
        self.began, self.gave_up, self.undone = [], 0, 0

    def estimate(self):
        return self.known

    def propose(self, number, budget):
        if budget.left < self.seconds:
            self.clock.now += budget.left
            self.gave_up += 1
            return None
        self.clock.now += self.seconds
        return number

    def apply(self, proposal, optimizers):
        self.began.append(self.clock.now - self.seconds)
        return {"number": float(proposal)}

    def undo(self, optimizers):
        self.undone += 1


class Timed(LinearTask):
    """A step takes a second, a validation five, preparation ten in five parts; `knows`: the estimates it gives."""

    def __init__(self, clock, update=None, prepares=10, knows=0):
        super().__init__()
        self.clock, self.learned, self.prepares, self.knows = clock, update, prepares, knows

    def min_seconds(self, clock):
        return self.knows

    def prepare(self, rng, budget):
        super().prepare(rng, budget)
        began = self.clock.now
        for part in range(1, 6):
            self.clock.now += self.prepares / 5
            budget.require_rest(part, 5, began)
        self.update = self.learned

    def loss(self, batch, rng):
        self.clock.now += 1
        return super().loss(batch, rng)

    def evaluate(self):
        self.clock.now += 5
        return super().evaluate()


def trained(task, limit=None, *, config=CONFIG, estimates=Estimates(validation=5)):
    budget = Budget(limit, clock=task.clock, name="mine")
    validator = Validator(task.evaluate, lambda _: estimates)
    result = run_loop(task, config, validator=validator, budget=budget, seed=3, progress=False)
    return result, budget


def test_updates_are_evenly_spaced():
    clock = Clock()
    update = Learned(clock, 3, 0)
    config = CONFIG.model_copy(update={"max_steps": 100})
    task, steps = Timed(clock, update, prepares=0), []
    apply = update.apply
    update.apply = lambda *a: steps.append(task.steps) or apply(*a)
    task.steps = 0
    loss = task.loss

    def counted(batch, rng):
        task.steps += 1
        return loss(batch, rng)

    task.loss = counted
    result, budget = trained(task, config=config)
    assert steps == [25, 50, 75]
    assert (result.updates, result.steps, budget.left_out) == (3, 100, [])


@pytest.mark.parametrize(("max_steps", "times", "expected"), [(3, 2, 2), (2, 1, 1), (4, 3, 3), (12, 11, 11), (3, 9, 2)])
def test_no_update_is_lost_by_rounding(max_steps, times, expected):
    """None is before the first or after the last step; more updates than steps are reported."""
    clock = Clock()
    update = Learned(clock, times, 0)
    result, budget = trained(Timed(clock, update), config=CONFIG.model_copy(update={"max_steps": max_steps}))
    assert len(update.began) == result.updates == expected
    assert result.steps == max_steps
    assert budget.left_out == ([] if times == expected else [f"{expected} of {times} tree updates done"])


def test_long_updates_leave_steps_between_them():
    """Each takes as long as ten steps; the other updates share the remaining time."""
    clock = Clock()
    update = Learned(clock, 3, 10)
    config = CONFIG.model_copy(update={"max_steps": 10_000})
    result, budget = trained(Timed(clock, update), 200, config=config)
    assert result.updates == 3
    assert min(np.diff(update.began)) > 25
    assert budget.seconds <= 200
    assert result.stopped_because == "time_limit"


@pytest.mark.parametrize(("seconds", "updates"), [(10, 1), (200, 0)])
def test_an_update_that_does_not_fit_is_skipped_and_reported(seconds, updates):
    clock = Clock()
    update = Learned(clock, 11, seconds)
    config = CONFIG.model_copy(update={"max_steps": 10_000})
    result, budget = trained(Timed(clock, update), 70, config=config)
    assert (result.updates, len(update.began), update.gave_up) == (updates, updates, 0)
    assert 65 < budget.seconds <= 70
    assert budget.left_out == [f"{updates} of 11 tree updates done: one takes {seconds} s"]


def test_an_update_that_exceeds_its_estimate_stops_in_time():
    clock = Clock()
    update = Learned(clock, 1, 500, estimate=5)
    result, budget = trained(Timed(clock, update), 70, config=CONFIG.model_copy(update={"max_steps": 10_000}))
    assert (result.updates, update.gave_up) == (0, 1)
    assert budget.seconds <= 70
    assert budget.left_out == ["0 of 1 tree updates done: one more took longer than there was time"]


def test_an_update_that_lowers_the_metric_is_undone_on_request():
    clock = Clock()
    update = Learned(clock, 2, 0, keeps_worse=False)
    task = Timed(clock, update)
    evaluate, said = task.evaluate, iter([0.3, 0.2, 0.3, 0.3, 0.3])
    task.evaluate = lambda: evaluate() | {"fit": next(said)}
    result, _ = trained(task, config=CONFIG.model_copy(update={"max_steps": 9}))
    assert (len(update.began), update.undone, result.updates) == (2, 1, 1)


def test_time_is_reserved_for_validation_and_finish():
    """Estimates are used at first, then measured times."""
    clock = Clock()
    estimates = Estimates(validation=2, finish=20, save=1)
    result, budget = trained(
        Timed(clock), 60, config=CONFIG.model_copy(update={"max_steps": 10_000}), estimates=estimates
    )
    # Steps until 2 + 20 + 1 seconds are left; the validation then takes three seconds more than estimated.
    assert (result.steps, budget.seconds) == (27, 42.0)


@pytest.mark.parametrize(("limit", "floor"), [(12, 33), (32.5, 33), (33, None)])
def test_a_limit_below_the_minimum_is_refused_with_the_minimum(limit, floor):
    clock, estimates = Clock(), Estimates(validation=2, finish=20, save=1)
    if floor is None:
        trained(Timed(clock), limit, estimates=estimates)
        return
    with pytest.raises(InputError, match=f"time_limit={limit} s is below {floor} s, what mine needs here; raise it"):
        trained(Timed(clock), limit, estimates=estimates)


@pytest.mark.parametrize(
    ("knows", "limit", "gone", "floor"),
    # Known in advance; after the first part of a long preparation; by both; near its end; and after it.
    [(40, 20, 0, 40), (0, 5, 2, 10), (10, 10, 2, 20), (0, 9, 8, 10), (0, 12, 10, 33)],
)
def test_a_limit_is_refused_as_soon_as_it_is_known_to_be_too_short(knows, limit, gone, floor):
    """Estimates may be two thirds too high, so a limit that may suffice is not refused."""
    clock = Clock()
    task, began = Timed(clock, knows=knows), clock.now
    with pytest.raises(TimeLimitError) as raised:
        trained(task, limit, estimates=Estimates(validation=2, finish=20, save=1))
    assert (clock.now - began, raised.value.min_seconds) == (gone, pytest.approx(floor))
    assert re.fullmatch(rf"time_limit={limit} s is below {floor} s, what mine needs here; raise it", str(raised.value))


@pytest.mark.parametrize("knows", [0, 35])
def test_a_limit_that_may_suffice_is_not_refused(knows):
    result, budget = trained(Timed(Clock(), knows=knows), 33, estimates=Estimates(validation=5))
    assert result.steps > 0
    assert budget.seconds <= 33


def test_a_resumed_run_is_never_refused(tmp_path):
    clock, run = Clock(), RunFolder(tmp_path / "run")

    def validated(task, record, config, budget=None):
        validator = Validator(task.evaluate, lambda _: Estimates(validation=5))
        return run_loop(task, config, validator=validator, record=record, budget=budget, progress=False)

    validated(Timed(clock), RunRecord(run), CONFIG.model_copy(update={"max_steps": 3}))
    resumed = validated(Timed(clock, knows=1000), RunRecord(run, resume=True), CONFIG, Budget(1, clock=clock))
    assert resumed.stopped_because == "time_limit"
    with pytest.raises(TimeLimitError):
        validated(Timed(clock, knows=1000), RunRecord(RunFolder(tmp_path / "other")), CONFIG, Budget(1, clock=clock))


def test_elapsed_time_is_the_estimate_if_there_is_no_other():
    clock = Clock()
    budget = Budget(5, clock=clock, name="mine")
    clock.now += 6
    with pytest.raises(TimeLimitError, match="time_limit=5 s is below 9 s"):
        run_loop(Timed(clock), CONFIG, budget=budget, progress=False)
    clock.now -= 2
    with pytest.raises(TimeLimitError, match="time_limit=5 s is below 14 s"):
        run_loop(Timed(clock), CONFIG, budget=budget, progress=False)


def test_a_search_extends_a_limit_up_to_its_own():
    clock = Clock()
    budget = Budget(10, clock=clock, max_limit=50)
    budget.reserved = 30
    budget.require()
    assert budget.limit == 30
    budget.reserved = 80
    budget.require()
    assert budget.limit == 50
    budget.reserved = 84
    with pytest.raises(TimeLimitError) as raised:
        budget.require()
    assert raised.value.min_seconds == 84


@pytest.mark.parametrize(
    ("seconds", "options", "expected"),
    [
        (100, {"share": 0.5}, 20),
        (400, {"share": 0.5}, 5),
        (30, {"share": 0.5}, 40),
        (400, {"share": 0.5, "fewest": 8}, 8),
        (400, {"share": 0.5, "fewest": 64}, 40),
    ],
)
def test_as_many_parts_are_affordable_as_fit_a_share_of_the_time_left(seconds, options, expected):
    """Of 40 parts, with 100 seconds left."""
    clock = Clock()
    budget = Budget(120, clock=clock)
    clock.now += 20
    assert budget.affordable(40, seconds, **options) == expected
    assert Budget(clock=clock).affordable(40, seconds, **options) == 40
    clock.now += 1000
    assert budget.affordable(40, seconds, **options) == min(40, options.get("fewest", 0))


def test_the_minimum_of_a_share_is_reported_for_the_whole():
    clock = Clock()
    whole = Budget(60, clock=clock, name="dtr")
    clock.now += 10
    share = whole.share(1 / 3, "dtr with its estimator")
    assert share.left == 20
    clock.now += 5
    share.require(15)
    with pytest.raises(InputError, match=r"time_limit=60 s is below 66 s, what dtr with its estimator needs here"):
        share.require(17)
    share.leave_out("half of it")
    assert whole.left_out == ["dtr with its estimator: half of it"]
    # In addition to the time before it.
    late = Budget(30, clock=clock)
    clock.now += 25
    with pytest.raises(InputError, match=r"time_limit=30 s is below 45 s"):
        late.share(0.9, "late").require(20)


@pytest.mark.parametrize(("gone", "floor"), [(40, 80), (59.5, 99.5), (70, 110)])
def test_the_minimum_of_a_share_of_the_rest_follows_what_was_used_before(gone, floor):
    """Also where little or no time is left."""
    clock = Clock()
    whole = Budget(60, clock=clock, name="sum")
    clock.now += gone
    share = whole.share_of_rest(0.5, "counting")
    assert share.left == max((60 - gone) / 2, 1e-3)
    with pytest.raises(TimeLimitError, match="what counting needs here") as raised:
        share.require(20)
    assert raised.value.min_seconds == floor


def test_the_earlier_seconds_of_parts_that_follow_each_other_are_added():
    clock = Clock()
    whole = Budget(100, clock=clock)
    for seconds in (40, 30):
        part = whole.share_of_rest(0.5, "part")
        part.count(seconds)
        # Those of its own estimator are among them.
        part.share(1 / 3, "estimator").count(seconds / 2)
        assert part.seconds == seconds
    assert whole.seconds == 70


def test_a_share_after_a_resumed_one_refuses_nothing():
    clock = Clock()
    whole = Budget(10, clock=clock)
    first = whole.share(0.75, "first")
    clock.now += 20
    with pytest.raises(TimeLimitError):
        whole.share_of_rest(0.5, "second").require(5)
    first.refuses = False
    whole.share_of_rest(0.5, "second").require(5)


def test_the_cost_is_that_of_a_call_plus_that_of_each_row():
    clock, calls = Clock(), []

    def work(num):
        calls.append(num)
        clock.now += 3 + 0.5 * num + (100 if len(calls) == 1 else 0)

    assert estimated_seconds(work, 1000, clock) == pytest.approx(3 + 500)
    assert estimated_seconds(work, 10, clock) == pytest.approx(3 + 5)
    assert max(calls) == 32


class Clocked(LinearTask):
    """A step takes 1 second of a simulated clock, a validation 5."""

    def __init__(self, clock, validations=()):
        super().__init__()
        self.clock, self.validations = clock, list(validations)

    def loss(self, batch, rng):
        self.clock.now += 1
        return super().loss(batch, rng)

    def evaluate(self):
        self.clock.now += self.validations.pop(0) if self.validations else 5
        return super().evaluate()


def endless(clock, limit, validations=(), *, folder=None, resume=False):
    """The result of a training that only its limit ends."""
    task, budget = Clocked(clock, validations), Budget(limit, clock=clock)
    record = None if folder is None else RunRecord(RunFolder(folder), resume=resume)
    config = LoopConfig(batch_size=8, evaluate_every=7, monitor="valid/fit", schedule="constant")
    validator = Validator(task.evaluate)
    return run_loop(task, config, validator=validator, record=record, budget=budget, seed=3, progress=False)


def test_the_time_limit_leaves_room_for_a_last_validation():
    clock = Clock()
    result = endless(clock, 20)
    # 7 steps, a validation, 3 steps, a validation.
    assert (result.steps, result.seconds, result.stopped_because) == (10, 20.0, "time_limit")
    assert result.best_metric is not None
    # A last validation that is faster than the first leaves time for a step, but not for its validation.
    result = endless(clock, 20, [5, 4])
    assert (result.steps, result.seconds) == (10, 19.0)
    # The limit is too short for anything: one step, one validation, a model.
    result = endless(clock, 0.1)
    assert (result.steps, result.best_step) == (1, 1)


def test_time_before_a_resume_counts(tmp_path):
    clock, folder = Clock(), tmp_path / "run"
    endless(clock, 20, folder=folder)
    clock.now += 1000
    second = endless(clock, 20, folder=folder, resume=True)
    assert (second.steps, second.seconds) == (10, 20.0)
    # 4 steps, a validation at step 14, 3 steps and the last validation.
    third = endless(clock, 37, folder=folder, resume=True)
    assert (third.steps, third.seconds) == (17, 37.0)
