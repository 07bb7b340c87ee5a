"""Reading the latest events of an owner takes as long with many stored ones as with few."""

from contextlib import closing

import pytest

from beamwood.errors import InputError
from beamwood.serve.store.event import Event
from beamwood.serve.store.open import open_store
from store_servers import KINDS, address_of

FEW, MANY = 200, 4000
# Later events of 500 other owners, in turn.
OTHERS = """
insert into beamwood_events (owner, time, item, type, weight, identity, content)
select 't' || number % 500, number, 'n1', '', 1, int8send(number), int8send(number)
from generate_series(1, 50000) as number
"""


def stored(store, owner, number):
    events = [Event(owner, item, 1e9 + item) for item in range(number)]
    store.append(events).result()


def test_sqlite_takes_as_many_steps(tmp_path):
    """Steps of its virtual machine, in tens; nothing is timed."""
    steps = {}
    store = open_store(f"sqlite:{tmp_path / 'events.db'}")
    for owner, number in ((1, FEW), (2, MANY)):
        stored(store, owner, number)
        for name, read in {
            "history": lambda owner=owner: store.history(owner, last=10),
            "history of a type": lambda owner=owner: store.history(owner, types=[""], last=10),
            "page": lambda owner=owner: store.page(owner, limit=10),
        }.items():
            counted = []
            store._readers.use(lambda own, counted=counted: own.set_progress_handler(lambda: counted.append(1), 10))
            assert read()
            steps[name, owner] = len(counted)
    store.close()
    for name in ("history", "history of a type", "page"):
        assert steps[name, 2] < 2 * steps[name, 1], steps


def test_postgres_reads_few_blocks_of_its_table(request, tmp_path):
    """A full read of this table takes more than 500 blocks."""
    import psycopg

    address = address_of("postgres", request, tmp_path)
    store, asked = open_store(address), []
    with psycopg.connect(address, autocommit=True) as connection:
        stored(store, 1, FEW)
        connection.execute(OTHERS)
        connection.execute("analyze beamwood_events")
        read = store._read
        store._read = lambda *statement: asked.append(statement) or read(*statement)
        assert store.history(1, last=10).seq == FEW
        assert len(store.history(1, types=[""], last=10).items) == 10
        assert len(store.page(1, limit=10)) == 10
        for statement, arguments in asked:
            explained = f"explain (analyze, buffers, format json) {statement.replace('?', '%s')}"
            ((((about,),)),) = connection.execute(explained, arguments).fetchall()
            assert about["Plan"]["Shared Hit Blocks"] + about["Plan"]["Shared Read Blocks"] < 20, about
    store.close()


@pytest.mark.parametrize("kind", KINDS)
def test_events_of_a_type_are_looked_for_among_the_latest(kind, request, tmp_path, monkeypatch):
    """Else an owner with very many others, as a robot, would hold up all reads."""
    module = {"postgres": "sql", "sqlite": "sql"}.get(kind, kind)
    monkeypatch.setattr(f"beamwood.serve.store.{module}.LOOKED_THROUGH", 5)
    with closing(open_store(address_of(kind, request, tmp_path))) as store:
        kinds = ["buy", "buy", "view", "buy", "view", "view", "skip"]
        events = [Event(1, item, 1e9 + item, type=each) for item, each in enumerate(kinds)]
        seqs = [store.append([event]).result().seq for event in events]
        assert store.history(1, types=["buy"]).items == (3,)
        assert store.history(1, types=["view", "buy"], last=2).items == (4, 5)
        assert store.history(1, types=["buy", "skip"]).items == (3, 6)
        assert store.history(1, types=["buy"], until=seqs[5]).items == (1, 3)
        assert store.history(1, types=["buy"], last=1).items == (3,)
        assert store.history(1, types=[]).items == ()
        assert store.history(1).items == tuple(range(7))


def test_a_table_of_an_earlier_version_is_refused_until_it_is_altered(request, tmp_path):
    import psycopg

    address = address_of("postgres", request, tmp_path)
    open_store(address).close()
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("drop index beamwood_events_number, beamwood_events_owner")
        connection.execute('alter table beamwood_events alter column owner type text collate "default"')
        connection.execute('create index beamwood_events_owner on beamwood_events (owner collate "C", time, seq)')
        connection.execute(OTHERS)
        with pytest.raises(InputError, match="beamwood_events is of an earlier version") as refused:
            open_store(address)
        connection.execute(str(refused.value).partition("run: ")[2])
        store = open_store(address)
        plan = connection.execute("explain select seq from beamwood_events where owner = 't7' order by time desc")
        assert "Seq Scan" not in str(plan.fetchall())
        assert store.history("7", last=1).items == (1,)
        store.close()
