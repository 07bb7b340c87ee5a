"""Answers over HTTP: from a fitted folder to a service. Nothing here knows torch, training or the reading of logs."""
