"""Kinds of events: rows that count, their weights, and negative events, from the log to recommendations."""

import json
import re
import shlex
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

import beamwood
from beamwood.cli.listed import parse_events, parse_names
from beamwood.data import ColumnNames, Dataset, describe_log, disjoint_users, leave_one_out, read_log
from beamwood.errors import ArtefactError, InputError
from beamwood.fitting.counting import counts_within, interactions, weighted_counts
from beamwood.methods.cooccurrence import similarity
from beamwood.types import ItemLists

ROWS = [
    # user, item, kind, time
    (1, 10, "view", 1),
    (1, 10, "buy", 2),
    (1, 11, "skip", 3),
    (1, 12, "skip", 4),
    (1, 12, "buy", 5),
    (2, 10, "view", 1),
    (2, 12, "hover", 2),
    (2, 13, "view", 3),
    (2, 10, "skip", 4),
    (3, 11, "skip", 1),
]
SMALL = pl.DataFrame(ROWS, ["user", "item", "event", "time"], orient="row")


def small(**options):
    return read_log(SMALL, columns=ColumnNames(event="event"), **options)


def test_kinds_are_chosen_weighted_and_reported():
    log = small(events={"buy": 1, "view": 0.25}, negative_events=["skip"])
    assert log.frame.select("user", "item", "event_weight").rows() == [
        *[(1, 10, 0.25), (1, 10, 1.0), (1, 12, 1.0)],
        *[(2, 10, 0.25), (2, 13, 0.25)],
    ]
    assert log.report.left_out == 5
    assert log.report.notes == (
        "'event': buy 2 count as 1, view 3 count as 0.25; negative, in no history: skip 4; left out: hover 1",
    )


def test_the_last_event_of_a_pair_decides_rejection():
    # User 1 bought 12 after a skip; user 2 skipped 10 after a view.
    log = small(negative_events=["skip"])
    assert log.rejected.rows() == [(1, 11), (2, 10), (3, 11)]
    shuffled = SMALL.sample(fraction=1, shuffle=True, seed=3)
    assert read_log(shuffled, columns=ColumnNames(event="event"), negative_events=["skip"]).rejected.equals(
        log.rejected
    )
    # Without times the row order is used.
    untimed = read_log(SMALL.drop("time"), columns=ColumnNames(event="event"), negative_events=["skip"])
    assert untimed.rejected.equals(log.rejected)
    # Items and users without counted events are unknown.
    data = Dataset.from_log(log)
    assert [data.items.decode(row.tolist()) for row in np.split(data.rejected.items, data.rejected.indptr[1:-1])] == [
        [],
        [10],
    ]
    assert "1 pair of a user and an item with a negative event last" in data.report["notes"][-1]


def test_negative_events_need_no_weight():
    rated = SMALL.with_columns(rating=pl.when(event="skip").then(None).when(event="buy").then(5).otherwise(2))
    for weights in (rated, rated.with_columns(pl.col("rating").fill_null(1))):
        log = read_log(weights, columns=ColumnNames(event="event"), negative_events=["skip"], min_weight=4)
        assert log.frame.rows() == [(1, 10, 2), (1, 12, 5)]
        assert log.rejected.rows() == [(1, 11), (2, 10), (3, 11)]
        assert "2 rows kept, 4 left out" in log.report.weight
    with pytest.raises(InputError, match="no row has a 'rating' of at least min_weight=9, the largest is 5"):
        read_log(weights, columns=ColumnNames(event="event"), negative_events=["skip"], min_weight=9)
    for users in (0, 1):
        with pytest.raises(InputError, match=f"has {users} user"):
            Dataset.from_log(replace(log, frame=log.frame.head(users)))


def test_a_description_counts_repeats_as_the_log_does():
    rows = SMALL.with_columns(time=pl.col("time") // 3)
    for weights in ({"buy": 1, "view": 0.3}, {"buy": 1, "view": 1}):
        kinds = {"columns": ColumnNames(event="event"), "events": weights}
        assert describe_log(rows, **kinds)["duplicates"] == read_log(rows, **kinds).report.duplicates
    assert read_log(rows, **kinds).report.duplicates == 1


def test_the_kinds_are_stored():
    assert small(negative_events=["skip"]).kinds.as_dict() == {
        "counted": {"view": 1.0, "buy": 1.0, "hover": 1.0},
        "negative": ["skip"],
    }
    assert small(events={"buy": 2}).kinds.as_dict() == {"counted": {"buy": 2.0}, "negative": []}
    assert read_log(SMALL).kinds is None


def test_rows_without_a_kind_count_if_only_negative_kinds_are_given():
    some = SMALL.with_columns(event=pl.when(pl.col("event") != "hover").then("event"))
    log = read_log(some, columns=ColumnNames(event="event"), negative_events=["skip"])
    assert len(log.frame) == 6
    assert "none 1 count as 1" in log.report.notes[0]
    assert set(log.kinds.as_dict()["counted"]) == {"view", "buy"}
    chosen = read_log(some, columns=ColumnNames(event="event"), events=["buy"])
    assert chosen.report.notes == ("'event': buy 2 count as 1; left out: skip 4, view 3, none 1",)


def test_equal_weights_are_as_no_weights():
    log = small(events=["buy", "view"])
    assert "event_weight" not in log.frame.columns
    assert log.rejected is None
    without = read_log(SMALL.filter(pl.col("event").is_in(["buy", "view"])).drop("event"))
    assert Dataset.from_log(log).fingerprint() == Dataset.from_log(without).fingerprint()
    weighed = Dataset.from_log(small(events={"buy": np.int64(1), "view": np.float32(0.5)}))
    assert weighed.fingerprint() != Dataset.from_log(log).fingerprint()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"events": ["by"]}, "no row has --events 'by' as its 'event'; did you mean 'buy'"),
        ({"negative_events": ["skipp"]}, "--negative-events 'skipp' .* did you mean 'skip'"),
        ({"events": {"buy": 0}}, "a weight is a number above 0"),
        ({"events": {"buy": float("nan")}}, "a weight is a number above 0"),
        ({"events": {"buy": "2"}}, "a weight is a number above 0"),
        ({"events": []}, "names no kind"),
        ({"events": "buy"}, "events='buy' is not a list of kinds"),
        ({"events": ["skip"], "negative_events": ["skip"]}, "'skip' is among --events and among --negative-events"),
        ({"negative_events": ["buy", "view", "skip", "hover"]}, "every row has a negative kind as its 'event'"),
        ({}, "--event-column event has no use without --events"),
    ],
)
def test_wrong_kinds_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        small(**options)


def test_the_event_column_is_found_or_required():
    assert len(read_log(SMALL.rename({"event": "Action_Type"}), events=["buy"]).frame) == 2
    with pytest.raises(InputError, match=r"no column of events by a usual name; it has: user, .*--event-column"):
        read_log(SMALL.rename({"event": "what"}), events=["buy"])
    with pytest.raises(InputError, match=r"Name it with --event-column, such as --event-column 'kind'$"):
        read_log(SMALL.rename({"event": "kind"}), events=["buy"])
    with pytest.raises(InputError, match="several columns of events: event, action"):
        read_log(SMALL.with_columns(action="event"), events=["buy"])
    with pytest.raises(InputError, match="no column 'evnt' of events; did you mean 'event'"):
        read_log(SMALL, columns=ColumnNames(event="evnt"), events=["buy"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *[("buy", {"buy": 1}), ("buy, view=0.3", {"buy": 1, "view": 0.3}), ("a=b=2", {"a=b": 2}), (None, None)],
        *[
            ('{"a, b": 2, " c": 0.3}', {"a, b": 2, " c": 0.3}),
            ('["a, b", " c"]', {"a, b": 1, " c": 1}),
            ("3", {"3": 1}),
        ],
    ],
)
def test_kinds_are_parsed_with_their_weights(text, expected):
    assert parse_events(text) == expected


@pytest.mark.parametrize("text", ["buy,", "=3", "buy,buy=2", "buy=much", "", '{"a": 1, "a": 2}', '["a", "a"]'])
def test_kinds_that_are_mistyped_are_refused(text):
    with pytest.raises(InputError, match="--events"):
        parse_events(text)


def test_names_may_be_a_list_of_json():
    assert parse_names("skip, hide ,") == ("skip", "hide")
    assert parse_names('["a, b", " c"]') == ("a, b", " c")
    assert parse_names(None) == ()


# Weights in counting methods


def test_the_weight_of_a_pair_is_its_largest_or_latest():
    lists = ItemLists.from_lists([[0, 1, 0], [1], []])
    weights = np.array([1, 0.5, 0.25, 2], np.float32)
    np.testing.assert_allclose(interactions(lists, 3, weights=weights).toarray(), [[1, 0.5, 0], [0, 2, 0], [0, 0, 0]])
    np.testing.assert_allclose(interactions(lists, 3, 2, weights=weights).toarray()[0], [0.25, 0.5, 0])
    ones = interactions(lists, 3, weights=np.ones(4, np.float32))
    np.testing.assert_array_equal(ones.toarray(), interactions(lists, 3).toarray())


def test_the_cosine_of_weights_is_the_cosine():
    chance = np.random.default_rng(5)
    dense = chance.random((20, 6)) * (chance.random((20, 6)) < 0.6)
    from scipy import sparse

    got = similarity(sparse.csr_matrix(dense), shrinkage=0, power=0.5, num_neighbours=6).toarray()
    lengths = np.sqrt((dense**2).sum(axis=0))
    expected = dense.T @ dense / np.outer(lengths, lengths)
    np.fill_diagonal(expected, 0)
    np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_transitions_count_the_product_of_weights():
    lists, weights = ItemLists.from_lists([[0, 1, 2], [1, 2]]), np.array([1, 0.5, 2, 4, 1], np.float32)
    got = counts_within(lists, 3, 2, of_events=weights).toarray()
    np.testing.assert_allclose(got, [[0, 0.5, 1], [0, 0, 5], [0, 0, 0]])


def planted(write, planted_rows, bought=2):
    """The planted log as views, with a buy after each row whose rating is `bought`.

    Every user also skips an item that it never has.
    """
    rows = []
    for user, item, rating, time in planted_rows:
        rows += [(user, item, "view", time - 1), (user, item, "buy", time)][: 2 if rating >= bought else 1]
    taken = {user: {row[1] for row in planted_rows if row[0] == user} for user, *_ in planted_rows}
    rows += [(user, min(set(range(30)) - items), "skip", 1_700_000_000) for user, items in taken.items()]
    return write(rows, "events.csv", "user_id,item_id,event,timestamp")


def test_weights_stay_aligned_with_training_events(write, request):
    path = planted(write, request.getfixturevalue("planted"))
    data = Dataset.from_log(read_log(path, events={"buy": 1, "view": 0.3}, negative_events=["skip"]))
    for split in (leave_one_out(data), disjoint_users(data)):
        train = split.train
        assert len(train.weights) == len(train.histories.items)
        assert weighted_counts(train).sum() == pytest.approx(train.weights.sum())
        for user in range(5):
            own = train.weights[train.histories.indptr[user] : train.histories.indptr[user + 1]]
            np.testing.assert_allclose(own, np.tile([0.3, 1], len(own))[: len(own)])


@pytest.mark.parametrize("method", ["popularity", "cooccurrence", "transitions", "ease"])
def test_counting_methods_use_weights(write, request, method):
    path = planted(write, request.getfixturevalue("planted"), bought=4)
    scores = []
    for events in (["buy", "view"], {"buy": 1, "view": 0.01}, {"buy": 100, "view": 1}):
        split = leave_one_out(Dataset.from_log(read_log(path, events=events)))
        fitted = beamwood.fit(split, method)
        assert fitted.metadata["method"] == method
        scores.append(np.array(fitted.score([[0, 1, 2]], [list(range(30))])))
    assert not np.allclose(scores[0], scores[1])
    if method == "popularity":
        np.testing.assert_allclose(100 * scores[1], scores[2], rtol=1e-5)


# From the command line to recommendations


def test_rejected_items_are_left_out_on_request(write, request, say, tmp_path):
    path = planted(write, request.getfixturevalue("planted"))
    said = say("fit", path, "--events", "buy,view=0.3", "--negative-events", "skip")
    assert "'event': buy 320 count as 1, view 320 count as 0.3; negative, in no history: skip 40" in said
    kinds = {"counted": {"buy": 1.0, "view": 0.3}, "negative": ["skip"]}
    assert json.loads(say("inspect", tmp_path / "out", "--users", "0", "--json"))["data"]["events"] == kinds
    assert "      buy: 1.0\n      view: 0.3\n    negative: ['skip']" in say("inspect", tmp_path / "out", "--users", "0")
    assert "40 pairs of a user and an item with a negative event last, stored with the histories" in said
    folder, retriever = tmp_path / "out", beamwood.load(tmp_path / "out")
    rejected = {}
    for user in range(40):
        (index,) = retriever.rejected.items[retriever.rejected.indptr[user] : retriever.rejected.indptr[user + 1]]
        (rejected[user],) = retriever.items.decode([int(index)])
    for rejects in ("keep", "remove"):
        found = retriever.recommend(users=list(range(40)), k=22, rejected=rejects).item_ids
        assert all((rejected[user] in row) == (rejects == "keep") for user, row in enumerate(found))
        seen = [set(retriever.items.decode(retriever.histories[user])) for user in range(40)]
        assert all(row and not seen[user] & set(row) for user, row in enumerate(found))
    shown = say("recommend", folder, "--user", "3", "-k", "22").split()
    hidden = say("recommend", folder, "--user", "3", "-k", "22", "--without-rejected").split()
    assert str(rejected[3]) in shown[2::3]
    assert str(rejected[3]) not in hidden[2::3]
    (why,) = retriever.recommend(users=[3], allowed=[rejected[3]], seen="keep", rejected="remove").empty.values()
    assert why == "the only item passing the filter was rejected; pass rejected='keep' to have them"
    (why,) = retriever.recommend(users=[3], allowed=[rejected[3]], rejected="remove").empty.values()
    assert "was seen or rejected; pass seen='keep' to have them" in why
    # Evaluated from the stored settings of the folder.
    assert "skip 40" in say("evaluate", folder)
    refused = say("recommend", folder, "--history", "1,2", "--without-rejected", code=2)
    assert "--without-rejected needs users, as a history alone has no rejected items; give users, or leave" in refused
    with pytest.raises(InputError, match="rejected='remove' needs users"):
        retriever.recommend([[1, 2]], rejected="remove")


def test_a_folder_without_histories_has_no_negative_events(write, request, say, tmp_path):
    rows = [(*row[:2], "skip" if row[1] == 3 else "buy", row[3]) for row in request.getfixturevalue("planted")]
    log = write(rows, header="user_id,item_id,event,timestamp")
    say("fit", log, "--events", "buy", "--negative-events", "skip", "--without-histories")
    said = say("recommend", tmp_path / "out", "--history", "1", "--without-rejected", code=2)
    assert "fit it with --negative-events and without --without-histories" in said


def test_a_folder_without_negative_events_refuses_the_filter(write, request, say, tmp_path):
    say("fit", write(request.getfixturevalue("planted")))
    assert "events" not in beamwood.load(tmp_path / "out").metadata["data"]
    said = say("recommend", tmp_path / "out", "--user", "1", "--without-rejected", code=2)
    assert "stores no negative events" in said
    with pytest.raises(InputError, match="rejected='no' is unknown"):
        beamwood.load(tmp_path / "out").recommend(users=[1], rejected="no")


def test_forgotten_users_leave_no_rejections(write, request, say, tmp_path):
    from beamwood.retrieval.forget import without_erased, without_users

    path = planted(write, request.getfixturevalue("planted"))
    say("fit", path, "--negative-events", "skip")
    retriever = beamwood.load(tmp_path / "out")
    assert without_users(retriever).rejected is None
    left, gone = without_erased(retriever, [0, 5], 0.0)
    assert (gone, len(left.rejected), len(left.users)) == (2, 38, 38)
    say("fit", path, "--negative-events", "skip", "--without-histories")
    assert beamwood.load(tmp_path / "out").rejected is None


def test_damaged_rejections_are_refused(write, request, say, tmp_path):
    path = planted(write, request.getfixturevalue("planted"))
    say("fit", path, "--negative-events", "skip")
    file = tmp_path / "out" / "rejected.safetensors"
    content = bytearray(file.read_bytes())
    content[-3] ^= 255
    file.write_bytes(content)
    with pytest.raises(ArtefactError, match="rejected"):
        beamwood.load(tmp_path / "out", verify=True)


def test_a_log_with_kinds_of_events_names_the_options(write, request, say):
    path = planted(write, request.getfixturevalue("planted"))
    said = say("fit", path)
    assert "'event' has kinds of events (buy 320, view 320, skip 40), which count alike" in said
    advised = re.search(r"weigh them with (.*)", said)
    chosen = say("fit", path, *shlex.split(advised[1]))
    assert "count alike" not in chosen
    assert "count as 0.3" in chosen
    assert "negative, in no history: skip 40" in chosen
    strange = {"view": "view, long", "buy": " buy", "skip": "skip"}
    rows = [(f'"{row[0]}"', row[1], f'"{strange[row[2]]}"', row[3]) for row in pl.read_csv(path).rows()]
    advised = re.search(r"weigh them with (.*)", say("fit", write(rows, "odd.csv", "user_id,item_id,event,timestamp")))
    assert "view, long 320 count as 1,  buy 320 count as 0.3" in say(
        "fit", path.with_name("odd.csv"), *shlex.split(advised[1])
    )
    many = pl.DataFrame({"user": range(90), "item": range(90), "event": [str(row) for row in range(90)]})
    assert read_log(many).report.notes == ()


@pytest.mark.parametrize(
    ("counts", "options"),
    [
        ({"play": 5, "skip": 2}, "--events play --negative-events skip"),
        ({"view": 5, "order": 2, "return": 1}, "--events order,view=0.3 --negative-events return"),
        ({"skip": 5, "hide": 2}, "--events hide,skip=0.3, and --negative-events for those that mean no"),
    ],
)
def test_kinds_that_usually_mean_no_are_advised_as_negative(counts, options):
    kinds = [kind for kind, count in counts.items() for _ in range(count)]
    log = read_log(pl.DataFrame({"user": range(len(kinds)), "item": range(len(kinds)), "event": kinds}))
    assert log.report.notes[0].endswith(f"with --event-column 'event' {options}")


def test_trained_methods_report_that_they_ignore_weights(write, request, say):
    from cli_cases import TINY

    path = planted(write, request.getfixturevalue("planted"))
    tiny = [word for setting in TINY for word in ("--set", setting)]
    said = say("fit", path, "--events", "buy,view=0.3", "--method", "dtr", *tiny)
    assert "dtr learns from each event alike; the weights of --events count in methods that count" in said
    assert "from each event alike" not in say("fit", path, "--events", "buy,view=0.3")


def test_two_stages_keep_rejections(write, request):
    from beamwood.fitting.stages import two_stage

    path = planted(write, request.getfixturevalue("planted"))
    split = leave_one_out(Dataset.from_log(read_log(path, negative_events=["skip"])))
    both = two_stage(beamwood.fit(split, "popularity"), beamwood.fit(split, "cooccurrence"))
    assert both.rejected is not None
    assert len(both.rejected.items) == 40
    assert both.metadata["data"]["events"]["negative"] == ["skip"]
    found = both.recommend(users=[3], k=22, rejected="remove").item_ids[0]
    assert not set(both.items.decode(both.rejected[3])) & set(found)
