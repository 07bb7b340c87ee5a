"""What a service tells of itself: metrics, log, spans, outcomes of its answers, and their replay."""
