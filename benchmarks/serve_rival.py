"""The usual alternative to `beamwood serve`: FastAPI with two towers in an HNSW graph.

`python -m benchmarks.serve_rival FOLDER PORT`; the handler follows FastAPI's documentation and runs in its thread pool.
"""

from __future__ import annotations

import sys

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

import beamwood


class Wanted(BaseModel):
    history: list[int]
    k: int = 20


class Found(BaseModel):
    item: int
    score: float
    rank: int


class Answer(BaseModel):
    items: list[Found]


def build(folder: str) -> FastAPI:
    """The application."""
    app, retriever = FastAPI(), beamwood.load(folder)

    def recommend(wanted: Wanted) -> Answer:
        found = retriever.recommend([wanted.history], wanted.k, on_unknown="ignore")
        rows = zip(found.item_ids[0], found.scores[0], found.rank[0], strict=True)
        return Answer(items=[Found(item=item, score=score, rank=rank) for item, score, rank in rows])

    # FastAPI cannot resolve annotations of a nested function by name, so they are set as types.
    recommend.__annotations__ = {"wanted": Wanted, "return": Answer}
    app.post("/v1/recommend")(recommend)
    app.get("/readyz")(lambda: {"status": "ready"})
    return app


if __name__ == "__main__":
    uvicorn.run(build(sys.argv[1]), port=int(sys.argv[2]), log_level="warning", access_log=False)
