"""The file forms of public data sets: read directly, or refused with a command that converts them."""

import datetime
import gzip
import json
import shlex
import shutil

import polars as pl
import pytest
from scipy import sparse

from beamwood.data import ColumnNames, read_log
from beamwood.data.files.headless import column_guess, seems_headless
from refusals import refused, typed, written


def at(seconds, pattern="%Y-%m-%dT%H:%M:%SZ"):
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime(pattern)


@pytest.fixture
def plain(planted):
    return [(user, item, time) for user, item, _, time in planted]


def triples(log, per=1):
    return [tuple(row) for row in log.frame.with_columns(pl.col("time") // per).select("user", "item", "time").rows()]


# Files without a header line

ISBN, REVIEWER = "006{:06}X", "A2{:08}ZKQ"
FORMS = {
    "checkins": ("\t", "user,time,-,-,item", lambda u, i, t: [u, at(t), 30 + i / 7, -90 - i / 9, i]),
    "venues": (
        "\t",
        "user,item,-,-,-,-,time",
        lambda u, i, t: [
            u,
            f"4b{i:022x}",
            f"Bar {i}",
            40 + i / 7,
            -70 - i / 9,
            -240,
            at(t, "%a %b %d %H:%M:%S +0000 %Y"),
        ],
    ),
    "clicks": (",", "user,time,item,-", lambda u, i, t: [u, at(t), 214_000_000 + i, 0 if i % 2 else "S"]),
    "kinds": (",", "user,item,-,event,time", lambda u, i, t: [u, i, 4000 + i % 5, ("pv", "buy", "fav")[i % 3], t]),
    "products first": (
        ",",
        "item,user,rating,time",
        lambda u, i, t: [ISBN.format(i), REVIEWER.format(u), f"{i % 5}.0", t],
    ),
    "products last": (
        ",",
        "user,item,rating,time",
        lambda u, i, t: [REVIEWER.format(u), ISBN.format(i), f"{i % 5}.0", t],
    ),
    "plays": (
        "\t",
        "user,time,item,-",
        lambda u, i, t: [f"user_{u:06}", at(t), f"f1b1cf71-bd35-4e99-{i:04x}", f"Band {i}"],
    ),
    "counts": ("\t", "user,item,-", lambda u, i, t: [f"{u:037x}a1", f"SOAKIMP{i:05}", 7 + i]),
    "long ids": (",", "user,item,-,-", lambda u, i, t: [u, 33_842_000_000 + i, f"name{i}", 154 + i]),
    "zeros": ("::", "user,item,rating,time", lambda u, i, t: [u, f"{i:07}", i % 9 + 1, t]),
}


def form(name, plain):
    mark, guess, cells = FORMS[name]
    return mark, guess.split(","), [[str(cell) for cell in cells(*row)] for row in plain]


@pytest.mark.parametrize("name", FORMS)
def test_unnamed_columns_are_guessed_by_content(plain, name):
    _, guess, rows = form(name, plain)
    assert seems_headless(rows[:100])
    assert column_guess(rows[:100]) == guess


@pytest.mark.parametrize("name", FORMS)
def test_the_advice_of_the_refusal_reads_every_row(plain, tmp_path, say, name):
    mark, guess, rows = form(name, plain)
    path = written(tmp_path / "log.txt", map(mark.join, rows))
    message = say("fit", path, code=2)
    user, item = (rows[0][guess.index(role)] for role in ("user", "item"))
    assert f"such as --columns {','.join(guess)} for user {user!r}, item {item!r}; choose other names" in message
    log = read_log(path, header=guess)
    read = log.frame.select(pl.col("user", "item").cast(pl.String)).rows()
    assert read == [(row[guess.index("user")], row[guess.index("item")]) for row in rows]
    if "time" in guess:
        assert log.frame["time"].is_sorted()
    # describe follows the advice, and reads all rows.
    assert f"{len(rows)} of {len(rows)} rows and leaves 0 out" in say("describe", path, code=2)


@pytest.mark.parametrize(
    ("first", "others"),
    [
        (["Kunde", "Artikel"], [["7", "3"], ["8", "3"]]),
        (["user_id", "1", "2", "3"], [["7", "3", "4", "5"]]),
        (["", "0", "1", "2"], [["0", "7", "3", "4"]]),
        (["when", "who", "what"], [["2024-01-01", "7", "3"], ["2024-01-02", "7", "3"]]),
        (["a", "b"], [["1", "2"], ["a", "b"]]),
        (["sku code", "2021", "2022"], [["A1", "15", "18"], ["A2", "9", "7"]]),
        (["x7", "y 2"], [["1", "2"], ["3", "4"]]),
    ],
)
def test_header_names_are_not_values(first, others):
    assert not seems_headless([first, *others])


@pytest.mark.parametrize(
    "rows",
    [
        [["1", "Toy Story (1995)", "Animation|Comedy"], ["2", "Heat (1995)", "Action"]],
        [["0", "1"], ["0", "2"]],
        [["A1", "B7", "978300760"], ["A2", "B9", "978300761"]],
    ],
)
def test_values_are_not_header_names(rows):
    assert seems_headless(rows)


def test_repeated_text_ids_are_values(tmp_path):
    path = written(tmp_path / "log.csv", ["anna,red", "bert,blue", "anna,green", "carl,red"])
    assert "its first line seems to hold values (anna, red): " in refused(path)
    assert read_log(path, header=["user", "item"]).frame["user"].to_list() == ["anna", "bert", "anna", "carl"]


def test_an_item_table_without_names_loses_no_item(write, planted, tmp_path, say):
    log = write(planted)
    table = written(tmp_path / "movies.dat", [f"{i}::Été {i}, L' (1995)::Drama|Comedy" for i in range(30)], "latin-1")
    message = say("fit", log, "--items", table, code=2)
    assert "its first line seems to hold values (0, " in message
    named = typed(message, tmp_path)
    assert named.read_text("utf-8").splitlines()[:2] == [
        "item_id::title::category",
        "0::Été 0, L' (1995)::Drama|Comedy",
    ]
    assert "30 of 30 items of the log are in it" in say("describe", log, "--items", named)


# Quotes


def test_unbalanced_quotes_do_not_swallow_rows(plain, tmp_path, say):
    names = ['"Weird Al" Yankovic', 'The "5', 'a "b" c', '"', "Guns N' Roses", "plain, with a comma"]
    lines = ["user\tname\titem\ttime", *(f"{u}\t{names[i % 6]}\t{i}\t{t}" for u, i, t in plain)]
    path = written(tmp_path / "log.tsv", lines)
    log = read_log(path, columns=ColumnNames(context=("name",)))
    assert triples(log) == plain
    assert log.frame["context.name"].to_list() == [names[i % 6] for _, i, _ in plain]
    assert "some quotes enclose no cell, so all are read as ordinary characters" in log.report.notes
    assert "320 rows" in say("fit", path)


def test_quotes_around_cells_stay_quotes(plain, tmp_path):
    lines = ["user,name,item,time", *(f'{u},"a ""b"", {i}\nof two lines","{i}",{t}' for u, i, t in plain)]
    log = read_log(written(tmp_path / "log.csv", lines), columns=ColumnNames(context=("name",)))
    assert triples(log) == plain
    assert log.frame["context.name"][0] == f'a "b", {plain[0][1]}\nof two lines'
    assert not any("signs" in note for note in log.report.notes)


def test_quotes_within_quotes_may_have_a_backslash(plain, tmp_path):
    lines = ['"user";"name";"item"', *(f'"{u}";"a \\"b\\" {i}";"0{i:03}X"' for u, i, _ in plain)]
    log = read_log(written(tmp_path / "log.csv", lines), columns=ColumnNames(context=("name",)))
    assert log.frame["item"].to_list() == [f"0{i:03}X" for _, i, _ in plain]
    assert log.frame["context.name"][0] == f'a "b" {plain[0][1]}'


# Other shapes, and the commands that convert them to rows


def test_blocks_below_an_item_are_written_as_rows(plain, tmp_path):
    blocks = {}
    for user, item, time in plain:
        blocks.setdefault(item, []).append(f"{user},3,{at(time, '%Y-%m-%d')}")
    path = written(tmp_path / "combined.txt", [line for item in blocks for line in (f"{item}:", *blocks[item])])
    log = read_log(typed(refused(path), tmp_path))
    assert sorted(log.frame.select("user", "item").rows()) == sorted((user, item) for user, item, _ in plain)
    assert log.report.columns["time"] == "date"


def test_all_files_of_such_a_folder_are_named(plain, tmp_path):
    """Each file of the folder is an item."""
    (tmp_path / "set of items").mkdir()
    for number, item in enumerate(sorted({item for _, item, _ in plain})):
        rows = [f"{user},3,{at(time, '%Y-%m-%d')}" for user, each, time in plain if each == item]
        first = written(tmp_path / "set of items" / f"mv_{number:04}.txt", [f"{item}:", *rows])
    advice = refused(first.parent)
    one, every = f"'{first.parent / 'mv_0000.txt'}'", f"'{first.parent}'/*.txt"
    assert advice.endswith(f"; if all files are like this, name all in that command, as {every}")
    log = read_log(typed(advice.partition("; if all")[0].replace(one, every), tmp_path))
    assert sorted(log.frame.select("user", "item").rows()) == sorted((user, item) for user, item, _ in plain)


@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize("mark", [" ", "\t"])
def test_lists_of_a_user_are_written_as_rows(plain, tmp_path, even, mark):
    users = {}
    for place, (user, item, _) in enumerate(plain):
        if even or place % (user + 2):
            users.setdefault(user, []).append(item)
    lines = [mark.join(map(str, [user, *items])) for user, items in users.items()]
    if even and mark == "\t":
        return
    log = read_log(typed(refused(written(tmp_path / "train.txt", lines)), tmp_path))
    assert log.frame.rows() == [(user, item) for user, items in users.items() for item in items]


def test_impressions_are_written_as_rows_of_clicks(plain, tmp_path):
    line = "{}\tU{}\t{}\t{}\tN{}-0 N{}-1 N{}-0"
    rows = [
        line.format(n, u, at(t, "%m/%d/%Y %I:%M:%S %p"), "" if n % 7 == 0 else f"N{n} N{n + 1}", i + 40, i, i + 41)
        for n, (u, i, t) in enumerate(plain, start=1)
    ]
    made = typed(refused(written(tmp_path / "behaviors.tsv", rows)), tmp_path)
    log = read_log(made, time_format="%m/%d/%Y %I:%M:%S %p")
    assert triples(log, 10**6) == [(f"U{u}", f"N{i}", t) for u, i, t in plain]


@pytest.mark.parametrize("packed", [False, True])
def test_lines_of_python_are_written_as_json(plain, tmp_path, packed):
    lines = [
        f"{{u'user_id': u'{u}', 'item_id': '{i}', 'note': u\"isn't\", 'ts': {t}, 'ok': True}}" for u, i, t in plain
    ]
    path = written(tmp_path / "log.json", lines)
    if packed:
        path = tmp_path / "log.json.gz"
        path.write_bytes(gzip.compress((tmp_path / "log.json").read_bytes()))
    message = refused(path)
    assert "its lines are Python dictionaries, not JSON" in message
    assert triples(read_log(typed(message, tmp_path))) == plain


def test_one_object_names_the_rows_in_it(tmp_path):
    path = tmp_path / "slice.json"
    path.write_text(json.dumps({"info": {"v": 1}, "playlists": [{"pid": 1, "tracks": [{"track_uri": "a"}]}]}, indent=1))
    message = refused(path)
    assert (
        f"it is one object, whose rows are in 'playlists'; write a row a line, as with: jq -c '.playlists[]' {path}"
        in message
    )
    if shutil.which("jq"):
        assert json.loads(typed(message, tmp_path).read_text())["pid"] == 1


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_rows_in_rows_are_written_as_rows(plain, tmp_path, ending):
    users = {}
    for user, item, time in plain:
        users.setdefault(user, []).append({"aid": item, "ts": time})
    frame = pl.DataFrame({"session": list(users), "events": list(users.values())})
    path = tmp_path / f"log.{ending}"
    frame.write_parquet(path) if ending == "parquet" else frame.write_ndjson(path)
    message = refused(path)
    assert "has no item column; each of its rows holds several in 'events': write a row for each" in message
    typed(message, tmp_path)
    assert triples(read_log(tmp_path / "log.rows.parquet", columns=ColumnNames(item="aid"))) == plain


def test_a_matrix_of_names_is_written_as_rows(plain, tmp_path):
    taken = {(user, item) for user, item, _ in plain}
    frame = pl.DataFrame({"user_id": range(40)}).with_columns(
        pl.Series(f"joke_{item}", [item / 7 if (user, item) in taken else None for user in range(40)])
        for item in range(30)
    )
    frame.write_csv(tmp_path / "log.csv")
    message = refused(tmp_path / "log.csv")
    assert "it has 31 columns, such as user_id, joke_0, joke_1, joke_2. If each is an item, write a row" in message
    typed(message, tmp_path)
    rows = pl.read_csv(tmp_path / "rows.csv").select("user_id", pl.col("item_id").str.slice(5).cast(int)).rows()
    assert {*rows} == taken


def test_a_matrix_without_names_is_refused(tmp_path):
    path = written(
        tmp_path / "dense.csv", [",".join(str((user * item) % 9) for item in range(25)) for user in range(30)]
    )
    made = typed(refused(path), tmp_path)
    assert len(read_log(made).frame) == 25 * 30


def test_a_saved_sparse_matrix_is_read(plain, tmp_path):
    users, items = [row[0] for row in plain], [row[1] for row in plain]
    sparse.save_npz(tmp_path / "log.npz", sparse.coo_matrix(([1.0] * len(plain), (users, items))))
    assert sorted(read_log(tmp_path / "log.npz").frame.rows()) == sorted(zip(users, items, strict=True))
    (tmp_path / "other.npz").write_bytes(b"PK\x03\x04nothing")
    assert "holds no sparse matrix that scipy.sparse.save_npz wrote" in refused(tmp_path / "other.npz")


# Times, ids and names


@pytest.mark.parametrize("prefix", ["", "date_"])
def test_times_in_several_columns_are_no_day_of_the_month(plain, prefix):
    rows = {"user": [row[0] for row in plain], "item": [row[1] for row in plain]}
    parts = {
        f"{prefix}{part}": [int(at(row[2], mark)) for row in plain]
        for part, mark in (("day", "%d"), ("month", "%m"), ("year", "%Y"))
    }
    message = refused(pl.DataFrame(rows | parts))
    assert f"has its times in several columns: {prefix}year, {prefix}month, {prefix}day; write them as one" in message
    dates = eval(f"pl.DataFrame(rows | parts){message.partition('does by ')[2].partition(', or use')[0]}")
    assert triples(read_log(dates), 86400 * 10**6) == [(u, i, t // 86400) for u, i, t in plain]
    log = read_log(pl.DataFrame(rows | parts), columns=ColumnNames(time="none"))
    assert log.frame.columns == ["user", "item"]
    whole = pl.DataFrame(rows | parts | {"timestamp": [row[2] for row in plain]})
    assert triples(read_log(whole)) == plain


def test_a_null_word_as_user_suggests_another_column(plain, write, say):
    rows = [("NA" if user % 3 else user, 100 + user, item, time) for user, item, time in plain]
    said = say("fit", write(rows, header="user_id,session_id,item_id,timestamp"))
    missing = sum(row[0] == "NA" for row in rows)
    assert f"'user_id': {missing} rows have a null word as their user ('NA' {missing})" in said
    assert "leaves these rows out, and --user-column 'session_id' reads that column instead" in said


def test_another_possible_item_column_is_reported(plain, write, say):
    path = write([(u, i, i // 2, t) for u, i, t in plain], header="user_id,asin,parent_asin,timestamp")
    said = "'asin' is read as the item, but 'parent_asin' is possible too: --item-column 'parent_asin' chooses it"
    assert said in say("fit", path)
    assert "is possible too" not in say("fit", path, "--item-column", "asin")
    assert "is possible too" not in say(
        "fit", write([(u, i, i, t) for u, i, t in plain], header="user_id,item_id,artist_id,ts")
    )


@pytest.mark.parametrize(
    ("names", "lacks"), [("order_id,product_id,rank", "user"), ("order_id,user_id,number", "item")]
)
def test_a_table_of_orders_needs_a_join(plain, write, names, lacks):
    message = refused(write(plain, header=names))
    assert f"has no {lacks} column; it has: {names.replace(',', ', ')}. Its rows are orders: " in message
    assert f"or join the table with the {lacks} of each 'order_id', as with: python3 -c " in message


@pytest.mark.parametrize(
    ("names", "advice"),
    [
        (
            "session_id_hash,product_sku_hash",
            "such as --user-column 'session_id_hash' --item-column 'product_sku_hash' ",
        ),
        ("who,step,a,b,c", "ColumnNames(user=..., item=...) ("),
    ],
)
def test_the_likeliest_column_has_a_usual_name_in_it(plain, write, names, advice):
    width = names.count(",") + 1
    assert advice in refused(write([(*row, 1, 1)[:width] for row in plain], header=names))


def test_an_item_with_a_comma_needs_a_json_list(plain, write, say, tmp_path):
    path = write([(u, f'"Part {i}, the last"', t) for u, i, t in plain], header="user_id,item_id,timestamp")
    say("fit", path)
    out = tmp_path / "out"
    said = say("recommend", out, "--history", "Part 3, the last", "-k", 2, code=2)
    assert "'Part 3, the last' is one item, with a comma of its own; write a list of JSON: --history " in said
    assert "Part " in say("recommend", out, *shlex.split(said.rpartition("JSON: ")[2]), "-k", 2)


def test_blanks_after_separators_are_reported(plain, tmp_path, say):
    path = written(tmp_path / "log.csv", ["user_id, item_id, timestamp", *(f"{u}, {i}, {t}" for u, i, t in plain)])
    assert triples(read_log(path)) == [(u, f" {i}", t) for u, i, t in plain]
    said = say("describe", path)
    assert "320 item ids are within blanks, the first ' 9' in row 1; each is read as one item" in said
    assert "unit seconds" in said
    mixed = [f"{u}, {i}, {t if n % 2 else t * 1000}" for n, (u, i, t) in enumerate(plain)]
    assert "mixes units of time" in refused(written(tmp_path / "mixed.csv", ["user_id, item_id, timestamp", *mixed]))


def test_a_repeated_header_line_is_removed_by_a_command(plain, tmp_path):
    lines = ["user_id,item_id", *(f"{u},{i}" for u, i, _ in plain)]
    path = written(tmp_path / "both.csv", [*lines, *lines])
    message = refused(path)
    assert "1 row repeats the header line, the first row 321; remove them" in message
    assert read_log(typed(message, tmp_path)).frame.rows() == [(u, i) for u, i, _ in plain] * 2


def test_a_column_with_the_order_is_reported(plain, write, say):
    path = write([(u, i, 320 - n) for n, (u, i, _) in enumerate(plain)], header="user_id,product_id,order_number")
    said = say("fit", path)
    assert "'order_number' may be the order of a user's rows, which are read in file order: --time-column 'ord" in said
    assert "may be the order" not in say("fit", path, "--time-column", "none")
    ordered = read_log(path, columns=ColumnNames(time="order_number")).frame
    assert ordered["time"].to_list() == list(range(320, 0, -1))
