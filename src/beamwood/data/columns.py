"""The columns of a log by role: named, or found by common aliases."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from beamwood.data.header import header_hint
from beamwood.errors import InputError, closest, nearest

__all__ = [
    "ALIASES",
    "DATES",
    "USUAL_EVENTS",
    "ColumnNames",
    "MissingColumnError",
    "find_column",
    "known_names",
    "with_article",
    "plain_name",
    "squashed",
]

# Preferred names first; a name of a later group counts only where the earlier groups have none.
_ALIASES = {
    "user": (
        "user_id user uid visitor_id customer_id",
        (
            "customer_number customer_no customer cust_id client_id client member_id member account_id account "
            "reviewer_id reader_id person_id profile_id buyer_id shopper_id subscriber_id player_id listener_id "
            "viewer_id household_id household_key user_name user_uuid user_hash user_key user_no user_number "
            "user_idx visitor msno"
        ),
        (
            "reader buyer shopper subscriber player listener viewer student_id student learner_id learner "
            "candidate_id candidate applicant_id applicant user_email email"
        ),
        "anonymous_id cookie_id device_id client_ip",
        "session_id session visit_id ga_session_id",
    ),
    "item": (
        "item_id item iid product_id movie_id article_id asin",
        "news_id track_id video_id click_article_id parent_asin business_id",
        (
            "sku sku_id product product_code product_number product_no product_sku stock_code item_code item_number "
            "item_no item_key item_idx goods_id article article_number movie film_id show_id title_id anime_id video "
            "clip_id book_id isbn song_id track game_id app_id recipe_id listing_id offer_id hotel_id job_id post_id "
            "content_id media_id document_id doc_id page_id photo_id course_id poi_id venue_id restaurant_id "
            "place_id gmap_id property_id ad_id ean upc gtin"
        ),
        "course job book song game app recipe listing film show episode_id podcast_id",
        "artist_id author_id url page_url",
    ),
    "time": (
        "timestamp datetime time ts event_time created_at click_timestamp unix_time",
        (
            "unix_review_time unix_timestamp epoch timestamp_ms timestamp_s ts_ms event_timestamp event_ts "
            "event_datetime t_dat created created_on click_time rating_timestamp rated_at viewed_at time_ms "
            "server_time utc_time listened_at utc_timestamp"
        ),
        (
            "review_time review_date purchase_date purchase_time purchased_at order_date order_time ordered_at "
            "invoice_date transaction_date transaction_time event_date interaction_time occurred_at visit_time "
            "played_at updated_at modified_at clicked_at clicked_at_ms read_at watched_at bought_at applied_at "
            "enrolled_at"
        ),
        "date day date_added dt",
    ),
    "weight": (
        "rating weight score event_weight",
        "stars overall rate review_score play_count playcount quantity watch_ratio",
    ),
}
ALIASES = {role: tuple(tuple(group.split()) for group in groups) for role, groups in _ALIASES.items()}
"""The usual names of the columns of each role, in groups."""
# Names of columns of dates, which tell less of an order than times do.
DATES = {"date", "day", "dateadded", "dt"}
_FEW = 4
# Names of columns that number a user's rows.
_PLACES = {"ordernumber", "pos", "position", "seq", "sequence", "sequencenumber", "step", "visitnumber"}
# Names of columns that group rows, and are neither users nor items.
_ORDERS = {"basketid", "invoiceid", "invoiceno", "orderid", "transactionid"}
# Common names of event kinds.
USUAL_EVENTS = {
    *("addtocart", "buy", "cart", "click", "fav", "impression", "like", "order", "pageview", "play", "purchase"),
    *("pv", "skip", "transaction", "view", "watch"),
}


class MissingColumnError(InputError):
    """A source has no column for a role: the message is what it `lacks`, and the fix."""

    def __init__(self, lacks: str, fix: str) -> None:
        super().__init__(lacks + fix)
        self.lacks = lacks


@dataclass(frozen=True, slots=True)
class ColumnNames:
    """The columns to read; None means to look for an alias. Time and weight are optional.

    `time="none"` orders by rows, whatever columns there are, unless one has that name.
    `context`: columns with the context of an interaction, such as the device; read unchanged.
    `event`: the column of event kinds, from which `read_log(events=...)` selects.
    """

    user: str | None = None
    item: str | None = None
    time: str | None = None
    weight: str | None = None
    boundary: str | None = None
    context: tuple[str, ...] = ()
    event: str | None = None

    def __post_init__(self) -> None:
        names = {"user": self.user, "item": self.item, "time": self.time, "weight": self.weight}
        for role, name in (names | {"boundary": self.boundary}).items():
            if not isinstance(name, str | None):
                raise InputError(f"{role}={reprlib.repr(name)} is not a column name; give a string")
        if not isinstance(self.context, tuple | list) or not all(isinstance(name, str) for name in self.context):
            raise InputError(f"context={reprlib.repr(self.context)} is not a list of column names; write ('device',)")

    def resolve(self, there: Sequence[str], source: str, *, weighed: bool = True) -> dict[str, str]:
        """The column of each role that is found, user and item always. Errors: those of `find_column`.

        Unless `weighed`, several possible weight columns count as none.
        """
        found, lacking = dict[str, str](), list[str]()
        roles = {"user": self.user, "item": self.item, "time": self.time}
        for role, named in (roles | {"weight": self.weight, "boundary": self.boundary}).items():
            if role == "time" and lacking:
                raise _missing(lacking, [n for n in there if n not in found.values()], there, source)
            if role == "time" and named == "none" and "none" not in there:
                continue
            needed = weighed or role != "weight"
            name = find_column(role, named, there, source, refuse_several=needed)
            if name is not None:
                found[role] = name
            elif role in ("user", "item"):
                lacking.append(role)
        if found["user"] == found["item"]:
            raise InputError(
                f"{source}: column '{found['user']}' is named for both the user and the item; name another with "
                "--user-column or --item-column"
            )
        for name in self.context:
            if name not in there:
                raise MissingColumnError(f"{source} has no column '{name}' for the context", nearest(name, there))
        return found

    def notes(self, there: Sequence[str], chosen: Mapping[str, str]) -> list[str]:
        """Notes on other columns that may be the item, or the order of rows without times; not for named roles."""
        notes = list[str]()
        order = next((name for name in there if squashed(name) in _PLACES and name not in chosen.values()), None)
        if order is not None and self.time is None and "time" not in chosen:
            notes.append(
                f"'{order}' may be the order of a user's rows, which are read in file order: --time-column '{order}' "
                "sorts by it"
            )
        if self.item is not None:
            return notes
        known = {squashed(name) for group in ALIASES["item"][:-1] for name in group}
        others = [name for name in there if squashed(name) in known and name not in chosen.values()]
        if not others:
            return notes
        return [
            *notes,
            f"'{chosen['item']}' is read as the item, but '{others[0]}' is possible too: --item-column '{others[0]}' "
            "chooses it",
        ]


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
    """The column given for a role, or the only one whose name is an alias of it; None where there is none.

    Names are compared without case, blanks and punctuation: "User ID" and "userId" are "user_id".

    `also`: further aliases, tried last. `fix`: the advice in the message about several columns, which count as none
    without `refuse_several`. Errors: the given column does not exist; several aliases do.
    """
    if given is not None:
        if given not in there:
            like = _likeliest(given, there)
            meant = "" if like is None else f"; did you mean --{role}-column '{like}'?"
            # A table of names may have columns of years, too.
            hint = header_hint(there) if like is None or len(there) == 1 else ""
            fix = hint or f"; it has: {', '.join(there)}{meant}"
            raise MissingColumnError(f"{source} has no column '{given}' for the {role}", fix)
        return given
    for group in (*ALIASES.get(role, ()), also):
        known = {squashed(name) for name in group}
        found = [name for name in there if squashed(name) in known]
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


def with_article(role: str) -> str:
    """The role with its article: "a user", "an item"."""
    return f"an {role}" if role == "item" else f"a {role}"


def plain_name(name: str) -> str:
    """A column name in the spelling of the aliases: "User ID" is "user_id"."""
    return re.sub(r"[\s.-]+", "_", name.strip().lower())


def squashed(name: str) -> str:
    """A column name without case, blanks and punctuation: "User ID", "userId" and "user_id" are "userid"."""
    return re.sub(r"[\W_]+", "", name.casefold())


def known_names(role: str) -> set[str]:
    """All aliases of a role, `squashed`."""
    return {squashed(name) for group in ALIASES[role] for name in group}


def _likeliest(name: str, there: Sequence[str]) -> str | None:
    """The column most similar to a name, or None."""
    same = next((each for each in there if squashed(each) == squashed(name)), None)
    return closest(name, there) if same is None else same


def _likely(role: str, names: Sequence[str]) -> str | None:
    """The name that contains an alias of the role or is similar to one, or None; never an alias of another role."""
    others = {name for other in ALIASES if other != role for name in known_names(other)}
    names = [name for name in names if squashed(name) not in others]
    aliases = sorted((alias for group in ALIASES[role] for alias in group if len(alias) > 3), key=len, reverse=True)
    held = next((each for alias in aliases for each in names if f"_{alias}_" in f"_{plain_name(each)}_"), None)
    if held is not None:
        return held
    # Among few columns even a weak similarity is unlikely to be chance.
    alike = 0.5 if len(names) <= _FEW else 0.6
    found = [(alias, each) for alias in ALIASES[role][0] if (each := closest(alias, names, alike)) is not None]
    alike_most = max(found, key=lambda pair: SequenceMatcher(None, pair[0], pair[1].casefold()).ratio(), default=None)
    return None if alike_most is None else alike_most[1]


def _elsewhere(roles: Sequence[str], there: Sequence[str], source: str) -> str:
    """The advice for a table of orders whose users or items are in another table; "" for other tables."""
    order = next((name for name in there if squashed(name) in _ORDERS), None)
    if order is None or len(roles) > 1:
        return ""
    joined = ""
    if source.lower().endswith(".csv"):
        code = f'pl.read_csv("{source}").join(pl.read_csv("OTHER.csv"), on="{order}").write_csv("log.csv")'
        joined = f", as with: python3 -c 'import polars as pl; {code}'"
    other = f"use --user-column '{order}' if each order counts as a user"
    return (
        f"; it has: {', '.join(there)}. Its rows are orders: "
        f"{other if roles[0] == 'user' else 'name the item with --item-column'}, or join the table with the "
        f"{roles[0]} of each '{order}'{joined}"
    )


def _missing(roles: Sequence[str], free: Sequence[str], there: Sequence[str], source: str) -> MissingColumnError:
    """The error of a source without columns for some roles: its columns, the likeliest of them, the options."""
    lacks = f"{source} has no {' and no '.join(f'{role} column' for role in roles)}"
    if not there:
        return MissingColumnError(f"{source} has no columns, and so no rows", "; give a log with at least two users")
    hint = header_hint(there) or _elsewhere(roles, there, source)
    if hint:
        return MissingColumnError(lacks, hint)
    such, free = list[str](), list(free)
    for role in roles:
        like = _likely(role, free)
        if like is not None:
            free.remove(like)
            such.append(f"--{role}-column '{like}'")
    options = " and ".join(f"--{role}-column" for role in roles)
    in_python = ", ".join(f"{role}=..." for role in roles)
    known = "; ".join(", ".join(ALIASES[role][0]) for role in roles)
    return MissingColumnError(
        lacks,
        f"; it has: {', '.join(there)}. Name {'it' if len(roles) == 1 else 'them'} with {options}, in Python "
        f"ColumnNames({in_python}){', such as ' if such else ''}{' '.join(such)} (known by themselves: {known})",
    )
