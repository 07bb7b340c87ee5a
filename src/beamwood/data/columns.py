"""Which column means what: names given, or found by the field's aliases."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from beamwood.errors import InputError, nearest

__all__ = ["ALIASES", "ColumnNames", "find_column", "header_hint", "plain_name"]

# Preferred names first; a name of a later group counts only where the earlier groups have none.
ALIASES: dict[str, tuple[tuple[str, ...], ...]] = {
    "user": (
        ("user_id", "user", "userid", "uid", "visitorid", "visitor_id", "customer_id", "customerid"),
        ("session_id", "session", "sessionid"),
    ),
    "item": (
        ("item_id", "item", "itemid", "iid", "product_id", "productid", "movie_id", "movieid", "article_id", "asin"),
        ("news_id", "track_id", "video_id", "click_article_id", "parent_asin", "business_id"),
    ),
    "time": (
        ("timestamp", "datetime", "time", "ts", "event_time", "created_at", "click_timestamp", "unix_time"),
        (
            *("unixreviewtime", "unix_review_time", "unix_timestamp", "unixtime", "epoch", "time_stamp", "date_time"),
            *("timestamp_ms", "timestamp_s", "ts_ms", "event_timestamp", "event_ts", "eventtime", "event_datetime"),
            *("t_dat", "createdat", "created", "created_on", "click_time", "rating_timestamp", "rated_at", "viewed_at"),
        ),
        (
            *("reviewtime", "review_time", "review_date", "purchase_date", "purchased_at", "order_date", "ordered_at"),
            *("invoicedate", "invoice_date", "transaction_date", "event_date", "interaction_time", "occurred_at"),
        ),
        ("date", "day"),
    ),
    "weight": (("rating", "weight", "score", "event_weight"),),
}


@dataclass(frozen=True, slots=True)
class ColumnNames:
    """The columns to read; for None an alias is looked for, and there is no time or weight where none is found.

    `time="none"` has the order of rows count, whatever columns there are, unless one is called so.
    `context`: columns that say in which context an item was taken, such as the device; read as they are.
    """

    user: str | None = None
    item: str | None = None
    time: str | None = None
    weight: str | None = None
    boundary: str | None = None
    context: tuple[str, ...] = ()

    def resolve(self, there: Sequence[str], source: str, *, weighed: bool = True) -> dict[str, str]:
        """The column of each role that is known; user and item always are. Errors: those of `find_column`.

        Where weights are not `weighed`, several columns that could be them are as none.
        """
        found = {}
        roles = {"user": self.user, "item": self.item, "time": self.time}
        for role, named in (roles | {"weight": self.weight, "boundary": self.boundary}).items():
            if role == "time" and named == "none" and "none" not in there:
                continue
            needed = weighed or role != "weight"
            name = find_column(role, named, there, source, refuse_several=needed)
            if name is not None:
                found[role] = name
            elif role in ("user", "item"):
                known = ", ".join(ALIASES[role][0])
                raise InputError(
                    f"{source} has no {role} column; it has: {', '.join(there)}. Name it with --{role}-column, "
                    f"in Python ColumnNames({role}=...) (known by themselves: {known}){header_hint(there)}"
                )
        if found["user"] == found["item"]:
            raise InputError(
                f"{source}: column '{found['user']}' is named for both the user and the item; name another with "
                "--user-column or --item-column"
            )
        for name in self.context:
            if name not in there:
                raise InputError(f"{source} has no column '{name}' for the context{nearest(name, there)}")
        return found


def find_column(
    role: str,
    given: str | None,
    there: Sequence[str],
    source: str,
    *,
    also: Sequence[str] = (),
    fix: str | None = None,
    refuse_several: bool = True,
) -> str | None:
    """The column given for a role, or the only one whose name is an alias of it; None where none is.

    Names are compared in lower case, with "_" for blanks, dots and hyphens: "User ID" is "user_id".

    `also`: further aliases, looked for last. Errors: the given one is not there; several aliases are. The message names
    the source, the columns that were there and what settles it (`fix`). Several are as none without `refuse_several`.
    """
    if given is not None:
        if given not in there:
            raise InputError(f"{source} has no column '{given}' for the {role}; it has: {', '.join(there)}")
        return given
    for group in (*ALIASES.get(role, ()), also):
        found = [name for name in there if plain_name(name) in group]
        if len(found) > 1 and not refuse_several:
            return None
        if len(found) > 1:
            raise InputError(
                f"{source} has several columns for the {role}: {', '.join(found)}; "
                f"{fix or f'choose one with --{role}-column'}"
            )
        if found:
            return found[0]
    return None


def plain_name(name: str) -> str:
    """A column's name as aliases are written: "User ID" is "user_id"."""
    return re.sub(r"[\s.-]+", "_", name.strip().lower())


def header_hint(names: Sequence[str]) -> str:
    """What seems wrong with a text file whose first line gave these names; empty where nothing does."""
    if any("\x00" in name or "\ufffd" in name for name in names):
        return "; it seems to be UTF-16: save it as UTF-8"
    mark = next((mark for mark in ("::", ";", "\t", "|", ",") if len(names) == 1 and mark in names[0]), None)
    if mark is not None:
        return f"; its columns seem to be separated by {mark!r}: write it with commas as .csv, or with tabs as .tsv"
    if sum(re.fullmatch(r"\s*[+-]?[\d.]+\s*", name) is not None for name in names) >= 2:
        return "; its first line seems to hold values: put a line of names before it, such as user,item,rating,time"
    return ""
