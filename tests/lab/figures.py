"""How a test in the lab's machine tells a figure to whoever started the machine: a line of its own in its output."""

FIGURE = "figure: "
