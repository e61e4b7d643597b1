"""What a host's agent does for a control host: one request, one answer, and never longer than a few seconds."""
