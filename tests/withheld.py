"""A service that lives through random changes, and what its answers may say of hidden and erased items and users."""

import json
from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl
from scipy import sparse

from beamwood.data import Vocabulary
from beamwood.retrieval.searchers.blend import Blend, Part
from beamwood.retrieval.searchers.neighbours import NeighbourSearcher
from beamwood.retrieval.searchers.popularity import PopularitySearcher
from retrieval_cases import retriever_of, tree_searcher, vector_searcher
from served import item_table, post

N, NEW, USERS = 60, 8, (3, 5, 7, 11)


def neighbours(num_items):
    similarity = sparse.random(num_items, num_items, 0.1, "csr", np.float32, np.random.default_rng(0))
    return NeighbourSearcher(similarity, np.arange(num_items) % 13)


SEARCHERS = {
    "tree": tree_searcher,
    "steered tree": lambda num: tree_searcher(num, steered=True),
    "vectors": vector_searcher,
    "counts": neighbours,
    "popular": lambda num: PopularitySearcher(np.arange(num) % 17),
    "sum": lambda num: Blend(
        [Part(tree_searcher(num), gate="history"), Part(neighbours(num), 0.5)],
        seen_weight=0.5,
        num_candidates=20,
        fallback=PopularitySearcher(np.arange(num)),
    ),
    "two stages": lambda num: Blend([Part(neighbours(num), 0.0), Part(vector_searcher(num))], num_candidates=15),
}


def folders(root, kind):
    """The folders "one" and "more", which also knows half of the items that are new to "one"."""
    one = retriever_of(SEARCHERS[kind](N), num_users=20)
    one.save(root / "one")
    ids = pl.concat([one.items.ids, pl.Series([f"new-{at}" for at in range(NEW // 2)])])
    more = replace(retriever_of(SEARCHERS[kind](N + NEW // 2), num_users=20), items=Vocabulary(ids.rename("id")))
    replace(more, histories=one.histories).save(root / "more")
    item_table(root / "items.parquet", one)
    return one


@dataclass
class World:
    """A service, and what its answers may say."""

    client: object
    retriever: object
    rng: object
    hidden: set = field(default_factory=set)
    erased: set = field(default_factory=set)
    new: set = field(default_factory=set)
    own: dict = field(default_factory=dict)
    pages: list = field(default_factory=list)
    erasures: dict = field(default_factory=dict)
    model: str = "one"

    def __post_init__(self):
        self.known = self.retriever.items.ids.to_list()
        rows = [self.retriever.histories[user].tolist() for user in USERS]
        self.own = {user: self.retriever.items.decode(row) for user, row in zip(USERS, rows, strict=True)}

    @property
    def fitted(self):
        more = [f"new-{at}" for at in range(NEW // 2)] if self.model == "more" else []
        return {*self.known, *more}

    @property
    def there(self):
        return sorted((self.fitted | self.new) - self.erased)

    def some(self, most, items=None):
        items = self.there if items is None else sorted(items)
        return self.rng.permutation(items)[: int(self.rng.integers(0, most + 1))].tolist()

    def ask(self, method, path, body=None, status=200):
        answer = self.client.request(method, path, json=body)
        assert answer.status_code == status, (path, body, answer.text)
        return answer.json()

    # Changes.

    def hide(self):
        items = self.some(4)
        self.ask("PUT", "/v1/items/availability", {"clear": items})
        self.hidden |= set(items)

    def show(self):
        items = self.some(3, self.hidden & set(self.there))
        self.ask("PUT", "/v1/items/availability", {"set": items})
        self.hidden -= set(items)

    def patch(self):
        for item in self.some(1, self.new - self.erased):
            shown = bool(self.rng.integers(2))
            self.ask("PATCH", f"/v1/items/{item}", {"available": shown})
            (self.hidden.discard if shown else self.hidden.add)(item)

    def erase(self):
        for item in self.some(2):
            assert self.ask("DELETE", f"/v1/items/{item}")["changed"] == 1
            self.erased.add(item)

    def put(self):
        for number in self.rng.permutation(NEW)[:2].tolist():
            item = f"new-{number}"
            if item in self.fitted and item not in self.erased:
                continue
            twins = self.some(2, set(self.known) - self.erased)
            body = {"item": item, "similar": twins, "category": "c1", "available": bool(self.rng.integers(4))}
            # One that was erased when it was fitted stays so.
            if self.client.request("PUT", "/v1/items", json={"items": [body]}).status_code == 409:
                assert item in self.erased
                continue
            self.new.add(item)
            self.erased.discard(item)
            (self.hidden.discard if body["available"] else self.hidden.add)(item)

    def forget(self):
        user = int(self.rng.choice(USERS))
        self.ask("DELETE", f"/v1/users/{user}")
        self.own[user] = []
        self.erasures[user] = self.erasures.get(user, 0) + 1

    def take(self):
        user, items = int(self.rng.choice(USERS)), self.some(3)
        if items and self.rng.integers(2):
            session = f"s-{self.rng.integers(10**9)}"
            post(self.client, "/v1/events", {"events": [{"session": session, "item": item} for item in items]})
            post(self.client, "/v1/users/merge", {"session": session, "user": user})
        elif items:
            post(self.client, "/v1/events", {"events": [{"user": user, "item": item} for item in items]})
        self.own[user] = self.own[user] + items

    def swap(self):
        self.model = "more" if self.model == "one" else "one"
        self.ask("POST", "/v1/models/load", {"path": self.model})
        self.pages.clear()

    # Answers.

    def check(self, answer, *, listed=("items",)):
        """No erased id anywhere but among the unknown ones, and no hidden item in a list."""
        text = json.dumps({name: value for name, value in answer.items() if name != "unknown_items"})
        assert not [item for item in self.erased if f'"{item}"' in text], text
        for name in listed:
            shown = {each["item"] for each in answer[name]}
            assert not shown & (self.hidden | self.erased)
        return answer

    def wishes(self):
        """A random request without its history."""
        rng, body = self.rng, {"k": int(self.rng.integers(1, N + NEW))}
        body["exclude_seen"] = bool(rng.integers(2))
        body |= {"explain": "full"} if rng.random() < 0.3 else {}
        asked = {}
        if rng.random() < 0.4:
            asked["items"] = self.some(40, {*self.known, *self.new, *self.erased, "nobody"})
        if rng.random() < 0.4:
            asked["category"] = ["c1", "c2"]
        if rng.random() < 0.4:
            asked["where"] = {"price": {"lte": 30}}
        body |= {"filter": asked} if asked else {}
        if rng.random() < 0.2:
            body["exclude"] = self.some(5, {*self.there, *self.erased})
        if rng.random() < 0.2:
            body["max_per_category"] = 3
        if rng.random() < 0.2:
            body["promote"] = [{"filter": {"where": {"stock": True}}, "share": 0.3}]
        if rng.random() < 0.2 and self.retriever.searcher.kind in ("tree", "vectors"):
            body["diversity"] = 0.5
        if rng.random() < 0.2:
            body["dry_run"] = True
        return body

    def recommended(self):
        for user in USERS:
            body = self.wishes()
            found = self.check(post(self.client, "/v1/recommend", body | {"user": user}))
            own = [item for item in self.own[user] if item in self.there]
            same = self.check(post(self.client, "/v1/recommend", body | {"history": own}))
            assert [(each["item"], each["score"]) for each in found["items"]] == [
                (each["item"], each["score"]) for each in same["items"]
            ]
        events = self.some(5, {*self.there, *self.erased})
        # Rows are not explained in full.
        body |= {"explain": "scores"}
        rows = [body | {"user": user, "events": events}, body | {"history": []}, body | {"session": "none"}]
        for row in post(self.client, "/v1/recommend/batch", {"requests": rows})["rows"]:
            self.check(row["ok"])

    def paged(self):
        user = int(self.rng.choice(USERS))
        first = self.check(post(self.client, "/v1/recommend", {"user": user, "k": 3, "pages": True}))
        if "cursor" in first:
            self.pages.append((first["cursor"], user, self.erasures.get(user, 0)))
        for cursor, owner, erasures in self.pages:
            if self.erasures.get(owner, 0) > erasures:
                assert post(self.client, "/v1/recommend", {"cursor": cursor}, 410)["error"]["code"] == "gone"
            else:
                self.check(post(self.client, "/v1/recommend", {"cursor": cursor, "k": 9}))

    def listed(self):
        everything = sorted({*self.known, *self.new, *self.erased, "nobody"})
        user = int(self.rng.choice(USERS))
        for who in ({"user": user}, {"history": self.some(4)}):
            scored = self.check(post(self.client, "/v1/score", {"items": everything} | who))
            left = {*self.known, *self.new} - self.hidden - self.erased
            assert left <= {each["item"] for each in scored["items"]}
            assert not self.hidden & set(scored["unknown_items"]) - self.erased
        for by in ("model", "vectors", "tree"):
            for asked in (self.some(3), [*self.some(1, self.hidden), *self.some(2, self.erased)]):
                if asked:
                    answer = self.client.post("/v1/similar", json={"items": asked, "by": by, "k": 30})
                    assert answer.status_code in (200, 404, 422), answer.text
                    if answer.status_code == 200:
                        self.check(answer.json())

    def catalogued(self):
        placed = {each["item"]: each for each in self.check(self.ask("GET", "/v1/items"), listed=())["items"]}
        new = self.new - self.erased - self.fitted
        assert new == set(placed)
        for item in new:
            assert placed[item]["available"] == (item not in self.hidden)

    def told(self):
        user = int(self.rng.choice(USERS))
        history = self.ask("GET", f"/v1/users/{user}/history?limit=1000")
        told = [*history.get("model", []), *(each["item"] for each in history["events"])]
        assert [item for item in told if item in self.there] == [item for item in self.own[user] if item in self.there]
        assert not self.erased & set(history.get("model", []))

    def viewed(self):
        user, (word, *_) = int(self.rng.choice(USERS)), [*self.some(1, self.hidden | self.erased), "title", "item"]
        page = self.client.get("/", params={"user": user, "find": word, "k": 50})
        assert page.status_code == 200, page.text
        shown = page.text.split('id="found"')[1].split("</section>")[0]
        named = [item for item in (self.hidden | self.erased) if f"<small>{item}</small>" in shown]
        assert not named
        for item in self.hidden | self.erased:
            assert f'data-item="{item}"' not in page.text

    def measured(self):
        text = self.client.get("/metrics").text
        assert '="item ' not in text
        assert "new-" not in text


FIRST = ("put", "hide", "erase", "forget", "take", "swap")
CHANGES = ("hide", "hide", "show", "patch", "erase", "put", "put", "forget", "take", "take", "swap")
ANSWERS = ("recommended", "paged", "listed", "catalogued", "told", "viewed", "measured")
