"""A fleet for those who look on: how it stands, for people, programs and Prometheus. Nothing here changes anything."""
