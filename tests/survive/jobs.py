"""The killed jobs: commands, their prerequisites, and how they resume."""

from dataclasses import dataclass

__all__ = ["JOBS", "SMALL", "Job"]

LOG, ITEMS = "log.parquet", "items.parquet"


def settings(*pairs):
    """The settings as command-line options."""
    return tuple(word for pair in pairs for word in ("--set", pair))


COUNTED = ("fit", LOG, "--items", ITEMS, "--method", "cooccurrence", "--out", "model")
SMALL = {"model.width": 4, "model.num_blocks": 1, "loop.batch_size": 16, "loop.max_steps": 12, "loop.evaluate_every": 4}
STEPS = settings("model.width=4", "loop.batch_size=16", "loop.max_steps=12", "loop.evaluate_every=4")
TRAINED = ("fit", LOG, "--method", "sasrec", *STEPS, "--set", "model.num_blocks=1", "--out", "model")
TREE = (
    *("fit", LOG, "--method", "dtr", *STEPS, "--out", "model"),
    *settings("model.attention_hidden=4", "model.windows=[4,2,1]", "model.mlp=[8,4]", "tree.branching=2"),
    *settings("tree.updates=2", "tree.max_instances=5", "model.light_width=4"),
)
SEARCH = ("fit", LOG, "--out", "model", "--time-limit", "10m")
ANSWERS = ("recommend", "old", "--all-users", "-k", "5", "--out")
OLD = ("fit", LOG, "--method", "popularity", "--out", "model")


@dataclass(frozen=True)
class Job:
    """A command that writes `target`, and the additional options with which it resumes.

    `before`: commands whose folders exist when it starts. `same`: the target's bytes equal those of an uninterrupted
    run; otherwise, as for a search that measures milliseconds, only its results for each method are equal.
    """

    name: str
    command: tuple[str, ...]
    target: str
    before: tuple[tuple[str, ...], ...] = ()
    go_on: tuple[str, ...] = ("--resume", "--overwrite")
    same: bool = True


JOBS = (
    Job("count", COUNTED, "model", go_on=("--overwrite",)),
    Job("overwrite", (*COUNTED, "--overwrite"), "model", (OLD,), go_on=()),
    Job("train", TRAINED, "model"),
    Job("retrain", (*TRAINED, "--seed", "1", "--overwrite"), "model", (TRAINED,), go_on=("--resume",)),
    Job("tree", TREE, "model"),
    Job("refit", ("refit", "old", "--out", "model"), "model", ((*TRAINED[:-1], "old"),)),
    Job("search", SEARCH, "model", same=False),
    Job("recommend", (*ANSWERS, "recs.parquet"), "recs.parquet", ((*COUNTED[:-1], "old"),), ("--resume",)),
    Job(
        "recommend over",
        (*ANSWERS, "recs.csv", "--threads", "2", "--overwrite"),
        "recs.csv",
        ((*COUNTED[:-1], "old"), (*ANSWERS[:1], "old", "--all-users", "-k", "3", "--out", "recs.csv")),
        ("--resume",),
    ),
    Job(
        "export",
        ("export", "old", "--vectors", "vectors.parquet", "--overwrite"),
        "vectors.parquet",
        (
            (*TRAINED[:-1], "old", "--seed", "1"),
            ("export", "old", "--vectors", "vectors.parquet"),
            (*TRAINED[:-1], "old", "--overwrite"),
        ),
        (),
    ),
)
