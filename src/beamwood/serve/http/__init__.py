"""Endpoints over HTTP: routes as data, limits, responses and the protocol."""
