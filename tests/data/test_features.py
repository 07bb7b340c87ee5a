"""Table columns as arrays: known results, unknown and missing values."""

import datetime
from decimal import Decimal

import numpy as np
import polars as pl
import pytest

from beamwood.data.features import encode_columns, encode_context, fit_columns
from beamwood.data.kept_columns import kept_column
from beamwood.errors import InputError

FRAME = pl.DataFrame(
    {
        "genre": ["a|b", "b", None, ""],
        "year": [1990.0, None, 2010.0, float("nan")],
        "vector": [[1.0, 2.0], [3.0, 4.0], None, [0.0, 1.0]],
        "age": [1, 2, 3, 4],
        "tags": [["x"], ["y", "x"], [], None],
    }
)


def test_kinds_are_detected_and_can_be_given():
    columns = fit_columns(FRAME, ["genre", "year", "vector", "age:category", "tags"])
    assert [column.kind for column in columns] == ["category", "number", "vector", "category", "category"]
    assert columns[0].values == ("a", "b")
    assert (columns[1].mean, columns[1].deviation) == (2000.0, 10.0)
    assert columns[2].width == 2
    assert columns[3].values == ("1", "2", "3", "4")


def test_encoding_by_hand():
    columns = fit_columns(FRAME, ["genre", "year", "vector"])
    arrays = encode_columns(columns, FRAME).arrays
    assert arrays["genre"].tolist() == [[1, 2], [2, -1], [0, -1], [0, -1]]
    assert arrays["year"].tolist() == [[-1, 0], [0, 1], [1, 0], [0, 1]]
    assert arrays["vector"].tolist() == [[1, 2, 0], [3, 4, 0], [0, 0, 1], [0, 1, 0]]


def test_values_unseen_in_training_are_unknown():
    columns = fit_columns(FRAME, ["genre", "year"])
    new = pl.DataFrame({"genre": ["c|a", "z"], "year": ["2020", None]})
    arrays = encode_columns(columns, new).arrays
    assert arrays["genre"].tolist() == [[0, 1], [0, -1]]
    assert arrays["year"].tolist() == [[2, 0], [0, 1]]


def test_a_text_with_an_unseen_value_is_noted():
    frame = pl.DataFrame({"device": ["phone|web", "tv"], "hour": [1, 2]})
    device, hour = fit_columns(frame, ["device", "hour"])
    assert device.unseen("phone | tv") is device.unseen("") is hour.unseen("7") is None
    assert device.unseen("tv|webb").endswith("no value 'webb', so it counts as missing; did you mean 'web'?")


def test_a_missing_row():
    table = encode_columns(fit_columns(FRAME, ["genre", "year", "vector"]), FRAME).with_missing_row()
    assert len(table) == 5
    assert table.take(np.array([4])).arrays["genre"].tolist() == [[0, -1]]
    assert table.arrays["year"][-1].tolist() == [0, 1]
    assert table.arrays["vector"][-1].tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["gener"], "no column 'gener'.*'genre'"),
        (["genre:numbr"], "kind 'numbr' is unknown.*number"),
        (["genre", "genre"], "one column twice"),
        (["genre:vector"], "holds lists of numbers"),
        (["genre:number"], "values that are not numbers, such as 'a.b'.*genre:category"),
    ],
)
def test_wrong_columns(names, message):
    with pytest.raises(InputError, match=message):
        fit_columns(FRAME, names)


@pytest.mark.parametrize("dtype", [pl.String, pl.Categorical, pl.Enum(["", " 20 ", "21,5", "22,25"])])
def test_text_numbers_are_read_as_kept_columns_are(dtype):
    frame = pl.DataFrame({"price": pl.Series(["21,5", " 20 ", "", None, "22,25"], dtype=dtype)})
    numbers = encode_columns(fit_columns(frame, ["price:number"]), frame).arrays["price"]
    plain = pl.DataFrame({"price": [21.5, 20, None, None, 22.25]})
    assert numbers.tolist() == encode_columns(fit_columns(plain, ["price"]), plain).arrays["price"].tolist()
    assert kept_column(frame, "price:number").to_list() == plain["price"].to_list()


@pytest.mark.parametrize("read", [kept_column, lambda frame, name: fit_columns(frame, [name])])
def test_commas_beside_points_are_refused_and_the_form_is_shown(read):
    frame = pl.DataFrame({"item": [1, 2], "price": ["21,5", "12.5"]})
    with pytest.raises(InputError, match=r"'21,5'.*; give numbers, as 1.5, or"):
        read(frame, "price:number")


def test_a_name_with_colons_needs_its_kind():
    frame = pl.DataFrame({"a:b": ["x", "y"], "a": ["p", "q"], "number:number": [1, 3]})
    columns = fit_columns(frame, ["a:b:category", "a:category", "number:number:number"])
    assert [column.name for column in columns] == ["a:b", "a", "number:number"]
    assert encode_columns(columns, frame).arrays["a:b"].tolist() == [[1], [2]]
    with pytest.raises(InputError, match="column 'a:b' contains a colon; give its kind too, as 'a:b:category'"):
        fit_columns(frame, ["a:b"])


def test_vectors_of_decimals_are_numbers():
    cells = [[Decimal("1.5"), Decimal(2)], None]
    frame = pl.DataFrame({"v": cells}, schema={"v": pl.List(pl.Decimal(10, 2))})
    assert encode_columns(fit_columns(frame, ["v"]), frame).arrays["v"].tolist() == [[1.5, 2, 0], [0, 0, 1]]


def test_wrong_rows():
    years = fit_columns(FRAME, ["year"])
    with pytest.raises(InputError, match="column 'year' holds 1 value that is no number, such as 'x'"):
        encode_columns(years, pl.DataFrame({"year": ["1999", "x"]}))
    with pytest.raises(InputError, match="holds no number"):
        fit_columns(pl.DataFrame({"size": [None, float("nan")]}, schema={"size": pl.Float64}), ["size"])
    columns = fit_columns(FRAME, ["vector"])
    with pytest.raises(InputError, match="row 0 has 3 numbers, training had 2"):
        encode_columns(columns, pl.DataFrame({"vector": [[1.0, 2.0, 3.0]]}))
    with pytest.raises(InputError, match="no column 'vector'"):
        encode_columns(columns, pl.DataFrame({"other": [1]}))
    with pytest.raises(InputError, match="vectors of lengths"):
        fit_columns(pl.DataFrame({"v": [[1.0], [1.0, 2.0]]}), ["v"])


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("length", [datetime.timedelta(1)], r"'length' of type Duration.* holds no categories; make them text"),
        ("blob", [b"\xff"], "'blob' of type Binary holds no categories"),
        ("length:number", [datetime.timedelta(1)], "'length' of type Duration.* holds no numbers; make it numbers"),
        ("tags:number", [["x"]], r"'tags' of type List\(String\) holds no numbers"),
        ("blob:number", [b"1"], "'blob' of type Binary holds no numbers"),
        ("tags:vector", [["x"]], r"List\(String\); a vector column holds lists of numbers"),
    ],
)
def test_unsupported_types_are_refused(column, values, message):
    with pytest.raises(InputError, match=message):
        fit_columns(pl.DataFrame({column.partition(":")[0]: values}), [column])


def test_lists_of_any_labels():
    frame = pl.DataFrame({"none": [[], []], "flags": [[True, False], []], "days": [[datetime.date(2020, 1, 1)], None]})
    columns = fit_columns(frame, ["none", "flags", "days"])
    assert [column.values for column in columns] == [(), ("false", "true"), ("2020-01-01",)]
    assert encode_columns(columns, frame).arrays["flags"].tolist() == [[2, 1], [0, -1]]


def test_a_constant_column_has_no_effect():
    column = fit_columns(pl.DataFrame({"size": [7.0, 7.0]}), ["size"])
    assert encode_columns(column, pl.DataFrame({"size": [7.0, 9.0]})).arrays["size"].tolist() == [[0, 0], [2, 0]]


def test_numbers_too_large_for_a_network_are_refused():
    frame = pl.DataFrame({"item": ["a", "b", "c"], "x": [1.0, 2.0, 3.0], "v": [[1.0], [2.0], [3.0]]})
    columns = fit_columns(frame, ["x", "v"])
    far = encode_columns(columns, {"x": [1e308, -1e308, None], "v": [[0.5]] * 3})
    assert far.arrays["x"].tolist() == [[1e4, 0], [-1e4, 0], [0, 1]]
    with pytest.raises(InputError, match=r"'v' row 1 holds a number beyond 1e\+09; scale it down"):
        encode_columns(columns, {"x": [1.0, 2.0], "v": [[0.5], [-1e39]]})
    with pytest.raises(InputError, match=r"'x' holds numbers up to 1e\+308; mend them, or scale them down"):
        fit_columns(frame.with_columns(x=pl.Series([1e308, 0.0, 0.0])), ["x"])


def test_vectors_too_large_for_a_network_are_scaled_as_a_whole():
    vectors = [[3e14, -4e14], [3e14, 4e14], [1e300, float("inf")], None]
    (column,) = fit_columns(pl.DataFrame({"v": vectors}), ["v"])
    scale = np.sqrt(12.5) * 1e14
    assert column.deviation == pytest.approx(scale)
    encoded = encode_columns([column], {"v": vectors}).arrays["v"]
    expected = [[3e14 / scale, -4e14 / scale, 0], [3e14 / scale, 4e14 / scale, 0], [0, 0, 1], [0, 0, 1]]
    np.testing.assert_allclose(encoded, expected, rtol=1e-6)
    # Numbers in the supported range are unchanged.
    assert fit_columns(pl.DataFrame({"v": [[1e4, 1.0]]}), ["v"])[0].deviation == 1


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (["x"], r"'vector' holds 'x', which is not a list of numbers; give a list of 2 numbers, as \[1, 2\]"),
        (["1,2"], "'vector' holds '1,2', which is not a list"),
        (["["], r"'vector' holds '\[', which is not a list"),
        ([5], "'vector' holds 5, which is not a list of numbers"),
        ([["a", "b"]], r"'vector' holds \['a', 'b'\], which is not a list of numbers"),
        ([[True, False]], r"'vector' holds \[True, False\], which is not a list of numbers"),
        (["[1]"], "'vector' row 0 has 1 number, training had 2"),
    ],
)
def test_cells_that_are_not_vectors_are_refused(cells, message):
    with pytest.raises(InputError, match=message):
        encode_columns(fit_columns(FRAME, ["vector"]), {"vector": cells})


def test_a_vector_may_be_a_json_list():
    columns = fit_columns(FRAME, ["vector"])
    assert encode_columns(columns, {"vector": ["[1, 2.5]", None]}).arrays["vector"].tolist() == [[1, 2.5, 0], [0, 0, 1]]


def test_context_accepts_times_and_truth_values_as_text():
    frame = pl.DataFrame(
        {
            "when": [datetime.datetime(2024, 1, 1), datetime.datetime(2024, 1, 3)],
            "day": [datetime.date(2024, 1, 1), datetime.date(2024, 1, 3)],
            "flag": [False, True],
        }
    )
    for unit in ("ms", "us", "ns"):
        known = frame.with_columns(pl.col("when").dt.cast_time_unit(unit))
        columns = fit_columns(known, ["when:number", "day:number", "flag:number"])
        asked = {
            "when": ["2024-01-03", "2024-01-01T02:00:00+02:00", "2024-01-02T00:00:00Z", None],
            "day": ["2024-01-03", "2024-01-01T23:59", "2024-01-02", None],
            "flag": ["True", "false", "0", None],
        }
        found = encode_columns(columns, asked).arrays
        np.testing.assert_allclose(found["when"], [[1, 0], [-1, 0], [0, 0], [0, 1]], atol=1e-6)
        np.testing.assert_allclose(found["day"], [[1, 0], [-1, 0], [0, 0], [0, 1]], atol=1e-6)
        assert found["flag"].tolist() == [[1, 0], [-1, 0], [-1, 0], [0, 1]]
        assert encode_columns(columns[:1], {"when": [datetime.datetime(2024, 1, 3)]}).arrays["when"][0, 0] == 1
    for name, text, fix in (
        ("when", "noon", "give dates and times, as 2024-05-01T12:30:00"),
        ("flag", "yes", "give true or false"),
    ):
        column = [each for each in columns if each.name == name]
        with pytest.raises(InputError, match=f"'{name}' holds 1 value that is no number, such as '{text}'; {fix}"):
            encode_columns(column, {name: [text]})


@pytest.mark.parametrize("name", ["^n.*$", "*", "^$"])
@pytest.mark.parametrize("cells", [["a|b", None], [["a"], []], [1.0, 2.0], [[1.0], None], [True, None], ["1", "x"]])
def test_a_column_name_is_not_read_as_a_pattern(name, cells):
    kind = {float: ":number", bool: ":category"}.get(type(cells[0]), "")
    frame, plain = pl.DataFrame({name: cells, "nn": [7, 8]}), pl.DataFrame({"plain": cells})
    found = encode_columns(fit_columns(frame, [name + kind]), frame).arrays[name]
    assert found.tolist() == encode_columns(fit_columns(plain, ["plain" + kind]), plain).arrays["plain"].tolist()
    with pytest.raises(InputError, match="holds 1 value that is no number"):
        fit_columns(pl.DataFrame({name: ["x", "1"]}), [f"{name}:number"])


def test_array_columns_are_read_as_lists():
    frame = pl.DataFrame({"^a.*$": pl.Series([[1, 2], None], dtype=pl.Array(pl.Int64, 2))})
    assert encode_columns(fit_columns(frame, ["^a.*$"]), frame).arrays["^a.*$"].tolist() == [[1, 2, 0], [0, 0, 1]]


def test_a_context_is_encoded_by_the_used_columns():
    frame = pl.DataFrame({"device": ["tv", None, "phone"], "hour": [3.0, 5.0, None], "other": [1, 2, 3]})
    columns = fit_columns(frame, ["device", "hour"])
    given = encode_context(columns, frame, 3)
    for column in columns:
        assert np.array_equal(given[column.key], encode_columns(columns, frame).arrays[column.name])
    # An absent value is missing, like a null.
    nothing = encode_context(columns, None, 2)
    nulls = encode_columns(columns, frame.with_columns(pl.lit(None).alias(name) for name in ("device", "hour")))
    for column in columns:
        assert np.array_equal(nothing[column.key], nulls.arrays[column.name][:2])
    assert encode_context((), frame, 3) is None
    # The same column learned from other rows is not equal.
    assert fit_columns(frame[:1], ["device"])[0].key != columns[0].key == fit_columns(frame, ["device"])[0].key


def test_columns_of_one_name_with_other_encodings_have_other_keys():
    """A query holds the columns of several models, which may have seen other values."""
    one, other = (fit_columns(pl.DataFrame({"colour": values}), ["colour"])[0] for values in (["red"], ["blue"]))
    assert one.key != other.key
    assert one.key == fit_columns(pl.DataFrame({"colour": ["red", "red"]}), ["colour"])[0].key
