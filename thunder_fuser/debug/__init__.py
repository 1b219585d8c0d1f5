"""What a person asks of a fusion: the text of every stage."""
