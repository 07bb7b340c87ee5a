"""A batch job from Python: what an interrupted one may be continued with."""

from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from beamwood.data.vocabularies.vocabulary import Vocabulary
from beamwood.errors import InputError
from beamwood.retrieval.batch.group_answers import OfRetriever, in_process
from beamwood.retrieval.batch.job import FORMATS, Job, count_by_rank
from beamwood.retrieval.request import Request
from beamwood.retrieval.retriever import Retriever
from beamwood.retrieval.searchers.popularity import PopularitySearcher
from beamwood.types import ItemLists

NUM_ITEMS = 3000
RETRIEVER = Retriever(PopularitySearcher(np.arange(NUM_ITEMS)), Vocabulary(pl.Series(range(NUM_ITEMS))))


def job_of(allowed, rows, *, labels=(1, 2), stopped=False):
    """A job over two histories; `stopped`: killed before its first group."""

    def stop(options, groups):
        raise KeyboardInterrupt

    request = Request([], 3, allowed=allowed)
    engine = stop if stopped else in_process(OfRetriever(RETRIEVER))
    return Job(engine, request, rows, labels, by_users=False, label_type=pl.Int64, origin="model")


def without(place):
    mask = np.ones(NUM_ITEMS, bool)
    mask[place] = False
    return mask


@pytest.mark.parametrize("kind", [lambda mask: mask, lambda mask: pl.Series(np.flatnonzero(mask))])
def test_a_filter_that_differs_in_the_middle_is_another_job(tmp_path, kind):
    rows, target = [[5], [6]], tmp_path / "answers.csv"
    for other, labels, same in ((1501, (1, 2), False), (1500, (1, 3), False), (1500, (1, 2), True)):
        with pytest.raises(KeyboardInterrupt):
            job_of(kind(without(1500)), rows, stopped=True).run(target)
        with nullcontext() if same else pytest.raises(InputError, match="groups of another job or model"):
            job_of(kind(without(other)), rows, labels=labels).run(target, resume=True)
    assert count_by_rank(target, 1, 3) == [2, 2]


def test_a_history_that_differs_in_the_middle_is_another_job(tmp_path):
    target, whole = tmp_path / "answers.csv", np.arange(2000)
    other = np.where(whole == 1000, 2500, whole)
    with pytest.raises(KeyboardInterrupt):
        job_of(None, [whole, [6]], stopped=True).run(target)
    with pytest.raises(InputError, match="groups of another job or model"):
        job_of(None, [other, [6]]).run(target, resume=True)


def test_a_job_checks_its_labels_and_its_file(tmp_path):
    with pytest.raises(InputError, match="1 rows and 2 labels"):
        job_of(None, [[5]])
    with pytest.raises(InputError, match=r"ends in '\.txt'; known: \.csv, \.jsonl, \.parquet"):
        job_of(None, [[5], [6]]).run(tmp_path / "answers.txt")
    assert not list(tmp_path.iterdir())
    assert job_of(None, [[5], [6]]).run(str(tmp_path / "answers.csv")) == 2


def test_a_job_that_is_refused_at_its_start_leaves_nothing(tmp_path):
    with pytest.raises(InputError, match="8000"):
        job_of(None, [[5], [8000]]).run(tmp_path / "answers.csv")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("by_users", [False, True])
@pytest.mark.parametrize("suffix", FORMATS)
def test_a_job_without_rows_writes_a_file_without_answers(tmp_path, suffix, by_users):
    nobody = replace(RETRIEVER, users=Vocabulary(pl.Series([], dtype=pl.Int64)), histories=ItemLists.empty(0))
    job = replace(job_of(None, [], labels=[]), by_users=by_users, engine=in_process(OfRetriever(nobody)))
    target = tmp_path / f"answers{suffix}"
    assert job.run(target, say=lambda done, total, rate: pytest.fail(f"{done} of {total} at {rate}")) == 0
    assert count_by_rank(target, 1, 3) == [0, 0]
    if suffix == ".parquet":
        types = {"query": pl.Int64, "rank": pl.Int32, "item": pl.Int64, "score": pl.Float64}
        assert dict(pl.read_parquet(target).schema) == types
    assert [path.name for path in tmp_path.iterdir()] == [target.name]


@pytest.mark.parametrize("resume", [False, True])
def test_a_folder_with_files_of_others_is_left_as_it_is(tmp_path, resume):
    target, folder = tmp_path / "answers.csv", tmp_path / "answers.csv.parts"
    folder.mkdir()
    own = ["000000.csv", ".000001.csv.0123456789ab.saving", ".job.json.0123456789ab.saving"]
    for name in (*own, "part-0.csv"):
        (folder / name).write_text("kept")
    with pytest.raises(InputError, match=r"answers\.csv\.parts holds part-0\.csv, which no job wrote; move it away"):
        job_of(None, [[5], [6]]).run(target, resume=resume)
    assert {path.read_text() for path in folder.iterdir()} == {"kept"}
    assert len(list(folder.iterdir())) == 4
    (folder / "part-0.csv").unlink()
    assert job_of(None, [[5], [6]]).run(target, resume=resume) == 2
    assert [path.name for path in tmp_path.iterdir()] == [target.name]
