"""Stores of histories: an event log per user in memory, SQLite, Redis or PostgreSQL, behind one protocol."""
