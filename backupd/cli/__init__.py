"""The command line: one file per noun, and in `main` the one place that turns an error into words and a status."""
