"""Histories that are never lost: an event log by user, in memory, SQLite, Redis or PostgreSQL, behind one protocol."""
