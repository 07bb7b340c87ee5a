"""Rankers of user-item pairs, alone and behind a retriever."""
