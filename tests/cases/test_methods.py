"""Methods of every kind on unusual logs: each command gives an answer or one line that names the fix."""

import itertools
import json
import re

import polars as pl
import pytest

import beamwood
from beamwood.errors import InputError, UnknownIdError

pytest.importorskip("torch", reason="training needs the extra train")

TRAINED = [
    "two_tower", "sasrec", "gru4rec", "lightgcn", "youtube_dnn", "mol", "tiger", "jtr", "din", "dtr", "ranker",
]  # fmt: skip
COUNTING = ["popularity", "cooccurrence", "transitions", "ease", "ease+transitions"]
# Cases for every change; the others take longer.
SHORT = [
    (form, method) for form in ("text", "one item", "two users") for method in ("two_tower", "dtr", "cooccurrence")
]
NAMES = ["user", "item", "time"]
# Ids that are difficult for other programs, by their number.
WORDS = ["  blanks {} ", "юзер-{}", "n" * 700 + "{}", '{}, "quoted" | barred', "-{}", "#{}", "e\u0301{}", "NaN{}"]


def named(number):
    return WORDS[number % len(WORDS)].format(number)


def planted_rows(planted):
    return [(user, item, time) for user, item, _, time in planted]


def bot(planted):
    """A log in which one user has far more rows than all others."""
    return planted_rows(planted) + [(999, place * 7 % 29, 1_600_000_000 + place) for place in range(30_000)]


# Logs, and the arguments of their fits.
LOGS = {
    "text": (lambda planted: [(named(user), named(item), time) for user, item, time in planted_rows(planted)], ()),
    "unsigned": (lambda planted: [(2**64 - 1 - u, 2**63 + i, time) for u, i, time in planted_rows(planted)], ()),
    "negative": (lambda planted: [(-u - 1, -i * 10**15, time) for u, i, time in planted_rows(planted)], ()),
    "ties": (lambda planted: [(user, item, 5) for user, item, _ in planted_rows(planted)], ()),
    "one item": (lambda _: [(user, 5, user + 9 * place) for user in range(30) for place in range(4)], ()),
    "two items": (
        lambda _: [(user, (user + place) % 2, 90 * user + place) for user in range(30) for place in range(4)],
        ("--split", "leave-one-out"),
    ),
    "two users": (lambda _: [(user, item, item) for user in (1, 2) for item in range(9)], ("--split", "leave-one-out")),
    "a row each": (
        lambda planted: [(user + 100, user % 7, user) for user in range(60)] + planted_rows(planted)[:96],
        ("--split", "leave-one-out"),
    ),
    "bot": (bot, ()),
}


def written(rows):
    kinds = {
        name: pl.UInt64 if max(of) >= 2**63 else None
        for name, of in zip(NAMES, zip(*rows, strict=True), strict=True)
        if type(of[0]) is int
    }
    return pl.DataFrame(rows, {name: kinds.get(name) for name in NAMES}, orient="row")


def short(method):
    return () if method.partition("+")[0] in COUNTING else ("--set", "loop.max_steps=3")


@pytest.fixture
def ask(tmp_path, capsys, monkeypatch):
    """Run a command and return its exit code and output. An internal error fails the test."""
    from cli_cases import beamwood as run

    monkeypatch.chdir(tmp_path)

    def asked(*words):
        code = run(*words)
        captured = capsys.readouterr()
        assert code in (0, 2), captured.err
        assert "Traceback" not in captured.err
        return code, captured.out + captured.err

    return asked


def cases():
    for form, method in itertools.product(LOGS, [*COUNTING, *TRAINED, "dtr+ease"]):
        yield pytest.param(form, method, marks=() if (form, method) in SHORT else pytest.mark.slow)


@pytest.mark.parametrize(("form", "method"), [*cases()])
def test_a_method_on_an_odd_log(form, method, planted, ask, tmp_path):
    make, words = LOGS[form]
    rows = make(planted)
    written(rows).write_parquet("log.parquet")
    code, said = ask("fit", "log.parquet", "--method", method, "--out", "out", *words, *short(method))
    if code == 2:
        # A graph or a ranker learns from unseen items, but users have all items here.
        assert method in ("lightgcn", "ranker")
        assert "; " in said.strip().splitlines()[-1]
        return
    took = {}
    for user, item, _ in rows:
        took.setdefault(user, set()).add(item)
    items = {item for _, item, _ in rows}
    k = min(5, len(items))
    assert ask("recommend", "out", "--all-users", "-k", k, "--out", "recs.jsonl")[0] == 0
    found = dict.fromkeys(took, ())
    for line in (tmp_path / "recs.jsonl").read_text().splitlines():
        one = json.loads(line)
        found[one["query"]] = (*found[one["query"]], one["item"])
    for user, shown in found.items():
        assert len(set(shown)) == len(shown) == min(k, len(items - took[user]))
        assert not took[user] & set(shown)
    first = rows[0][0], rows[0][1]
    retriever = beamwood.load("out")
    assert retriever.recommend(users=[first[0]], k=k).item_ids == [list(found[first[0]])]
    for command in (
        ("evaluate", "out"),
        ("recommend", "out", "--history", json.dumps([first[1]]), "-k", k),
        ("similar", "out", f"--item={first[1]}", "-k", k),
        ("export", "out", "--vectors", "vectors.parquet"),
    ):
        code, said = ask(*command)
        assert code == 0 or "; " in said.strip().splitlines()[-1]
    exported = tmp_path / "vectors.parquet"
    if exported.exists():
        assert set(pl.read_parquet(exported)["item"]) == items


# Models with only user ids


@pytest.fixture
def users_alone(write, planted, ask):
    words = ("--split", "leave-one-out", "--set", "model.kind=neumf", "--set", "loop.max_steps=3")
    assert ask("fit", write(planted), "--method", "ranker", *words, "--out", "out")[0] == 0


@pytest.mark.usefixtures("users_alone")
def test_a_model_of_users_refuses_similar_by_model(ask):
    code, said = ask("similar", "out", "--item", 3)
    assert (code, "knows users, not histories" in said) == (2, True)
    with pytest.raises(InputError, match="fit a method that reads histories"):
        beamwood.load("out").similar([3])


def test_a_model_of_users_with_vectors_names_them(write, planted, ask):
    words = ("--split", "leave-one-out", "--set", "model.user_tower=mf", "--set", "loop.max_steps=3")
    assert ask("fit", write(planted), "--method", "two_tower", *words, "--out", "out")[0] == 0
    code, said = ask("similar", "out", "--item", 3)
    assert (code, "ask by 'vectors'" in said) == (2, True)
    assert ask("similar", "out", "--item", 3, "--by", "vectors")[0] == 0


@pytest.mark.usefixtures("users_alone")
def test_errors_for_new_users_do_not_suggest_unused_histories(ask):
    for command in (("recommend", "out", "--user", 4444), ("score", "out", "--user", 4444, "--items", "items.txt")):
        pl.DataFrame({"item": [3, 4]}).write_csv("items.txt", include_header=False)
        code, said = ask(*command)
        assert (code, "--history" in said) == (2, False)
    with pytest.raises(UnknownIdError) as error:
        beamwood.load("out").recommend(users=[4444])
    assert "histories" not in str(error.value)


@pytest.mark.parametrize(("method", "setting"), [("ranker", "model.kind=neumf"), ("two_tower", "model.user_tower=mf")])
def test_a_model_of_users_refuses_without_histories_before_training(write, planted, ask, tmp_path, method, setting):
    words = ("--split", "leave-one-out", "--set", setting, "--set", "loop.max_steps=3", "--without-histories")
    code, said = ask("fit", write(planted), "--method", method, *words, "--out", "out")
    assert (code, "needs users here, and --without-histories saves none" in said) == (2, True)
    assert not list(tmp_path.glob("out*"))


def test_popularity_refuses_similar(write, planted, say, tmp_path):
    say("fit", write(planted))
    assert "the same list for everyone" in say("similar", tmp_path / "out", "--item", "3", code=2)


def test_the_advice_for_a_ranker_of_few_items_works(ask):
    """Each user has almost all items, so no list can be drawn."""
    rows = [(user, item, item) for user in (1, 2) for item in range(9)]
    written(rows).write_parquet("log.parquet")
    fit = ("fit", "log.parquet", "--method", "ranker", "--split", "leave-one-out", "--set", "loop.max_steps=3")
    code, said = ask(*fit, "--out", "out")
    assert (code, "too few for choose.protocol=sampled; set" in said) == (2, True)
    advised = re.findall(r"choose\.\w+=[\w/@]+", said.partition("; set ")[2])
    assert len(advised) == 2
    assert ask(*fit, *(word for each in advised for word in ("--set", each)), "--out", "out")[0] == 0


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("category", "model.item_columns='category': give a list of values, each a text, as ['category']"),
        ("3", "model.item_columns=3: give a list of values, each a text"),
        ("[category, price]", "as ['category', 'price']; a shell removes such quotes: put the whole setting in double"),
    ],
)
def test_a_list_setting_shows_its_notation(write, planted, ask, typed, told):
    fit = ("fit", write(planted), "--method", "two_tower", "--out", "out", "--set", f"model.item_columns={typed}")
    code, said = ask(*fit)
    assert (code, told in said) == (2, True)
