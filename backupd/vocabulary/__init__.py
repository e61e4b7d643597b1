"""What the words mean: frozen values, errors, units. Nothing here decides, and nothing here acts.

Sizes are int bytes, durations float seconds from the monotonic clock, instants aware `datetime` in UTC. A ratio is
always baseline divided by what was measured: above 1 is slower.
"""
