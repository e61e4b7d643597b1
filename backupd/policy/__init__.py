"""Pure decisions: values in, a decision with its reason out. What depends on the time is told the time."""
