"""Endpoints over HTTP: routes as data, tokens, limits, responses and the protocol."""
