"""Times are read, or refused with the option that resolves the ambiguity; the order is never guessed."""

import datetime as dt
import random
import re

import polars as pl
import pytest

from beamwood.data import ColumnNames, Dataset, leave_one_out, read_log
from beamwood.errors import InputError

MOMENTS = [1_583_020_799, 1_650_000_000, 1_650_003_605, 1_709_209_000]


def at(moment, hours=0):
    return dt.datetime.fromtimestamp(moment, dt.timezone(dt.timedelta(hours=hours)))


def times_of(texts, **options):
    frame = pl.DataFrame({"user": [1] * len(texts), "item": range(len(texts)), "time": texts})
    return read_log(frame, **options).frame["time"].to_list()


SECONDS = {
    "rfc 2822": lambda t: at(t, -7).strftime("%a, %d %b %Y %H:%M:%S %z"),
    "rfc 2822 by name": lambda t: at(t, -7).strftime("%a, %d %b %Y %H:%M:%S PDT"),
    "without a weekday": lambda t: at(t).strftime("%d %b %Y %H:%M:%S GMT"),
    "with a comment": lambda t: at(t, 2).strftime("%a, %d %b %Y %H:%M:%S %z (CEST)"),
    "C": lambda t: at(t).strftime("%a %b %d %H:%M:%S %Y"),
    "a browser": lambda t: at(t, 1).strftime("%a %b %d %Y %H:%M:%S GMT%z (Central European Time)"),
    "a web server": lambda t: at(t, 2).strftime("%d/%b/%Y:%H:%M:%S %z"),
    "UTC": lambda t: at(t).strftime("%Y-%m-%d %H:%M:%S UTC"),
    "gmt": lambda t: at(t).strftime("%Y-%m-%dT%H:%M:%S gmt"),
    "slashes": lambda t: at(t).strftime("%Y/%m/%d %H:%M:%S"),
    "half days": lambda t: at(t).strftime("%Y-%m-%d %I:%M:%S %p"),
    "a long month": lambda t: at(t).strftime("%B %d, %Y %I:%M:%S %p"),
    "java": lambda t: at(t, 9).strftime("%Y-%m-%dT%H:%M:%S+09:00[Asia/Tokyo]"),
    "a place": lambda t: at(t, 9).strftime("%Y-%m-%d %H:%M:%S Asia/Tokyo"),
}


@pytest.mark.parametrize("shape", SECONDS)
def test_unambiguous_formats_are_read(shape):
    assert times_of([SECONDS[shape](moment) for moment in MOMENTS]) == [moment * 1_000_000 for moment in MOMENTS]


def test_several_zones_and_formats_in_one_column():
    texts = ["2024-07-01 12:00 Europe/Berlin", "2024-01-01 12:00 Europe/Berlin", "1 Jul 2024 12:00 EST", "2024-07-01"]
    hours = [10, 11, 17, 0]
    days = [dt.date(2024, 7, 1), dt.date(2024, 1, 1), dt.date(2024, 7, 1), dt.date(2024, 7, 1)]
    expected = [dt.datetime.combine(day, dt.time(hour), dt.UTC) for day, hour in zip(days, hours, strict=True)]
    assert times_of(texts) == [int(moment.timestamp()) * 1_000_000 for moment in expected]


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("2024-07-01 12:00:00-04:00 America/New_York", 16),
        ("2024-07-01 12:00-04 America/New_York", 16),
        ("2024-07-01 12:00:00 -1000 HST", 22),
        ("2024-07-01T12:00:00Z[Europe/London]", 12),
        ("2024-07-01 12:00:00 (EST)", 17),
        ("2024-07-01 12:00 PM (Europe/Paris)", 10),
        ("1 Jul 2024 12:00:00 GMT (Greenwich Mean Time)", 12),
        ("Mon, 1 Jul 2024 12:00:00 PDT (Pacific Daylight Time)", 19),
        ("2024-07-01T12:00:00Z (UTC)", 12),
        ("2024-07-01 12:00:00+02 (CEST)", 10),
    ],
)
def test_an_offset_counts_before_a_name_and_a_name_in_brackets_counts(text, utc):
    moment = int(dt.datetime(2024, 7, 1, utc, tzinfo=dt.UTC).timestamp()) * 1_000_000
    assert times_of([text]) == [moment]


@pytest.mark.parametrize("pattern", ["%Y-%m-%d %H:%M %z %Z", "%Y-%m-%d %z %H:%M %Z", "%Y-%m-%d %H:%M %z (%Z)"])
def test_a_format_with_an_offset_and_a_name_takes_the_offset(pattern):
    text = pattern.replace("%z", "-0400").replace("%Z", "America/New_York").replace("%H:%M", "12:00")
    text = text.replace("%Y-%m-%d", "2024-07-01")
    assert times_of([text], time_format=pattern) == times_of(["2024-07-01 16:00"])


@pytest.mark.parametrize("text", ["2024-07-01 10:00 (Eastern Time)", "2024-07-01 (EST)"])
def test_a_name_in_brackets_that_would_be_lost_is_refused(text):
    with pytest.raises(InputError, match=f"cannot be read, the first {re.escape(repr(text))} in row 1"):
        times_of([text])


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("01-Jul-24 10:00:00", "%d-%b-%y %H:%M:%S"),
        ("1 July 24 10:00", "%d %B %y %H:%M"),
        ("Jul 1, 24 10:00 AM", "%b %d, %y %I:%M %p"),
        ("Jul 1 10:00:00 24", "%b %d %H:%M:%S %y"),
        ("01/Jul/24:10:00:00 +0000", "%d/%b/%y:%H:%M:%S %z"),
    ],
)
def test_a_year_of_two_digits_needs_a_format(text, pattern):
    with pytest.raises(InputError, match=f"cannot be read, the first {re.escape(repr(text))} in row 1"):
        times_of([text])
    whole = dt.datetime(2024, 7, 1, 10, tzinfo=dt.UTC)
    assert times_of([text], time_format=pattern) == times_of([whole.strftime(pattern.replace("%y", "%Y"))])
    assert times_of([text], time_format=pattern) == [int(whole.timestamp()) * 1_000_000]


def test_a_format_that_occurs_late_is_read_too():
    texts = ["2024-01-01 10:00:00"] * 1500 + ["Mon, 01 Jan 2024 10:00:00 GMT"]
    assert len(set(times_of(texts))) == 1


def test_an_unknown_zone_is_refused():
    with pytest.raises(
        InputError, match=r"1 of 2 times that cannot be read, the first '2024-01-01 10:00 XYZ' in row 2"
    ):
        times_of(["2024-01-01 10:00 UTC", "2024-01-01 10:00 XYZ"])


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ("%m/%d/%Y %I:%M %p", "with the month first: use --time-format '%m/%d/%Y %I:%M %p'"),
        ("%d.%m.%Y", "with the day first: use --time-format '%d.%m.%Y'"),
        ("%d-%m-%y %H:%M:%S", "with the day first: use --time-format '%d-%m-%y %H:%M:%S'"),
        ("%m %d, %Y", "with the month first: use --time-format '%m %d, %Y'"),
        ("%d/%m/%Y %I:%M:%S%p", "with the day first: use --time-format '%d/%m/%Y %I:%M:%S%p'"),
    ],
)
def test_numeric_dates_need_a_format_and_the_advice_works(shape, words, write, planted, say):
    texts = [at(moment + 86_400 * day).strftime(shape) for day, moment in enumerate([MOMENTS[1]] * 25)]
    with pytest.raises(InputError) as error:
        times_of(texts)
    assert words in str(error.value)
    advised = str(error.value).split("--time-format '")[1].split("'")[0]
    assert advised == shape
    assert times_of(texts, time_format=shape) == sorted(times_of(texts, time_format=shape))
    path = write([(*row[:3], f'"{at(row[3]).strftime(shape)}"') for row in planted])
    assert "text by" in say("fit", path, "--time-format", shape)
    assert "f@20" in say("evaluate", path.parent / "out")


def test_ambiguous_dates_are_refused_with_both_formats():
    with pytest.raises(InputError) as error:
        times_of(["01/02/2024", "03/04/2024"])
    assert "day and month either way round: use --time-format '%d/%m/%Y' or --time-format '%m/%d/%Y'" in str(
        error.value
    )
    with pytest.raises(InputError, match="dates in two orders; write them in one"):
        times_of(["13/02/2024", "03/14/2024"])


def test_invalid_formats_are_refused():
    for wrong, message in [
        ("day month", "has no directive such as %Y"),
        ("%I:%M %d/%m/%Y", "cannot be used: "),
        ("%d.%m.%Y", r"1 of 1 times .*; mend them or --time-format '%d\.%m\.%Y'"),
    ]:
        with pytest.raises(InputError, match=message):
            times_of(["02/01/2024 10:00"], time_format=wrong)
    with pytest.raises(InputError, match="is for a column of times; name it with --time-column"):
        read_log(pl.DataFrame({"user": [1], "item": [1]}), time_format="%d.%m.%Y")
    assert times_of([20240229, 20240301], time_format="%Y%m%d") == [1709164800000000, 1709251200000000]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("mark", [".", ","])
@pytest.mark.parametrize("day", ["%Y-%m-%d", "%d.%m.%Y", "%a, %d %b %Y"])
def test_fractions_of_a_second_after_a_point_or_a_comma(mark, day):
    """As in Python's logging, and with %f as in Python: .9 is later than .123456."""
    parts = {"9": 900_000, "123456": 123_456, "05": 50_000, "000": 0}
    texts = [f"{at(MOMENTS[1]).strftime(f'{day} %H:%M:%S')}{mark}{part}" for part in parts]
    expected = [1_000_000 * MOMENTS[1] + part for part in parts.values()]
    assert times_of(texts, time_format=f"{day} %H:%M:%S{mark}%f") == expected
    if not day.startswith("%d"):
        assert times_of(texts) == expected


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("%H:%M", "'%H:%M' has no day; write date and time in one column"),
        ("%d.%m.%Y %H%M%S%f", "%f goes behind '.' or ','; write %3f, %6f or %9f for as many digits"),
    ],
)
def test_formats_that_would_order_wrongly_are_refused(wrong, message):
    with pytest.raises(InputError, match=message):
        times_of([at(moment).strftime(wrong) for moment in MOMENTS], time_format=wrong)


@pytest.mark.parametrize(("factor", "unit"), [(1000, "milliseconds"), (10**6, "microseconds"), (10**9, "nanoseconds")])
@pytest.mark.parametrize("kind", [int, float, str])
def test_two_units_are_refused_with_both_examples(factor, unit, kind):
    moments = [kind(moment * factor if place == 2 else moment) for place, moment in enumerate(MOMENTS)]
    if kind is float and factor == 10**9:
        return  # Inexact floats are another error.
    with pytest.raises(InputError, match=rf"3 of seconds, such as .* in row 1, 1 of {unit}, such as .* in row 3"):
        times_of(moments)


def test_counters_are_not_a_mix_of_units():
    assert times_of([10**9 * 3**step for step in range(8)]) == [10**9 * 3**step for step in range(8)]


@pytest.mark.parametrize("name", ["t_dat", "unixReviewTime", "Review Time", "event_timestamp", "created", "order date"])
def test_usual_names_of_times(name):
    log = read_log(pl.DataFrame({"user": [1, 1], "item": [1, 2], name: [5, 3]}))
    assert log.report.columns["time"] == name


@pytest.mark.parametrize(
    ("name", "cells"),
    [
        ("when", MOMENTS[:2]),
        ("server_ts", [moment * 1000 for moment in MOMENTS[:2]]),
        ("x", ["2024-01-01", "2024-01-02T10:00:00Z"]),
        ("x", ["31.01.2024", "01.02.2024"]),
        ("x", ["01-Jul-24 10:00:00", "02-Jul-24 10:00:00"]),
        *(("x", [f"{day}{rest}" for day in (1, 2)]) for rest in ("-Jul-24", " July 24", "/Jul/24:10:00:00 +0000")),
        ("y", [dt.date(2024, 1, 1), dt.date(2024, 1, 2)]),
        ("Zeit (UTC)", [dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 2)]),
    ],
)
def test_a_column_that_looks_like_times_is_not_ignored(name, cells, say, tmp_path):
    frame = pl.DataFrame({"user": [1, 1], "item": [1, 2], name: cells})
    with pytest.raises(InputError, match=r"seems to hold times, .* or --time-column none if the order of rows counts"):
        read_log(frame)
    assert read_log(frame, columns=ColumnNames(time="none")).report.time.startswith("none; the order")
    # The other texts need a format.
    if not isinstance(cells[0], str) or cells[0].startswith("2024"):
        assert read_log(frame, columns=ColumnNames(time=name)).report.columns["time"] == name


def test_a_date_found_by_its_name_gives_way_to_finer_times_by_a_note():
    frame = pl.DataFrame({"user": [1, 1], "item": [1, 2], "day": ["2024-01-01"] * 2, "sent_at": MOMENTS[:2]})
    assert read_log(frame).report.notes[0] == (
        f"'day' is read as the time, but 'sent_at' seems to hold times too, such as {MOMENTS[0]}: "
        "--time-column 'sent_at' chooses it"
    )
    assert read_log(frame, columns=ColumnNames(time="day")).report.notes == ()
    assert read_log(frame.drop("sent_at")).report.notes == ()
    assert read_log(frame.rename({"sent_at": "appliedAt"})).report.columns["time"] == "appliedAt"


@pytest.mark.parametrize("scale", [1, 1000, 10**6])
def test_numbers_of_any_name_that_may_be_times_are_noted(write, say, scale):
    """A hint alone: ids and telephones may look alike."""
    cells = [1_714_550_000 * scale + place for place in range(40)]
    frame = pl.DataFrame({"user": [place % 8 for place in range(40)], "item": [place % 5 for place in range(40)]})
    frame = frame.with_columns(pl.Series("c3", cells))
    note = (
        f"no column is read as the time, but 'c3' may hold times, such as {cells[0]} (2024-05-01): --time-column 'c3' "
        "reads it as such"
    )
    report = read_log(frame).report
    assert note in report.notes
    assert "time" not in report.columns
    assert note in say("fit", write(frame.rows(), header="user,item,c3"))
    for time in ("c3", "none"):
        assert not [each for each in read_log(frame, columns=ColumnNames(time=time)).report.notes if "c3" in each]


@pytest.mark.parametrize(
    "cells", [[1_714_550_000] * 3, [5, 7, 9], [1_714_550_000, 3, 1_714_550_002], ["1714550000", "x", "1714550001"]]
)
def test_other_numbers_are_not_noted_as_times(cells):
    frame = pl.DataFrame({"user": [1, 1, 2], "item": [1, 2, 1], "c3": cells})
    assert not [each for each in read_log(frame).report.notes if "c3" in each]


@pytest.mark.parametrize(
    ("name", "cells"),
    [("price", [1_650_000_000, 2]), ("watch_time", [30, 90]), ("title", ["a", "2024"]), ("phone", MOMENTS[:2])],
)
def test_other_columns_are_not_taken_for_times(name, cells):
    assert "time" not in read_log(pl.DataFrame({"user": [1, 1], "item": [1, 2], name: cells})).report.columns


def test_times_can_be_disabled(write, planted, say):
    assert "time: none; the order of a user's rows" in say("fit", write(planted), "--time-column", "none")
    assert "time: none; the order of a user's rows" in say("evaluate", write(planted).parent / "out")


def labels_of(rows):
    frame = pl.DataFrame(rows, schema=["user", "item", "rating", "time"], orient="row")
    data = Dataset.from_log(read_log(frame))
    return leave_one_out(data).test.labels.items.tolist(), data.report


def test_ties_of_shuffled_logs_have_a_reproducible_order_and_are_reported(planted):
    days = [(user, item, rating, time // 86_400 * 86_400) for user, item, rating, time in planted]
    shuffled = [labels_of(random.Random(seed).sample(days, len(days))) for seed in range(3)]
    assert len({str(labels) for labels, _ in shuffled}) == 1
    labels, report = labels_of(days)
    assert labels == labels_of(planted)[0]
    assert report["ties"] == shuffled[0][1]["ties"] > 200
    said = f"{report['ties']} of 320 rows share their time with another row of their user; among these counts"
    assert report["notes"] == [f"{said} the log's own order"]
    assert shuffled[0][1]["notes"] == [f"{said} a draw for each user and item, as the log is not in time order"]


def test_a_log_ordered_within_users_keeps_its_order():
    rows = [(2, 9, 1, 50), (2, 3, 1, 50), (2, 7, 1, 50), (1, 8, 1, 10), (1, 2, 1, 10), (1, 5, 1, 10)]
    labels, report = labels_of(rows)
    assert [report["ties"], labels] == [6, [2, 3]]


def test_history_comes_before_future_among_ties():
    frame = pl.DataFrame(
        {"user": [1, 1, 1, 2, 2], "item": [1, 2, 3, 4, 5], "time": [9, 9, 3, 1, 2], "part": [0, 1, 1, 1, 0]}
    )
    data = Dataset.from_log(read_log(frame, columns=ColumnNames(boundary="part")))
    assert data.items.decode(data.histories[0]) == [3, 2, 1]
