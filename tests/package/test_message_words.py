"""Messages count in the right number, and no question mark is followed by a semicolon."""

import polars as pl
import pytest

import beamwood
from beamwood.cli.main import main
from beamwood.data import describe_log
from beamwood.data.description.words import description_lines
from beamwood.errors import ArtefactError, InputError
from beamwood.words import counted, followed


def test_words():
    assert [counted(number, "row") for number in (0, 1, 1200)] == ["0 rows", "1 row", "1,200 rows"]
    assert counted(1, "history has", "histories have") == "1 history has"
    assert counted(2, "history has", "histories have") == "2 histories have"
    assert followed("wrong", "mend it") == "wrong; mend it"
    assert followed("wrong; did you mean 'x'?", "mend it") == "wrong; did you mean 'x'? mend it"
    assert followed("Cannot be read.", "is it whole?") == "Cannot be read; is it whole?"


def test_what_follows_a_suggestion(tmp_path, capsys):
    frame = pl.DataFrame({"user": [1, 1, 1, 2, 2, 2], "item": [1, 2, 3, 2, 3, 1]})
    items = pl.DataFrame({"item": [1, 2, 3], "price": [1.0, 2.0, 3.0]})
    dataset = beamwood.Dataset.from_log(beamwood.read_log(frame), items, keep_columns=("price:number",))
    split = beamwood.splits.leave_one_out(dataset)
    fitted = beamwood.fit(split, "popularity")
    fitted.save(tmp_path / "mine")
    said = []
    for wrong in (
        lambda: fitted.recommend([[1]], k=1, where={"prize": {"lt": 2}}),
        lambda: beamwood.fit(split, "popularity", tme_limit=3),
        lambda: beamwood.load(tmp_path / "mina"),
    ):
        with pytest.raises((InputError, ArtefactError), match="did you mean") as error:
            wrong()
        said.append(str(error.value))
    assert main(["recomend"]) == 2
    said.append(capsys.readouterr().err)
    assert not [each for each in said if "?;" in each]
    assert all("? " in each for each in said)


def test_one_is_no_plural():
    frame = pl.DataFrame({"user": [1, 2], "item": [1, 1]})
    told = "\n".join(description_lines(describe_log(frame)))
    assert "the median has 1 row," in told
    assert repr(beamwood.Dataset.from_log(beamwood.read_log(frame))) == "Dataset of 2 users, 1 item, 2 rows"
    repeated = pl.DataFrame({"user": [1, 2, 2], "item": [1, 1, 1], "time": [1, 2, 2]})
    assert "1 row repeats another one exactly; kept" in beamwood.read_log(repeated).report.lines()[2]
