"""The daemon: its clock, what it starts, what it tells Prometheus, and its pages."""
