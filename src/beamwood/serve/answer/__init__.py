"""One answer: from a body to a request against a snapshot, and from hits to an answer."""
