"""New items of a server under test: put, asked for, and found in answers."""

import numpy as np

from beamwood.serve.settings import Limits
from served import NUM_ITEMS, post

WIDE = {"limits": Limits(new_item_share=1.0)}


def known(folder, *places):
    return folder[1].items.decode(np.array(places))


def ask(client, method, path, body=None, status=200):
    answer = client.request(method, path, json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


def put(client, *items, status=200):
    return ask(client, "PUT", "/v1/items", {"items": list(items)}, status)


def answered(client, **body):
    return post(client, "/v1/recommend", {"k": NUM_ITEMS + 5} | body)["items"]


def ids(client, **body):
    return [item["item"] for item in answered(client, **body)]
